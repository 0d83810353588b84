"""Training inside a Lightning `Trainer`; needs `lightning` or `pytorch_lightning`."""

import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pocketbayes.codec import save
from pocketbayes.errors import PocketBayesError, optional_module, require_choice, require_count
from pocketbayes.likelihoods import LIKELIHOODS
from pocketbayes.methods import Method, never_broadcast
from pocketbayes.prediction import Answers, answered, predict, record_of
from pocketbayes.training import Hosted, hosted_method, is_stream, names_inside_posteriors

_KEY = "pocketbayes"
_NOT_LOGGED = ("epoch", "step", "seconds")


def _lightning() -> Any:
    """The package whose Trainer will be used: these two do not know each other's modules."""
    only_old = "pytorch_lightning" in sys.modules and "lightning" not in sys.modules
    if not only_old:
        try:
            return optional_module("lightning.pytorch", extra="lightning")
        except PocketBayesError as error:
            missing = error
    try:
        return optional_module("pytorch_lightning", extra="lightning")
    except PocketBayesError:
        raise missing from None


LightningModule: Any = _lightning().LightningModule


class _Place:
    """Device and processes of a Trainer, as Fabric has them."""

    def __init__(self, module: Any) -> None:
        self._module, trainer = module, module.trainer
        self.device: torch.device = trainer.strategy.root_device
        self.world_size: int = trainer.world_size
        self.global_rank: int = trainer.global_rank
        self.is_global_zero: bool = trainer.is_global_zero

    def autocast(self) -> AbstractContextManager[object]:
        """The precision of the Trainer."""
        context: AbstractContextManager[object] = (
            self._module.trainer.precision_plugin.forward_context()
        )
        return context

    def setup_module(self, module: nn.Module) -> nn.Module:
        """As it is: the Trainer has the whole on its device, and its processes averaged."""
        return module

    def backward(self, loss: Tensor) -> None:
        """Gradients."""
        self._module.manual_backward(loss)


class BayesianModule(LightningModule):  # type: ignore[misc]
    """A `LightningModule` that trains a Bayesian model as `fit` does, inside a `Trainer`.

    Posteriors, prior, noise, the KL's weight, learning rates and exchanges of weights are those of
    the method; loop, devices, loggers, callbacks and checkpoints are the Trainer's. Epochs are its
    `max_epochs` (or steps its `max_steps`): schedules end there. In the log stand `loss`, `nll`,
    `kl`, `accuracy` or `rmse`, `beta` and `lr` of each epoch, and of the validation data the
    metrics of `evaluate` as `val_nll`, `val_accuracy`, ...

    Gradients are clipped by the method's `clip_norm`, not by the Trainer, and not accumulated.
    Precision is "32-true" or "bf16-mixed".

    Args:
        model: the result of `bayesianize_`; it is trained in place.
        method: `MeanField()` if None. `DeepEnsemble`, `Laplace` and `Sharing` with pretraining are
            no single run of training: `fit` has them.
        likelihood: as in `fit`.
        dataset_size: N, for a loader that does not know it.
        num_samples: draws for each prediction in validation, test and `predict_step`.
        file: where the first process writes the trained model, as `save` does; ends in `.pocket`.

    Example:
        >>> module = pb.lightning.BayesianModule(model, pb.Subspace(density=0.1), file="a.pocket")
        >>> lightning.Trainer(max_epochs=30).fit(module, train_loader, val_loader)
        >>> pb.predict(model, x)
    """

    def __init__(
        self,
        model: nn.Module,
        method: Method | None = None,
        *,
        likelihood: str = "categorical",
        dataset_size: int | None = None,
        num_samples: int = 10,
        file: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise PocketBayesError(f"model must be a network; got {type(model).__name__}")
        require_choice(likelihood, "likelihood", LIKELIHOODS)
        self.automatic_optimization = False
        self.model, self.method, self.likelihood = model, hosted_method(method), likelihood
        self.dataset_size, self.file = dataset_size, None if file is None else Path(file)
        self.num_samples = require_count(num_samples, "num_samples")
        self._hosted: Hosted | None = None
        self._answers: dict[int, list[Answers]] = {}

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """What the model says, by one draw."""
        return self.model(*inputs, **named)

    def setup(self, stage: str) -> None:
        """Posteriors, prior and noise, before processes and optimisers are set up."""
        if stage != "fit":
            return
        trainer = self.trainer
        if str(trainer.precision).startswith("16"):
            raise PocketBayesError(
                f"precision {trainer.precision!r} has no room for log-stds: take "
                'Trainer(precision="bf16-mixed") or "32-true"'
            )
        self.to(trainer.strategy.root_device)
        self._hosted = Hosted(
            _Place(self), self.model, self._training_loader(), self.method, self.likelihood,
            self.dataset_size, *self._limits(), seed=int(os.environ.get("PL_GLOBAL_SEED", 0)),
        )  # fmt: skip
        never_broadcast(self, names_inside_posteriors(self))

    def _training_loader(self) -> Any:
        self.trainer.fit_loop.setup_data()
        loader = self.trainer.train_dataloader
        if isinstance(loader, Mapping):
            raise PocketBayesError(
                f"the Trainer has several training loaders ({', '.join(map(str, loader))}): pass "
                "one, which yields (input, target)"
            )
        return loader

    def _limits(self) -> tuple[int, int | None]:
        """Epochs, and steps where they are known, after which schedules end."""
        trainer = self.trainer
        epochs, steps = trainer.max_epochs or -1, trainer.estimated_stepping_batches
        known = int(steps) if 0 < steps < float("inf") else None
        if is_stream(trainer.train_dataloader) and trainer.world_size > 1 and epochs > 0:
            known = None  # its length is that of all processes together
        if known is None and epochs < 1:
            raise PocketBayesError(
                "learning rates and the KL's weight follow the share of training that has passed: "
                "give the Trainer max_epochs or max_steps"
            )
        return max(1, epochs), known

    @property
    def hosted(self) -> Hosted:
        """The run inside the Trainer's."""
        if self._hosted is None:
            raise PocketBayesError("nothing is trained yet: call Trainer(...).fit(module, loader)")
        return self._hosted

    @property
    def history(self) -> list[dict[str, Any]]:
        """A row for each epoch, as in the result of `fit`."""
        return self.hosted.running.at.history

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """Those of `fit`: of means and deterministic parameters, and of log-stds."""
        return list(self.hosted.make_steps().optimizers)

    def on_train_start(self) -> None:
        """The Trainer counts the steps of the first optimiser."""
        counted = self.optimizers()
        first = counted[0] if isinstance(counted, list) else counted
        self.hosted.running.optimizers[0] = first
        for logger in self.trainer.loggers:
            logger.log_hyperparams(self.hosted.settings.to_dict())

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """One step of every optimiser, and the method's part."""
        numbers = self.hosted.step(batch, batch_idx)
        shown = {f"train_{name}": value for name, value in numbers.items() if name == "nll"}
        self.log_dict(shown, prog_bar=True, logger=False, on_step=True, on_epoch=False)

    def on_train_epoch_end(self) -> None:
        """Tells the numbers of the epoch."""
        row = self.hosted.end_epoch()
        self.log_dict({n: float(v) for n, v in row.items() if n not in _NOT_LOGGED}, sync_dist=True)

    def on_train_end(self) -> None:
        """Makes the model what `fit` returns, and writes the file."""
        self.hosted.finish()
        if self.file is not None and self.trainer.is_global_zero:
            save(self.model, self.file)

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Predictions, measured when all are there."""
        self._answer(batch, batch_idx, dataloader_idx)

    def on_validation_epoch_end(self) -> None:
        """Metrics of all validation data of this process, averaged over processes."""
        self._log_records("val")

    def test_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Predictions, measured when all are there."""
        self._answer(batch, batch_idx, dataloader_idx)

    def on_test_epoch_end(self) -> None:
        """Metrics of all test data of this process, averaged over processes."""
        self._log_records("test")

    def predict_step(
        self, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> dict[str, Tensor]:
        """The tensors of a prediction by name, which a Trainer can move: `probs`, `mean`, ...

        In a tuple the last is the target, as in what `predict` reads.
        """
        prediction = predict(self.model, [batch], self.num_samples, likelihood=self.likelihood)
        return {n: value for n, value in vars(prediction).items() if isinstance(value, Tensor)}

    def _answer(self, batch: Any, batch_idx: int, dataloader_idx: int) -> None:
        generator = torch.Generator().manual_seed(batch_idx)
        found = answered(
            self.model, [batch], self.num_samples, generator=generator, likelihood=self.likelihood
        )
        self._answers.setdefault(dataloader_idx, []).append(found)

    def _log_records(self, word: str) -> None:
        for number, parts in self._answers.items():
            whole = replace(
                parts[0],
                predictions=[prediction for part in parts for prediction in part.predictions],
                targets=[target for part in parts for target in part.targets],
            )
            numbers = record_of(whole).to_dict()
            ending = "" if number == 0 else f"/{number}"
            named = {
                f"{word}_{name}{ending}": value
                for name, value in numbers.items()
                if isinstance(value, float) and name != "seconds"
            }
            self.log_dict(named, sync_dist=True)
        self._answers.clear()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Where training stands goes along."""
        if self._hosted is not None and self._hosted.steps is not None:
            checkpoint[_KEY] = self._hosted.state()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """A model that is not training gets the kind of posteriors that the checkpoint has."""
        if self._hosted is None:
            self.method.start(self.model)
        elif self._hosted.steps is None and _KEY in checkpoint:
            self._hosted.go_on_from(checkpoint[_KEY])
