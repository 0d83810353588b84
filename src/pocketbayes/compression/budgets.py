"""How much can go before a model gets worse than allowed."""

from collections.abc import Callable, Iterable, Sequence
from math import sqrt
from typing import Any

import torch
from torch import nn

from pocketbayes.errors import PocketBayesError, require_count
from pocketbayes.prediction import Record, evaluate

_CLOSE = 1.02  # ratio of densities at which the search ends


def measurement(
    model: nn.Module, loader: Iterable[Any], num_samples: int, seed: int
) -> Callable[[], Record]:
    """Measures the model as it is at that moment, always on the same batches and draws."""
    require_count(seed, "seed", least=0)
    batches = list(loader)

    def measure() -> Record:
        return evaluate(model, batches, num_samples, generator=torch.Generator().manual_seed(seed))

    return measure


def least_density(is_good: Callable[[float], bool], least: float, tops: Sequence[float]) -> float:
    """The least good density, to 2%, by bisection of its logarithm.

    Exact if every density above a good one is good; what it returns is good in any case.

    Args:
        is_good: tells whether a density is.
        least: where the search ends.
        tops: densities to begin from; the first good one is taken.
    """
    high = next((density for density in tops if is_good(density)), None)
    if high is None:
        raise PocketBayesError(
            "even the least pruned model costs more than the budget: allow more, "
            "or say density= and train what is left"
        )
    while high > _CLOSE * least:
        middle = sqrt(least * high)
        if is_good(middle):
            high = middle
        else:
            least = middle
    return high


def costs_at_most(budget: float, before: Record, after: Record) -> bool:
    """Whether accuracy fell, or the RMSE rose by a share, of at most the budget."""
    rounding = 1e-9
    if before.accuracy is not None and after.accuracy is not None:
        return after.accuracy >= before.accuracy - budget - rounding
    return _rmse(after) <= _rmse(before) * (1 + budget + rounding)


def _rmse(record: Record) -> float:
    assert record.rmse is not None
    return record.rmse
