"""Which units of several tensors are kept, when those of the largest scores are.

Pure functions. A unit is what is kept or dropped as a whole: mostly a single weight.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from pocketbayes.errors import PocketBayesError
from pocketbayes.sparsity.exchange import with_best_of_each

_LARGEST = 1e30  # of scores, and of the factors that are tried over the least
_NEAR, _CLOSE = 0.995, 1 + 1e-9  # cost over its limit, and factors, at which the search ends


class Ranking(NamedTuple):
    """The units of several tensors, numbered through, from best to worst.

    Attributes:
        order: numbers of the units; the best of every tensor come first, then all others.
        weights: how many weights the first unit holds, the first two, and so on.
        lengths: units of each tensor.
    """

    order: Tensor
    weights: Tensor
    lengths: list[int]

    @property
    def num_weights(self) -> int:
        """Weights of all units."""
        return int(self.weights[-1])


def ranked(scores: Sequence[Tensor], sizes: Sequence[int]) -> Ranking:
    """Units by falling score, equals by their place.

    Args:
        scores: of the units, one flat tensor for each tensor of weights.
        sizes: weights of a unit, for each of them.
    """
    lengths = [len(score) for score in scores]
    score = torch.cat([score.double() for score in scores])
    owner = torch.arange(len(scores)).repeat_interleave(torch.tensor(lengths)).to(score.device)
    order = with_best_of_each(score, owner).argsort(descending=True, stable=True)
    size = torch.tensor(sizes, device=score.device)[owner]
    return Ranking(order, size[order].cumsum(0), lengths)


def best_units(ranking: Ranking, weights: int) -> list[Tensor]:
    """For each tensor a mask of its units: the best that hold at most so many weights in all.

    Every tensor keeps its best unit, even if that makes more.
    """
    number = max(int((ranking.weights <= weights).sum()), len(ranking.lengths))
    mask = torch.zeros_like(ranking.order, dtype=torch.bool)
    mask.index_fill_(0, ranking.order[:number], True)
    return list(torch.split(mask, ranking.lengths))


def affordable_units(
    scores: Sequence[Tensor],
    sizes: Sequence[int],
    prices: Sequence[float],
    weights: int,
    most: float,
) -> list[Tensor]:
    """As `best_units`: the best that hold so many weights and cost at most `most`.

    They have the largest score - factor * price. The factor is 0 where that is cheap enough; else
    the least, to half a percent of the cost. If all units have one size, no other choice of as many
    that costs no more has a larger sum of scores (Everett 1963, Lagrange multipliers).

    Args:
        scores: of the units, one flat tensor for each tensor of weights; their sums are compared.
        sizes: weights of a unit, for each of them.
        prices: of one weight, for each of them.
        weights: how many to keep; what `best_units` says of them holds here.
        most: what all that is kept may cost.
    """
    values = [score.double().clamp(-_LARGEST, _LARGEST) for score in scores]

    def kept(factor: float) -> tuple[list[Tensor], float]:
        worth = [value - factor * price for value, price in zip(values, prices, strict=True)]
        masks = best_units(ranked(worth, sizes), weights)
        each = zip(masks, sizes, prices, strict=True)
        return masks, sum(int(mask.sum()) * size * price for mask, size, price in each)

    masks, cost = kept(0.0)
    if cost <= most:
        return masks
    high = _deciding_factor(values, prices)
    low = high / _LARGEST
    masks, cost = kept(high)
    if cost > most:
        raise PocketBayesError(f"{weights:,} weights cost {cost:,.0f} at least, not {most:,.0f}")
    while cost < _NEAR * most and high > _CLOSE * low:
        middle = sqrt(low) * sqrt(high)
        found = kept(middle)
        if found[1] <= most:
            high, (masks, cost) = middle, found
        else:
            low = middle
    return masks


def _deciding_factor(values: Sequence[Tensor], prices: Sequence[float]) -> float:
    """At which a unit goes before all that cost more, whatever the scores."""
    gap = min((b - a for a, b in pairwise(sorted(set(prices)))), default=1.0)
    most, least = max(float(v.max()) for v in values), min(float(v.min()) for v in values)
    return (most - least + 1) / gap


def units_above(score: Tensor, least: float) -> Tensor:
    """A mask of the units that score at least so much; the best one is kept in any case."""
    mask = score >= least
    mask[score.argmax()] = True
    return mask
