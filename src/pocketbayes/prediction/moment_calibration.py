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
    first_parameter,
    mapped,
    members_of,
    moved,
    named_tensors,
    num_examples,
    parts_of,
    require_module,
    update_description,
)
from pocketbayes.likelihoods import likelihood_of
from pocketbayes.prediction.draws import drawing, draws_of
from pocketbayes.prediction.faults import require_finite
from pocketbayes.prediction.inputs import float_dtype, input_batches
from pocketbayes.prediction.moment_outputs import output_moments_of

Model = TypeVar("Model", bound=nn.Module)
_AT_A_TIME = 20  # examples that share draws of whole weights; other ones have draws of their own


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
    between. The factor is the variance of draws over that of moments, summed over examples and
    outputs. Logits count as much as probabilities follow them: with F = diag(p) - p p^T their part
    is tr(F Cov), which to second order is twice the mutual information of label and weights. It
    replaces an earlier one (without one it is 1), is stored in the file, and is dropped when `fit`,
    `prune_` and the like change the model. Nothing is trained.

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
    kind = likelihood_of(model, likelihood).kind
    drawn = carried = 0.0
    for x in _first(model, data, examples):
        for member in members_of(model):
            with drawing(model, "moments", None):
                _, variance = output_moments_of(member, x)
            with drawing(model, estimator, generator):
                draws = draws_of([member] * num_samples, x).double()
            drawn += float(spread_of_draws(draws, kind))
            if variance is not None:
                carried += float((fisher_weights(draws, kind) * variance).sum())
    if not drawn > 0 or not carried > 0:
        raise DataError(
            f"variance of draws {drawn:.3g}, of moments {carried:.3g}: there is no factor between "
            "them. Is anything random in this model, and is there an example in the data?"
        )
    update_description(model, moments_factor=drawn / carried)
    return model


def _first(model: nn.Module, data: Any, examples: int) -> Iterator[Inputs]:
    """The first examples, in small batches on the model's device."""
    device, seen = first_parameter(model).device, 0
    for batch in input_batches(data, examples, float_dtype(model)):
        wanted = mapped(lambda t, left=examples - seen: t[:left], batch)  # type: ignore[misc]
        require_finite(named_tensors(wanted), "the data", seen)
        yield from parts_of(moved(wanted, device), _AT_A_TIME)
        seen += num_examples(wanted)
        if seen >= examples:
            return


def fisher_weights(draws: Tensor, kind: str) -> Tensor:
    """The diagonal of F at the mean probabilities, p (1 - p); 1 for values."""
    if kind == "values":
        return torch.ones_like(draws[0])
    probs = (draws.softmax(2) if kind == "classes" else draws.sigmoid()).mean(0)
    return probs * (1 - probs)


def spread_of_draws(draws: Tensor, kind: str) -> Tensor:
    """The sum of tr(F Cov) over examples, of draws (S, N, ...), without bias.

    For classes it is the mean over draws of sum_i p_i d_i^2 - (sum_i p_i d_i)^2, d = draw - mean.
    """
    if kind != "classes":
        return (fisher_weights(draws, kind) * draws.var(0)).sum()
    probs, apart = draws.softmax(2).mean(0), draws - draws.mean(0)
    squares = (probs * apart.square()).sum() - (probs * apart).sum(2).square().sum()
    return squares / (len(draws) - 1)
