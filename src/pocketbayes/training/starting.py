"""What comes before the first step: posteriors, prior, noise, and a look at the data."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from pocketbayes.errors import DataError, warn
from pocketbayes.layers import (
    Inputs,
    explained_failure,
    forget_calibration,
    forget_head,
    leave_noise_to_loss,
    moved,
    named_posteriors,
    run,
    update_description,
)
from pocketbayes.likelihoods import (
    LIKELIHOODS,
    Objective,
    learned_of,
    start_learned_,
    warn_of_probabilities,
)
from pocketbayes.methods import StartContext, agree_on_state
from pocketbayes.prediction import drawing, float_dtype, unpack
from pocketbayes.training.batch_norm import (
    average_batch_norms_,
    refresh_norms_,
    running_batch_norms,
)
from pocketbayes.training.batches import Batches
from pocketbayes.training.curvature import curvatures, validation_nll
from pocketbayes.training.gradients import mean_sizes
from pocketbayes.training.observation_noise import average_noise_, learns_noise, refresh_noise_
from pocketbayes.training.priors import begin_priors_
from pocketbayes.training.settings import Settings
from pocketbayes.training.streams import is_stream


def started_(
    fabric: Any,
    model: nn.Module,
    loader: Iterable[Any],
    val_loader: Iterable[Any] | None,
    settings: Settings,
) -> StartContext:
    """Makes the model ready for its first step; returns what the method may use, then and later."""
    method = settings.method
    _look_for_frozen(model)
    method.start(model)
    begin_priors_(model, method, settings.dataset_size)
    _describe(model, loader, settings.likelihood, method.keeps_dropout, fabric.device)
    _look_for_softmax(model, loader, settings.likelihood, fabric.device)
    return _begin(fabric, model, loader, val_loader, settings)


def _begin(
    fabric: Any,
    model: nn.Module,
    loader: Iterable[Any],
    val_loader: Iterable[Any] | None,
    settings: Settings,
) -> StartContext:
    """Lets the method look at the data before the first step."""

    def pairs() -> Iterator[tuple[Inputs, Tensor]]:
        place = fabric.global_rank, fabric.world_size, fabric.device
        batches = Batches(loader, settings.seed, *place, float_dtype(model))
        return ((x, y) for _, x, y in batches.epoch(0))

    def mean_gradients() -> dict[str, Tensor]:
        with fabric.autocast():
            return mean_sizes(Objective(model, settings.likelihood), pairs())

    def refresh_norms() -> None:
        if running_batch_norms(model):
            agree_on_state(model)
        with fabric.autocast():
            refresh_norms_(model, pairs())
            average_batch_norms_(model)

    def refresh() -> None:
        refresh_norms()
        refresh_noise(pairs())

    def refresh_noise(data: Iterable[Any]) -> None:
        if learns_noise(model):
            agree_on_state(model)
            with fabric.autocast():
                refresh_noise_(model, data)
                average_noise_(model)

    def curvatures_of(only_last: bool, most: int) -> dict[str, Tensor]:
        refresh_noise(pairs() if val_loader is None else val_loader)
        agree_on_state(model)
        found = curvatures(model, settings.likelihood, pairs(), only_last, most)
        return {name: settings.dataset_size * mean for name, mean in found.items()}

    nll = None if val_loader is None else partial(validation_nll, model, val_loader, settings.seed)
    context = StartContext(mean_gradients, {}, refresh_norms, refresh, curvatures_of, nll)
    settings.method.begin(model, context)
    return context


def _describe(
    model: nn.Module,
    loader: Iterable[Any],
    likelihood: str,
    keeps_dropout: bool,
    device: torch.device,
) -> None:
    """Stores likelihood, class names and preprocessing on the model, and the noise's start."""
    forget_calibration(model)
    forget_head(model)
    leave_noise_to_loss(model, False)
    dataset = getattr(loader, "dataset", None)
    classes = getattr(dataset, "classes", None)
    facts: dict[str, Any] = {"likelihood": likelihood, "keeps_dropout": keeps_dropout}
    if isinstance(classes, list | tuple):
        facts["class_names"] = tuple(map(str, classes))
    if isinstance(getattr(dataset, "preprocess", None), dict):
        facts["preprocess"] = dataset.preprocess  # type: ignore[union-attr]
    update_description(model, **facts)
    if learned_of(model, LIKELIHOODS[likelihood]) is None:
        _start_noise(model, loader, likelihood, device)


@torch.no_grad()
def _start_noise(
    model: nn.Module, loader: Iterable[Any], likelihood: str, device: torch.device
) -> None:
    """What the likelihood learns starts from the targets of the first batch."""
    start_learned_(model, LIKELIHOODS[likelihood], *_first_pass(model, loader, device))


def _look_for_frozen(model: nn.Module) -> None:
    """Warns of frozen posteriors beside matrices that learn, as of adapters that came later."""
    all_own = [list(posterior.parameters()) for _, posterior in named_posteriors(model)]
    frozen = sum(own != [] and not any(p.requires_grad for p in own) for own in all_own)
    ids = {id(p) for own in all_own for p in own}
    learning = [
        name
        for name, p in model.named_parameters()
        if p.requires_grad and id(p) not in ids and sum(side > 1 for side in p.shape) > 1
    ]
    if frozen and learning:
        warn(
            f"{frozen} of {len(all_own)} posteriors are frozen, and what learns instead is "
            f"deterministic, such as {learning[0]}: call bayesianize_ after what freezes weights "
            "and adds adapters, such as get_peft_model, and it makes the adapters Bayesian"
        )


def _look_for_softmax(
    model: nn.Module, loader: Iterable[Any], likelihood: str, device: torch.device
) -> None:
    """Warns of a network that has a Softmax and ends in it."""
    has_one = any(isinstance(module, nn.Softmax) for module in model.modules())
    if likelihood == "categorical" and has_one and not is_stream(loader):
        with torch.no_grad(), drawing(model, "mean", None):
            warn_of_probabilities(_first_pass(model, loader, device)[0])


def _first_pass(
    model: nn.Module, loader: Iterable[Any], device: torch.device
) -> tuple[Tensor, Tensor]:
    """The network's answers to the first batch, and its targets."""
    batch = next(iter(loader), None)
    if batch is None:
        raise DataError("the training loader is empty: it yielded no batch")
    x, y = unpack(batch, "the training loader", float_dtype(model))
    model.eval()
    with explained_failure(x):
        output = run(model, moved(x, device))
    model.train()
    return output, y.to(device)
