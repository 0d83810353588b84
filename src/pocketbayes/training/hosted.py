"""A run whose epochs and batches belong to another library's loop."""

import time
from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from pocketbayes.errors import PocketBayesError, TrainingError
from pocketbayes.layers import Inputs, moved
from pocketbayes.methods import DeepEnsemble, MeanField, Method
from pocketbayes.posteriors import isolated_randomness, mixed_seed, seed_everything
from pocketbayes.prediction import float_dtype, unpack
from pocketbayes.training.batches import Batches, dataset_size_of
from pocketbayes.training.checking import checked_parts, require_standing
from pocketbayes.training.defaults import chosen_method
from pocketbayes.training.doubt import require_labels
from pocketbayes.training.finishing import finish_, settle_noise_
from pocketbayes.training.run_state import RunState
from pocketbayes.training.settings import Settings
from pocketbayes.training.starting import started_
from pocketbayes.training.steps import Steps, share_passed
from pocketbayes.training.streams import require_own_part, warn_if_read_again
from pocketbayes.training.worth import warn_if_worthless


def hosted_method(method: Method | None) -> Method:
    """The method, if one run of another library's loop can be all of its training."""
    method = MeanField() if method is None else method
    if not isinstance(method, Method):
        raise PocketBayesError(
            f"method must be a config such as MeanField(); got {type(method).__name__}"
        )
    name = type(method).__name__
    if isinstance(method, DeepEnsemble):
        raise PocketBayesError(
            f"{name} trains several networks: use fit(model, loader, {name}()), which takes the "
            "same loader"
        )
    if not method.trains:
        raise PocketBayesError(
            f"{name} takes no training steps: train by another method, and then call "
            f"fit(model, loader, {name}())"
        )
    if method.stages() is not None:
        raise PocketBayesError(
            f"{name} with pretraining is two runs: train by MeanField() first, and then go on with "
            f"{name}(...) without pretraining"
        )
    return method


class Hosted:
    """All that `fit` does besides the loop: before the first step, in each, and after the last.

    `place` knows device and processes as Fabric does, and how to run a backward pass.
    """

    def __init__(
        self,
        place: Any,
        model: nn.Module,
        loader: Iterable[Any],
        method: Method,
        likelihood: str,
        dataset_size: int | None,
        epochs: int,
        steps: int | None,
        seed: int,
    ) -> None:
        if method.resizes and place.world_size > 1:
            raise PocketBayesError(
                f"{type(method).__name__} with density across layers changes the sizes of "
                "parameters, which the processes of this loop do not follow: use "
                'allocation="erk", or fit under torchrun'
            )
        size = dataset_size_of(loader, dataset_size)
        self.place, self.model, self.loader, self.total = place, model, loader, steps
        with isolated_randomness(place.device):
            seed_everything(mixed_seed(seed), place.device)
            method = chosen_method(method, model, loader, likelihood)
            require_labels(method, likelihood)
            self.settings = Settings(epochs, likelihood, seed, size, method, False, 1.0)
            self.context = started_(place, model, loader, None, self.settings)
        self.steps: Steps | None = None
        self.stored: dict[str, Any] | None = None

    def make_steps(self) -> Steps:
        """Optimisers and loss, once the model is where it trains; goes on from what was stored."""
        model, settings = self.model, self.settings
        self.steps = Steps(self.place, model, settings, self.context, lambda: "")
        if self.stored is not None:
            require_standing(self.stored, model, self.context.memory)
            self.steps.at = RunState(**self.stored["standing"])
        self.began = time.monotonic() - self.steps.at.seconds
        self.epoch_began, self.seen = time.monotonic(), 0
        return self.steps

    @property
    def running(self) -> Steps:
        """The steps, once they are made."""
        assert self.steps is not None
        return self.steps

    def step(self, batch: object, number: int) -> dict[str, Tensor]:
        """One optimiser step on the batch of this number; loss, nll, KL and score."""
        x, y = self._unpacked(batch)
        steps = self.running
        if steps.at.step == 0 and self.place.world_size > 1:
            require_own_part(self.loader, x, y)
        numbers = steps.step(self._progress(number, len(y)), [(number, x, y)])
        steps.at.batch, self.seen = number + 1, self.seen + len(y)
        steps.at.seconds = time.monotonic() - self.began
        return dict(zip(("loss", "nll", "kl", steps.score), numbers, strict=True))

    def _unpacked(self, batch: object) -> tuple[Inputs, Tensor]:
        x, y = unpack(batch, "the training loader", float_dtype(self.model))
        return moved(x, self.place.device), y.to(self.place.device)

    def _progress(self, number: int, examples: int) -> float:
        at = self.running.at
        if self.total is not None:
            return min(1.0, at.step / self.total)
        together = examples * self.place.world_size
        share = share_passed(number, None, together, self.settings.dataset_size)
        return min(1.0, (at.epoch + share) / self.settings.epochs)

    def end_epoch(self) -> dict[str, Any]:
        """The row of an epoch that ends here, as in the history of `fit`."""
        self.running.end_pass()
        at, now = self.running.at, time.monotonic()
        if at.epoch == 0 and self.place.is_global_zero:
            warn_if_read_again(self.loader, float(at.totals[-1]), self.settings.dataset_size)
        row = self.running.row(self.seen / max(now - self.epoch_began, 1e-9))
        self.running.begin_next(row)
        self.epoch_began, self.seen = now, 0
        return row

    def finish(self) -> None:
        """Makes the model what `fit` returns."""
        steps, place, settings = self.running, self.place, self.settings
        at = place.global_rank, place.world_size, place.device
        batches = Batches(self.loader, settings.seed, *at, float_dtype(self.model))
        with isolated_randomness(place.device):
            settle_noise_(place, self.model, settings, batches, settings.epochs - 1)
            finish_(self.model, settings, steps.at, self.context)
            steps.require_finite()
            for parameter in self.model.parameters():
                parameter.grad = None
            if place.is_global_zero:
                warn_if_worthless(steps.objective, batches, steps.targets, steps.at.history)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps besides model and optimisers: plain values and tensors."""
        at = self.running.at
        return {
            "settings": self.settings.method.settings(),
            "model": {},
            "standing": vars(at) | {"totals": at.totals.clone(), "history": list(at.history)},
        }

    def go_on_from(self, state: dict[str, Any]) -> None:
        """Takes over where a stored run stood, if its method is the same."""
        parts = checked_parts(state | {"optimizers": []})
        known, own = parts["settings"], self.settings.method.settings()
        for name in own:
            if known.get(name) != own[name]:
                raise TrainingError(
                    f"the checkpoint was made with {name}={known.get(name)!r}, this run has "
                    f"{own[name]!r}: go on with the same method, or without the checkpoint"
                )
        self.stored = parts
