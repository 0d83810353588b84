"""Which weights of a sparse tensor leave and which come, at equal number.

Pure functions on packed arrays: `index` holds the sorted places of the active weights in the
flattened tensor. The dense tensor is never sorted: a threshold from a sample leaves few candidates.
"""

from math import sqrt
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

_STRIDE = 61  # every 61st value makes the sample; a prime, to miss no regular pattern
_SMALL = 1 << 14
_WORD = 8


class Exchange(NamedTuple):
    """The new places, and for each its position in the old packing; -1 for a newcomer."""

    places: Tensor
    source: Tensor


def exchanged(
    index: Tensor, score: Tensor, growth: Tensor, count: int, borders: Tensor | None = None
) -> Exchange:
    """Drops the `count` active weights of lowest score, adds as many of largest |growth|.

    Args:
        index: places of the active weights, sorted.
        score: of each active weight.
        growth: of every weight of the tensor, flat; that of weights which stay is not looked at.
            A weight just dropped may come back, and then keeps its state.
        count: how many to exchange.
        borders: the first place of each output, rising, and the tensor's end. The last weight of
            an output stays, and fewer are exchanged if there is no other left to drop.
    """
    stays = ~lowest(score, count)
    if borders is not None and _cuts_off(index, stays, borders):
        shielded = with_best_of_each(score, torch.bucketize(index, borders, right=True) - 1)
        stays = ~lowest(shielded, min(count, int((shielded < torch.inf).sum())))
    kept = places_of(stays)
    number = len(index) - len(kept)
    if number == 0:
        return Exchange(index, torch.arange(len(index), device=index.device))
    grown = largest_outside(growth, index.index_select(0, kept), number)
    return _merged(index, stays, kept, grown)


def _cuts_off(index: Tensor, stays: Tensor, borders: Tensor) -> bool:
    """Whether an output has a weight now, and none among those that stay."""
    edges = torch.searchsorted(index, borders)
    left = _counts_before(stays)[edges].diff()
    return bool(((left == 0) & (edges.diff() > 0)).any())


def _counts_before(mask: Tensor) -> Tensor:
    """How many entries are true before each position, and before the end."""
    return F.pad(mask.cumsum(0), (1, 0))


def largest_outside(values: Tensor, taken: Tensor, number: int) -> Tensor:
    """Sorted places of the `number` largest |values| at places that are not in `taken`."""
    sizes = values.abs().index_fill_(0, taken, -1.0)
    candidates = _above_estimated_threshold(sizes, number)
    if candidates is None:
        return places_of(lowest(sizes.nan_to_num_(nan=0.0).neg_(), number))
    chosen = lowest(sizes.index_select(0, candidates).neg_(), number)
    return candidates.index_select(0, places_of(chosen))


def _above_estimated_threshold(values: Tensor, number: int) -> Tensor | None:
    """Places of the largest values, somewhat more than `number`; None if that is not shorter."""
    sample = values[::_STRIDE]
    expected = number * len(sample) / len(values)
    wanted = int(expected + 5 * sqrt(expected)) + 5
    if len(values) <= _SMALL or 3 * wanted > len(sample):
        return None
    threshold = float(torch.topk(sample, wanted, sorted=False).values.min())
    found = places_of(_at_least(values, threshold))
    return found if len(found) >= number else None


def _at_least(values: Tensor, threshold: float) -> Tensor:
    if values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64):
        return torch.from_numpy(values.numpy() >= threshold)  # torch takes twice as long on ARM
    return values >= threshold


def lowest(values: Tensor, count: int) -> Tensor:
    """Marks the `count` lowest values; of equals at the border, any."""
    found = torch.topk(values, count, largest=False, sorted=False).indices
    return torch.zeros_like(values, dtype=torch.bool).index_fill_(0, found, True)


def places_of(mask: Tensor) -> Tensor:
    """Where a flat mask is true."""
    if mask.device.type == "cpu" and len(mask) < 10 * _SMALL:
        return torch.from_numpy(np.flatnonzero(mask.numpy()))  # torch takes twice as long
    if len(mask) % _WORD:
        return mask.nonzero().flatten()
    words = mask.view(torch.int64).nonzero().flatten()  # eight at once: five times faster for few
    inside = mask.view(-1, _WORD).index_select(0, words).nonzero()
    return words[inside[:, 0]] * _WORD + inside[:, 1]


def _merged(index: Tensor, stays: Tensor, kept: Tensor, grown: Tensor) -> Exchange:
    """The weights that stay, at positions `kept`, and those that come, in order of their places."""
    position = torch.searchsorted(index, grown)
    known = index.index_select(0, position.clamp(max=len(index) - 1))
    slots = _counts_before(stays).index_select(0, position)
    slots += torch.arange(len(grown), device=grown.device)
    free = places_of(torch.ones_like(stays).index_fill_(0, slots, False))
    places = torch.empty_like(index).index_copy_(0, slots, grown)
    source = torch.empty_like(index).index_copy_(0, slots, position.where(known == grown, -1))
    places.index_copy_(0, free, index.index_select(0, kept))
    return Exchange(places, source.index_copy_(0, free, kept))


def with_best_of_each(score: Tensor, outputs: Tensor) -> Tensor:
    """Scores in which the best of every output is infinite; of equals, the first."""
    best = score.new_full((int(outputs.max()) + 1,), -torch.inf)
    best.scatter_reduce_(0, outputs, score, "amax")
    winners = (score == best[outputs]).nonzero().flatten()
    first = winners.new_full((len(best),), len(score))
    first.scatter_reduce_(0, outputs[winners], winners, "amin")
    return score.index_fill(0, first[first < len(score)], torch.inf)


def largest_of_all(score: Tensor, count: int, outputs: Tensor) -> Tensor:
    """Sorted places of the `count` largest scores, with at least one in every output."""
    return places_of(lowest(-with_best_of_each(score, outputs), count))


def repacked(values: Tensor, source: Tensor, fresh: Tensor, newcomer: float) -> Tensor:
    """Packed values, or rows of values, in their new order.

    Args:
        values: in the old order.
        source: old position of each; any for those in `fresh`.
        fresh: positions of newcomers.
        newcomer: their value.
    """
    return values.index_select(0, source).index_fill_(0, fresh, newcomer)
