"""The training loop, on Lightning Fabric: one process or several, CPU or GPU, the same call."""

import os
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from pocketbayes.codec import prepare_directory
from pocketbayes.errors import (
    DataError,
    PocketBayesError,
    require_choice,
    require_count,
    require_number,
)
from pocketbayes.layers import (
    Ensemble,
    add_noise_parameter,
    explained_failure,
    forget_calibration,
    noise_log_std,
    require_module,
    require_tensor,
    restored_mode,
    update_description,
)
from pocketbayes.likelihoods import LIKELIHOODS, Objective, matched_target
from pocketbayes.methods import DeepEnsemble, MeanField, Method, StartContext, agree_on_state
from pocketbayes.posteriors import isolated_randomness, mixed_seed, seed_everything
from pocketbayes.prediction import unpack
from pocketbayes.training.batch_norm import (
    average_batch_norms_,
    refresh_norms_,
    running_batch_norms,
)
from pocketbayes.training.batches import Batches, dataset_size_of
from pocketbayes.training.composition import FitResult, fit_members, fit_stages
from pocketbayes.training.curvature import curvatures, validation_nll
from pocketbayes.training.environment import (
    DEVICES,
    PRECISIONS,
    launched_fabric,
    peak_memory,
    tuned_convolutions,
)
from pocketbayes.training.gradients import mean_sizes
from pocketbayes.training.observation_noise import average_noise_, noise_in_use, refresh_noise_
from pocketbayes.training.run import Run, Settings


def fit(
    model: nn.Module,
    train_loader: Iterable[Any],
    method: Method | None = None,
    *,
    epochs: int = 100,
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
) -> FitResult:
    """Trains a Bayesian model by variational inference, in place.

    Minimises nll + beta_t / N KL per batch, with N the number of training examples. Means and
    deterministic parameters go by the method's optimiser, log-stds by Adam at their own rate,
    all on a cosine schedule. Several processes: start the same script by `torchrun`; each then
    takes its own share of the data, `batch_size` examples at a time, and its own noise.

    Args:
        model: the result of `bayesianize_`.
        train_loader: a DataLoader (or list) of (input, target) batches.
        method: `MeanField()` if None. Configs own the learning rates and the KL's weight.
        epochs: passes over the data; 0 only gives the method's posteriors to the weights. `Laplace`
            trains nothing, whatever it is.
        likelihood: "categorical" (targets are class numbers) or "gaussian" (real targets,
            standardise them; the noise is learned, one std per output).
        val_loader: evaluated after each epoch with 10 samples; only logged. `Laplace` chooses its
            prior by it.
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

    Returns:
        `FitResult`: `.model`, and `.history`, a dict per epoch with loss, nll, kl (nats),
        accuracy (or rmse), examples_per_second, beta, lr and, with a val_loader, val_*.

    Raises:
        TrainingError: the loss became NaN or infinite; says at which step and in which layer.
        DataError: the loader yields something else than pairs of tensors, or nothing.
        KeyboardInterrupt: after Ctrl-C, once the step is finished and the checkpoint written.

    Example:
        >>> result = fit(model, loader, method=MeanField(beta=0.1), epochs=30, out="runs/a")
        >>> result.history[-1]["accuracy"]
    """
    method = MeanField() if method is None else method
    if not isinstance(method, Method):
        raise PocketBayesError(f"method must be a config such as MeanField(); got {method!r}")
    _require_single(model)
    epochs = require_count(epochs, "epochs", least=0) if method.trains else 0
    require_count(seed, "seed", least=0)
    require_choice(likelihood, "likelihood", LIKELIHOODS)
    require_choice(precision, "precision", PRECISIONS)
    require_choice(device, "device", DEVICES)
    require_number(checkpoint_minutes, "checkpoint_minutes", above=0)
    if resume and out is None:
        raise PocketBayesError("resume=True needs out=, the directory that holds the checkpoint")
    _require_many_passes(val_loader)
    fit_one = partial(
        fit, train_loader=train_loader, likelihood=likelihood, val_loader=val_loader,
        dataset_size=dataset_size, precision=precision, compile=compile, device=device,
        progress=progress, checkpoint_minutes=checkpoint_minutes,
    )  # fmt: skip
    if isinstance(method, DeepEnsemble):
        fit_one = partial(fit_one, method=method.member(), epochs=epochs)
        return fit_members(model, method.members, fit_one, seed, out, resume, progress)
    stages = method.stages()
    if stages is not None:
        return fit_stages(model, stages, epochs, partial(fit_one, seed=seed), out, resume)
    size = dataset_size_of(train_loader, dataset_size)
    directory = None if out is None else prepare_directory(out)
    fabric = launched_fabric(precision, device, model)
    settings = Settings(epochs, likelihood, seed, size, method, compile, checkpoint_minutes)
    with isolated_randomness(fabric.device), restored_mode(model), tuned_convolutions():
        model.to(fabric.device).train()
        if fabric.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(fabric.device)
        seed_everything(mixed_seed(seed), fabric.device)
        method.start(model)
        _describe(model, train_loader, likelihood, method.keeps_dropout, fabric.device)
        memory = _begin(fabric, model, train_loader, val_loader, settings)
        run = Run(fabric, model, train_loader, val_loader, settings, directory, resume, memory)
        run.train(progress)
        return FitResult(model, run.at.history, run.at.seconds, peak_memory(fabric.device))


def _require_single(model: nn.Module) -> None:
    require_module(model)
    if isinstance(model, Ensemble):
        raise PocketBayesError("an ensemble is trained already: fit one of its members instead")


def _require_many_passes(val_loader: Iterable[Any] | None) -> None:
    if isinstance(val_loader, Iterator):
        raise DataError(
            "val_loader is an iterator, spent after one epoch: pass a DataLoader or a list"
        )


def _begin(
    fabric: Any,
    model: nn.Module,
    loader: Iterable[Any],
    val_loader: Iterable[Any] | None,
    settings: Settings,
) -> dict[str, Tensor]:
    """Lets the method look at the data before the first step; returns what it keeps."""

    def pairs() -> Iterator[tuple[Tensor, Tensor]]:
        batches = Batches(
            loader, settings.seed, fabric.global_rank, fabric.world_size, fabric.device
        )
        return ((x, y) for _, x, y in batches.epoch(0))

    def mean_gradients() -> dict[str, Tensor]:
        with fabric.autocast():
            return mean_sizes(Objective(model, settings.likelihood), pairs())

    def refresh() -> None:
        if running_batch_norms(model):
            agree_on_state(model)
        with fabric.autocast():
            refresh_norms_(model, pairs())
            average_batch_norms_(model)
        refresh_noise(pairs())

    def refresh_noise(data: Iterable[Any]) -> None:
        noise = noise_in_use(model)
        if noise is not None and noise.requires_grad:
            agree_on_state(model)
            with fabric.autocast():
                refresh_noise_(model, data)
                average_noise_(model)

    def curvatures_of(only_last: bool, most: int) -> dict[str, Tensor]:
        refresh_noise(pairs() if val_loader is None else val_loader)
        agree_on_state(model)
        found = curvatures(model, settings.likelihood, pairs(), only_last, most)
        return {name: settings.dataset_size * mean for name, mean in found.items()}

    memory: dict[str, Tensor] = {}
    nll = None if val_loader is None else partial(validation_nll, model, val_loader, settings.seed)
    context = StartContext(mean_gradients, memory, refresh, curvatures_of, nll)
    settings.method.begin(model, context)
    return memory


def _describe(
    model: nn.Module,
    loader: Iterable[Any],
    likelihood: str,
    keeps_dropout: bool,
    device: torch.device,
) -> None:
    """Stores likelihood, class names and preprocessing on the model, and the noise's start."""
    forget_calibration(model)
    dataset = getattr(loader, "dataset", None)
    classes = getattr(dataset, "classes", None)
    facts: dict[str, Any] = {"likelihood": likelihood, "keeps_dropout": keeps_dropout}
    if isinstance(classes, list | tuple):
        facts["class_names"] = tuple(map(str, classes))
    if isinstance(getattr(dataset, "preprocess", None), dict):
        facts["preprocess"] = dataset.preprocess  # type: ignore[union-attr]
    update_description(model, **facts)
    if likelihood == "gaussian" and noise_log_std(model) is None:
        _start_noise(model, loader, device)


@torch.no_grad()
def _start_noise(model: nn.Module, loader: Iterable[Any], device: torch.device) -> None:
    """The noise of each output starts at the spread of its targets in the first batch."""
    batch = next(iter(loader), None)
    if batch is None:
        raise DataError("the training loader is empty: it yielded no batch")
    x, y = unpack(batch, "the training loader")
    model.eval()
    with explained_failure(x):
        output = require_tensor(model(x.to(device)))
    model.train()
    target = matched_target(output, y.to(device)).float()
    add_noise_parameter(model, tuple(output.shape[1:]))
    noise = noise_log_std(model)
    assert noise is not None
    spread = target.std(0, correction=0)
    noise.data.copy_(torch.where(spread.isfinite() & (spread > 0), spread, 1.0).log())
