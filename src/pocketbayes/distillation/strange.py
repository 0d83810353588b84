"""Inputs unlike the data, made from a batch of it: what draws say there is taught as well."""

import torch
from torch import Tensor

from pocketbayes.layers import HeadInputs, Inputs, mapped, num_examples

_ONE_IN = 4  # examples of a batch
_FARTHEST = 2.0  # towards features of others; -1 is as far on the other side
_MOST = 1e3  # times the largest number of the data, that a network may give for such inputs


def num_strange(examples: int) -> int:
    """How many of a batch's examples, its last ones, `with_strange` replaces."""
    return examples // _ONE_IN


def with_strange(x: Inputs) -> Inputs:
    """The batch, with its last examples made strange; integers, such as tokens, stay."""
    count = num_strange(num_examples(x))
    return mapped(lambda tensor: _with_strange_last(tensor, count), x) if count else x


def _with_strange_last(tensor: Tensor, count: int) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    kept = len(tensor) - count
    return torch.cat([tensor[:kept], strange(tensor)[kept:]])


def strange(x: Tensor) -> Tensor:
    """x + t (x' - x): each feature of x' is that of another example, t in [-1, 2] of the example.

    Features keep the values that they have for t = 1, and lose what they have in common. Those
    that are whole numbers in all examples may be indices of categories: t = 1 for them.
    """
    flat = x.flatten(1) if x.dim() > 1 else x.unsqueeze(1)
    others = flat.gather(0, torch.rand(flat.shape, device=x.device).argsort(0))
    far = torch.rand(len(flat), 1, device=x.device, dtype=x.dtype) * (_FARTHEST + 1) - 1
    is_whole = (flat == flat.round()).all(0)
    return torch.where(is_whole, others, flat + far * (others - flat)).view_as(x)


def without_excess(given: HeadInputs, draws: Tensor, count: int) -> tuple[HeadInputs, Tensor]:
    """Where the last `count` rows have numbers beyond all measure, or NaN, rows of the data."""
    rows = draws.shape[1]
    kept = rows - count
    tensors = [part for part in (*given, draws.movedim(1, 0).flatten(1)) if part is not None]
    bears = torch.stack([_is_moderate(part, kept) for part in tensors]).all(0)
    own = torch.arange(rows, device=draws.device)
    row = torch.where(bears | (own < kept), own, own % kept)
    return HeadInputs(*(None if part is None else part[row] for part in given)), draws[:, row]


def _is_moderate(rows: Tensor, kept: int) -> Tensor:
    sizes = rows.abs().amax(1)
    return sizes <= _MOST * sizes[:kept].amax()
