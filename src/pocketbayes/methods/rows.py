"""Sparse tensors laid end to end, to exchange weights as if they were one."""

from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from pocketbayes.methods.processes import agreed
from pocketbayes.posteriors import Packed
from pocketbayes.sparsity import Exchange, exchanged


class Row(NamedTuple):
    """Some sparse tensors, and what decides which of their units leave and come.

    Attributes:
        posteriors: the tensors, in order.
        scores: how much each active weight matters.
        growth: dense gradients, signed or not.
        share: of the active units to exchange.
    """

    posteriors: list[Packed]
    scores: list[Tensor]
    growth: list[Tensor]
    share: float

    def starts(self) -> list[int]:
        """The first place of each tensor, and the end of the last."""
        return [0, *accumulate(q.num_units for q in self.posteriors)]

    def exchanged(self) -> Exchange:
        """The new places in the whole row, and where each was before."""
        begin = self.starts()
        index = _joined([q.index + at for q, at in zip(self.posteriors, begin, strict=False)])
        borders = [q.borders()[:-1] + at for q, at in zip(self.posteriors, begin, strict=False)] + [
            index.new_tensor(begin[-1:])
        ]
        score = _joined([per_unit(score) for score in self.scores])
        growth = [
            per_unit(q.in_units(g)) for q, g in zip(self.posteriors, self.growth, strict=True)
        ]
        count = min(round(self.share * len(index)), begin[-1] - len(index))
        return exchanged(index, score, _joined(growth), count, torch.cat(borders))

    def parts(self, new: Exchange) -> Iterator[tuple[Packed, Exchange]]:
        """Each tensor with its part of the exchange.

        The first process decides: equal numbers may be ranked differently on different devices.
        """
        places, source = (agreed(tensor) for tensor in new)
        begin = self.starts()
        edges = torch.searchsorted(places, places.new_tensor(begin)).tolist()
        old = [0, *accumulate(len(q.index) for q in self.posteriors)]
        for number, posterior in enumerate(self.posteriors):
            mine = slice(edges[number], edges[number + 1])
            local = (source[mine] - old[number]).clamp_min_(-1)
            yield posterior, Exchange(places[mine] - begin[number], local)


def per_unit(values: Tensor) -> Tensor:
    """One number per unit: the mean size over its weights."""
    return values.abs().flatten(1).mean(1) if values.dim() > 1 else values


def _joined(tensors: list[Tensor]) -> Tensor:
    return torch.cat(tensors) if len(tensors) > 1 else tensors[0]
