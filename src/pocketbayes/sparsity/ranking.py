"""Which units of several tensors are kept, when those of the largest scores are.

Pure functions. A unit is what is kept or dropped as a whole: mostly a single weight.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pocketbayes.sparsity.exchange import with_best_of_each


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


def units_above(score: Tensor, least: float) -> Tensor:
    """A mask of the units that score at least so much; the best one is kept in any case."""
    mask = score >= least
    mask[score.argmax()] = True
    return mask
