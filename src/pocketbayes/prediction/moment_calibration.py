"""One factor on the variance that moments give, so that it is that of draws."""

from collections.abc import Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from pocketbayes.errors import DataError, PocketBayesError, require_choice, require_count
from pocketbayes.layers import (
    ESTIMATORS,
    Inputs,
    bayesian_modules,
    mapped,
    members_of,
    moved,
    named_tensors,
    num_examples,
    require_module,
    update_description,
)
from pocketbayes.likelihoods import likelihood_of
from pocketbayes.prediction.draws import drawing, draws_of
from pocketbayes.prediction.faults import require_finite
from pocketbayes.prediction.inputs import float_dtype, input_batches
from pocketbayes.prediction.moment_outputs import output_moments_of

Model = TypeVar("Model", bound=nn.Module)


def calibrate_moments_(
    model: Model,
    data: Any,
    examples: int = 100,
    num_samples: int = 20,
    *,
    generator: torch.Generator | None = None,
    estimator: str | None = None,
    likelihood: str | None = None,
) -> Model:
    """Fits one factor on the variance of `estimator="moments"` to draws of the network, in place.

    Moments take numbers for independent, or positions for fully correlated, where the truth lies
    between. The factor is the variance of draws over that of moments, both summed over examples
    and outputs; logits of classes count by their distance to their mean, which is all that a
    softmax sees. It replaces an earlier one (without one it is 1), is stored in the file, and is
    dropped when `fit`, `prune_` and the like change the model. Nothing is trained.

    Args:
        model: a Bayesian model, or an ensemble.
        data: inputs as in `predict`; training data will do, since targets are passed over.
        examples: how many of them to read at most.
        num_samples: draws for each, at least 2.
        generator: makes it reproducible; see `predict`.
        estimator: the draws to be near to; None: as trained.
        likelihood: as in `predict`.

    Example:
        >>> calibrate_moments_(model, train_loader)
        >>> predict(model, x, estimator="moments")
    """
    require_module(model)
    require_count(examples, "examples")
    require_count(num_samples, "num_samples", 2)
    if estimator is not None:
        require_choice(estimator, "estimator", ESTIMATORS)
    if not any(True for _ in bayesian_modules(model)):
        raise PocketBayesError("this model has no posterior: call bayesianize_(net) first")
    centred = likelihood_of(model, likelihood).kind == "classes"
    drawn = carried = 0.0
    for x in _first(model, data, examples):
        carried += _carried_variance(model, x, centred)
        drawn += _drawn_variance(model, x, num_samples, centred, estimator, generator)
    if not drawn > 0 or not carried > 0:
        raise DataError(
            f"variance of draws {drawn:.3g}, of moments {carried:.3g}: there is no factor between "
            "them. Is anything random in this model, and is there an example in the data?"
        )
    update_description(model, moments_factor=drawn / carried)
    return model


def _first(model: nn.Module, data: Any, examples: int) -> Iterator[Inputs]:
    """The first examples, in batches on the model's device."""
    device, seen = next(model.parameters()).device, 0
    for batch in input_batches(data, examples, float_dtype(model)):
        wanted = mapped(lambda t, left=examples - seen: t[:left], batch)  # type: ignore[misc]
        require_finite(named_tensors(wanted), "the data", seen)
        yield moved(wanted, device)
        seen += num_examples(wanted)
        if seen >= examples:
            return


def _carried_variance(model: nn.Module, x: Inputs, centred: bool) -> float:
    """Of n independent numbers less their mean: (1 - 1/n) times the sum of their variances."""
    total = 0.0
    with drawing(model, "moments", None):
        for member in members_of(model):
            _, variance = output_moments_of(member, x)
            if variance is not None:
                share = 1 - 1 / variance.shape[1] if centred else 1.0
                total += share * float(variance.double().sum())
    return total


def _drawn_variance(
    model: nn.Module,
    x: Inputs,
    num_samples: int,
    centred: bool,
    estimator: str | None,
    generator: torch.Generator | None,
) -> float:
    total = 0.0
    with drawing(model, estimator, generator):
        for member in members_of(model):
            draws: Tensor = draws_of([member] * num_samples, x).double()
            draws = draws - draws.mean(2, keepdim=True) if centred else draws
            total += float(draws.var(0).sum())
    return total
