"""The training loop, on Lightning Fabric: one process or several, CPU or GPU, the same call."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from pocketbayes.codec import prepare_directory
from pocketbayes.errors import (
    DataError,
    PocketBayesError,
    require_choice,
    require_count,
    require_number,
    require_truth,
)
from pocketbayes.layers import Ensemble, require_module, restored_mode, small_products
from pocketbayes.likelihoods import LIKELIHOODS
from pocketbayes.methods import DeepEnsemble, MeanField, Method
from pocketbayes.posteriors import isolated_randomness, mixed_seed, seed_everything
from pocketbayes.training.batches import dataset_size_of
from pocketbayes.training.checkpoints import naming
from pocketbayes.training.composition import FitResult, fit_members, fit_stages
from pocketbayes.training.defaults import as_stored, chosen_epochs, chosen_method
from pocketbayes.training.doubt import require_labels
from pocketbayes.training.environment import (
    DEVICES,
    PRECISIONS,
    launched_fabric,
    tuned_convolutions,
)
from pocketbayes.training.locking import only_writer
from pocketbayes.training.run import Run
from pocketbayes.training.run_state import stored_settings
from pocketbayes.training.settings import Settings
from pocketbayes.training.sharding import STRATEGIES
from pocketbayes.training.starting import started_
from pocketbayes.training.tracking import require_logger


def fit(
    model: nn.Module,
    train_loader: Iterable[Any],
    method: Method | None = None,
    *,
    epochs: int | None = None,
    likelihood: str = "categorical",
    val_loader: Iterable[Any] | None = None,
    seed: int = 0,
    dataset_size: int | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    precision: str = "auto",
    compile: bool | str = False,  # noqa: A002
    device: str = "auto",
    progress: bool = True,
    checkpoint_minutes: float = 10.0,
    keep_best: bool = False,
    patience: int | None = None,
    logger: Any = None,
    accumulate: int = 1,
    strategy: str = "ddp",
) -> FitResult:
    """Trains a Bayesian model by variational inference, in place.

    Minimises nll + beta_t / N KL per batch, with N the number of training examples. Means and
    deterministic parameters go by the method's optimiser, log-stds by Adam at their own rate,
    all on a cosine schedule. Several processes: start the same script by `torchrun`; each then
    takes its own share of the data, `batch_size` examples at a time, and its own noise.

    Args:
        model: the result of `bayesianize_`.
        train_loader: a DataLoader (or list) of batches: (input, target); several inputs as
            (a, b, ..., target) or ((a, b), target); or dicts with the target under "labels",
            "label", "target", "targets" or "y" and the inputs of `forward` by name. Each is a
            tensor or a NumPy array. A network may return an object or dict with "logits".
        method: `MeanField()` if None. Configs own the learning rates and the KL's weight.
        epochs: passes over the data; 0 only gives the method's posteriors to the weights. None:
            100, and in fully connected networks at least 2,000 steps, or 10,000 for values.
            `Laplace` trains nothing, whatever it is.
        likelihood: "categorical" (targets are class numbers; -100 does not count), "gaussian"
            (real targets, standardise them; the noise is learned, one std per output),
            "heteroscedastic", "student-t", "poisson", "negative-binomial" or "bernoulli": see
            docs/likelihoods.md.
        val_loader: evaluated after each epoch with 10 samples; only logged, unless keep_best.
            `Laplace` chooses its prior by it.
        seed: determines order, augmentation and noise. Global generators are left as they were.
        dataset_size: N, for a loader that does not know it.
        out: directory for `checkpoint.pt` and `history.jsonl`.
        resume: go on from the checkpoint in `out`; on the CPU the result is bit for bit that of
            an uninterrupted run, if the data set itself keeps no state from epoch to epoch.
        precision: "fp32", "bf16" (autocast), or "auto": bf16 on a GPU that has it.
        compile: compile the loss with torch.compile; a name chooses its backend.
        device: "cpu", "cuda", or "auto".
        progress: show a progress bar on stderr.
        checkpoint_minutes: time between checkpoints; there is one at the end in any case.
        keep_best: the model ends as it was after the epoch of least NLL on `val_loader`, batch
            norms and noise included. While the KL's weight rises (`warmup`), networks are of
            another objective, which hardly regularises and so looks good early on: only epochs
            that begin with the whole weight are compared, or all if none does. Stages and
            members of an ensemble keep the best of their own.
        patience: with keep_best, stop after so many epochs without a better one.
        logger: gets each epoch's row, at its step: "csv", "tensorboard" or "mlflow", which write
            into `out` (MLflow to $MLFLOW_TRACKING_URI where that is set), or a logger of Fabric or
            Lightning. Only the first process logs; a resumed run repeats no step.
        accumulate: batches of each optimiser step. The loss of a step is the mean over the examples
            of all of them, so 8 batches of 4 take the memory of 4 examples and do what one batch
            of 32 does, with weights drawn anew for each (batch norms see 4). The last step of an
            epoch takes the batches that are left.
        strategy: how several processes share the work: "ddp", each holds all of the model, or
            "fsdp", for models too large for that: each holds a part of means, log-stds, gradients
            and optimiser state, and a layer is whole while it runs.

    Returns:
        `FitResult`: `.model`, and `.history`, a dict per epoch with loss, nll, kl (nats),
        accuracy (or rmse), examples_per_second, beta, lr and, with a val_loader, val_*; with
        keep_best also `.best_epoch`, and `best_epoch` so far in each row.

    Raises:
        TrainingError: the loss became NaN or infinite; says at which step and in which layer.
        DataError: the loader yields no such batches, or nothing; or the loss is not finite since
            an input or target is not, or a label is no class: says which row of which batch.
        KeyboardInterrupt: after Ctrl-C, once the step is finished and the checkpoint written;
            after SIGTERM likewise SystemExit, with code 143.

    Example:
        >>> result = fit(model, loader, method=MeanField(beta=0.1), epochs=30, out="runs/a")
        >>> result.history[-1]["accuracy"]
    """
    method = MeanField() if method is None else method
    _require_trainable(model, method)
    _require_numbers(epochs, seed, checkpoint_minutes, accumulate)
    require_choice(likelihood, "likelihood", LIKELIHOODS)
    _require_environment(precision, device, strategy, compile)
    _require_validation(method, val_loader, keep_best, patience)
    _require_place(out, resume, logger)
    directory = None if out is None else prepare_directory(out)
    with only_writer(directory if int(os.environ.get("RANK", 0)) == 0 else None):
        fit_one = partial(
            fit, train_loader=train_loader, likelihood=likelihood, val_loader=val_loader,
            dataset_size=dataset_size, precision=precision, compile=compile, device=device,
            progress=progress, checkpoint_minutes=checkpoint_minutes, keep_best=keep_best,
            patience=patience, accumulate=accumulate, strategy=strategy,
        )  # fmt: skip
        if isinstance(method, DeepEnsemble):
            fit_one = partial(fit_one, epochs=epochs)
            place = out, resume, progress, logger
            return fit_members(model, method, fit_one, seed, *place)
        stages = method.stages()
        if stages is not None:
            fit_one = partial(fit_one, seed=seed)
            return fit_stages(model, stages, epochs, fit_one, out, resume, logger)
        size = dataset_size_of(train_loader, dataset_size)
        fabric = launched_fabric(precision, device, model)
        if resume and directory is not None:
            with naming(directory):
                method, epochs = as_stored(method, epochs, stored_settings(directory))
        with _training_state(model, fabric.device, seed):
            method = chosen_method(method, model, train_loader, likelihood)
            require_labels(method, likelihood)
            shared = fabric.world_size * accumulate
            epochs = chosen_epochs(epochs, method, model, train_loader, likelihood, shared)
            settings = Settings(epochs, likelihood, seed, size, method, compile,
                                checkpoint_minutes, keep_best, patience, accumulate,
                                logger, strategy)  # fmt: skip
            context = started_(fabric, model, train_loader, val_loader, settings)
            data = train_loader, val_loader
            return Run(fabric, model, *data, settings, directory, resume, context).train(progress)


@contextmanager
def _training_state(model: nn.Module, device: torch.device, seed: int) -> Iterator[None]:
    """The model on its device and in training mode, random numbers seeded; all put back after."""
    model.to(device)
    with (
        isolated_randomness(device),
        restored_mode(model),
        tuned_convolutions(),
        small_products(model),
    ):
        model.train()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        seed_everything(mixed_seed(seed), device)
        yield


def _require_trainable(model: nn.Module, method: Method) -> None:
    if not isinstance(method, Method):
        raise PocketBayesError(f"method must be a config such as MeanField(); got {method!r}")
    require_module(model)
    if isinstance(model, Ensemble):
        raise PocketBayesError("an ensemble is trained already: fit one of its members instead")


def _require_numbers(
    epochs: int | None, seed: int, checkpoint_minutes: float, accumulate: int
) -> None:
    if epochs is not None:
        require_count(epochs, "epochs", least=0)
    require_count(seed, "seed", least=0)
    require_number(checkpoint_minutes, "checkpoint_minutes", above=0)
    require_count(accumulate, "accumulate")


def _require_place(out: object, resume: bool, logger: object) -> None:
    """An error unless there is a directory for what is read from it, or written."""
    if resume and out is None:
        raise PocketBayesError("resume=True needs out=, the directory that holds the checkpoint")
    require_logger(logger, out is not None)


def _require_environment(precision: str, device: str, strategy: str, compiled: bool | str) -> None:
    require_choice(precision, "precision", PRECISIONS)
    require_choice(device, "device", DEVICES)
    require_choice(strategy, "strategy", STRATEGIES)
    if strategy == "fsdp" and compiled:
        raise PocketBayesError(
            'a model that trains in parts is not compiled: leave out compile, or use strategy="ddp"'
        )


def _require_validation(
    method: Method, val_loader: Iterable[Any] | None, keep_best: bool, patience: int | None
) -> None:
    """An error unless there is validation data for what is asked of it, in every epoch."""
    require_truth(keep_best, "keep_best")
    if patience is not None:
        require_count(patience, "patience")
        if not keep_best:
            raise PocketBayesError("patience counts epochs since the best one: add keep_best=True")
    if keep_best and method.averages:
        raise PocketBayesError(f"{type(method).__name__} averages epochs: leave out keep_best")
    if keep_best and val_loader is None:
        raise PocketBayesError(
            "keep_best=True chooses the epoch by validation data: pass val_loader=, a part of the "
            "training data that is held back, never the test set"
        )
    if isinstance(val_loader, Iterator):
        raise DataError(
            "val_loader is an iterator, spent after one epoch: pass a DataLoader or a list"
        )
