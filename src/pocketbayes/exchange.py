"""Which weights of a sparse tensor leave and which come, at equal number.

Pure functions on packed arrays: `index` holds the sorted places of the active weights in the
flattened tensor. No full sort of the dense tensor: a threshold from a sample leaves few candidates.
"""

from typing import NamedTuple

import torch
from torch import Tensor

_STRIDE = 61  # every 61st gradient estimates the threshold; a prime, to miss no regular pattern
_SMALL = 1 << 16


class Exchange(NamedTuple):
    """The new places, and for each its position in the old packing; -1 for a newcomer."""

    places: Tensor
    source: Tensor


def exchanged(
    index: Tensor, score: Tensor, growth: Tensor, count: int, outputs: Tensor | None = None
) -> Exchange:
    """Drops the `count` active weights of lowest score, adds as many of largest growth.

    Args:
        index: places of the active weights, sorted.
        score: of each active weight.
        growth: of every weight of the tensor, flat, not negative; that of weights which stay is
            not looked at. A weight just dropped may come back, and then keeps its state.
        count: how many to exchange.
        outputs: the output each active weight belongs to. The last weight of an output stays, and
            fewer are exchanged if there is no other left to drop.
    """
    dropped = _lowest(score, count, outputs)
    if len(dropped) == 0:
        return Exchange(index, torch.arange(len(index), device=index.device))
    stays = torch.ones_like(index, dtype=torch.bool)
    stays[dropped] = False
    kept = index[stays]
    grown = largest_outside(growth, kept, len(dropped))
    merged = merged_sorted(kept, grown)
    return Exchange(merged, positions_in(index, merged))


def _lowest(score: Tensor, count: int, outputs: Tensor | None) -> Tensor:
    """Positions of the `count` lowest scores such that no output loses its last weight."""
    dropped = torch.topk(score, count, largest=False, sorted=False).indices
    if outputs is None or count == 0:
        return dropped
    had = outputs.bincount()
    lost = outputs[dropped].bincount(minlength=len(had))
    if not bool(((had == lost) & (had > 0)).any()):
        return dropped
    shielded = with_best_of_each(score, outputs)
    count = min(count, int((shielded < torch.inf).sum()))
    return torch.topk(shielded, count, largest=False, sorted=False).indices


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
    raised = with_best_of_each(score, outputs)
    return torch.topk(raised, count, sorted=False).indices.sort().values


def largest_outside(values: Tensor, taken: Tensor, count: int) -> Tensor:
    """Sorted places of the `count` largest values at places that are not in `taken`."""
    values = values.index_fill(0, taken, -1.0)
    candidates = None
    if len(values) > _SMALL and 4 * count < len(values):
        candidates = _above_estimated_threshold(values, count)
    if candidates is None:
        found = torch.topk(values, count, sorted=False).indices
    else:
        found = candidates[torch.topk(values[candidates], count, sorted=False).indices]
    return found.sort().values


def _above_estimated_threshold(values: Tensor, count: int) -> Tensor | None:
    """Places of somewhat more than `count` largest values; None if the estimate was too high."""
    sample = values[::_STRIDE]
    wanted = min(len(sample), int(1.2 * count / _STRIDE) + 50)
    threshold = torch.topk(sample, wanted, sorted=False).values.min()
    found = (values >= threshold).nonzero().flatten()
    return found if len(found) >= count else None


def merged_sorted(one: Tensor, other: Tensor) -> Tensor:
    """The union of two sorted lists without common entries, sorted, in linear memory."""
    places = torch.searchsorted(one, other) + torch.arange(len(other), device=other.device)
    merged = one.new_empty(len(one) + len(other))
    from_one = torch.ones_like(merged, dtype=torch.bool)
    from_one[places] = False
    merged[places] = other
    merged[from_one] = one
    return merged


def positions_in(index: Tensor, places: Tensor) -> Tensor:
    """For each place its position in the sorted `index`; -1 if it is not there."""
    found = torch.searchsorted(index, places).clamp_max_(len(index) - 1)
    return torch.where(index[found] == places, found, -1)


def repacked(values: Tensor, source: Tensor, newcomer: float) -> Tensor:
    """Packed values, or rows of values, in their new order; `newcomer` where one is new."""
    moved = values[source.clamp_min(0)]
    is_new = (source < 0).view(-1, *[1] * (values.dim() - 1))
    return moved.masked_fill_(is_new, newcomer)
