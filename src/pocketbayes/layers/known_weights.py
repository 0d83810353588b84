"""Whether a network still has the weights that its one-pass head was taught with.

A look at places and versions of the tensors, and at some of their values, tells at once that
nothing has changed. Otherwise a sketch decides, of which each part w of a tensor gives

    s = sum_j a_j w_j with fixed a_j in [-1, 1], and |w|^2.

It is the same on another device, and almost the same in another type.
"""

import math
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pocketbayes.layers.walking import modules_of
from pocketbayes.posteriors import version_of

_PART = 1 << 18  # values of a part
_ROUNDING = 1e-9  # of sums in float64, relative to |w|
_EPSILONS = 4.0  # of another type: rounding moves s by about 0.2 eps |w|
_VALUES = 32  # of each tensor that are looked at
_IDLE = ("prior_std", "num_batches_tracked")  # no prediction depends on them


class Sketch(NamedTuple):
    """Of one tensor: its type and shape, and the two sums of each part, (parts, 2)."""

    dtype: torch.dtype
    shape: torch.Size
    sums: Tensor


class KnownWeights:
    """The weights of a network as they were; `beside` names tensors of its root that do not count.

    Without a root, weights that no network has.
    """

    def __init__(self, root: nn.Module | None, beside: Collection[str]) -> None:
        self._beside = beside
        self._sketches = [] if root is None else sketches_of(weights_of(root, beside))
        self._seen = None if root is None else (_look(weights_of(root, beside)), True)
        self.told = False  # whether someone was warned that they have changed

    def are_in(self, root: nn.Module) -> bool:
        """Whether the network has these weights, but for the rounding of another type."""
        weights = weights_of(root, self._beside)
        look = _look(weights)
        seen = self._seen
        if seen is not None and seen[0] == look:
            return seen[1]
        now = sketches_of(weights)
        same = len(now) == len(self._sketches) and all(map(_is_same, self._sketches, now))
        if same:
            self._sketches, self.told = now, False
        self._seen = look, same
        return same

    def __getstate__(self) -> dict[str, Any]:
        """A copy has tensors in other places, and must look for itself."""
        return self.__dict__ | {"_seen": None}


def weights_of(root: nn.Module, beside: Collection[str]) -> list[Tensor]:
    """All that predictions depend on: parameters and buffers, but caches and counters."""
    found = list[Tensor]()
    for module in modules_of(root):
        left_out = beside if module is root else ()
        for name, tensor in module._parameters.items():
            if tensor is not None and name not in left_out:
                found.append(tensor)
        for name, buffer in module._buffers.items():
            if buffer is None or name in _IDLE or name in module._non_persistent_buffers_set:
                continue
            counts_calls = buffer.dim() == 0 and not buffer.is_floating_point()
            if not counts_calls and name not in left_out:
                found.append(buffer)
    return found


class _Look:
    """Places, versions and some values of tensors; equal ones are of the same weights.

    Fused optimisers and writes into `.data` raise no version, so values are looked at as well.
    """

    def __init__(self, places: list[tuple[int, int]], values: list[Tensor]) -> None:
        self.places, self.values = places, values

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Look)
            and self.places == other.places
            and len(self.values) == len(other.values)
            and all(map(torch.equal, self.values, other.values))
        )

    __hash__ = None  # type: ignore[assignment]


@torch.no_grad()
def _look(weights: list[Tensor]) -> _Look:
    places = [(w.data_ptr(), version_of(w)) for w in weights]
    views: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for w in weights:
        size = w.numel()
        if size and _is_one_block(w):
            step = _step(size, w.shape[-1] if w.dim() else 1)
            view = w.as_strided((min(_VALUES, size),), (step,))
            views.setdefault((w.device, w.dtype), []).append(view)
    return _Look(places, [torch.cat(some) for some in views.values()])


@lru_cache(maxsize=1024)
def _step(size: int, width: int) -> int:
    """Between values that are looked at: over the whole tensor, and in every column of it."""
    step = max(1, size // _VALUES)
    while step > 1 and math.gcd(step, width) > 1:
        step -= 1
    return step


def _is_one_block(w: Tensor) -> bool:
    if w.is_contiguous():
        return True
    return w.dim() == 4 and w.is_contiguous(memory_format=torch.channels_last)


@torch.no_grad()
def sketches_of(weights: list[Tensor]) -> list[Sketch]:
    """The sketch of each tensor, on the CPU."""
    factors: dict[torch.device, Tensor] = {}

    def factors_on(device: torch.device) -> Tensor:
        if device not in factors:
            count = torch.arange(1, _PART + 1, device=device, dtype=torch.float64)
            factors[device] = count.cos()
        return factors[device]

    found = [_sums(w, factors_on) for w in weights]
    return [Sketch(w.dtype, w.shape, s.cpu()) for w, s in zip(weights, found, strict=True)]


def _sums(weight: Tensor, factors_on: Callable[[torch.device], Tensor]) -> Tensor:
    values = torch.view_as_real(weight) if weight.is_complex() else weight
    factors, rows = factors_on(weight.device), []
    for part in torch.split(values.reshape(-1), _PART):
        wide = part.double()
        rows.append(torch.stack([(wide * factors[: len(wide)]).sum(), wide.square().sum()]))
    return torch.stack(rows)


def _is_same(old: Sketch, new: Sketch) -> bool:
    """Whether the sums agree, as far as the coarser of the two types lets them."""
    if old.shape != new.shape:
        return False
    kinds = {old.dtype, new.dtype}
    coarse = max((torch.finfo(k).eps for k in kinds if k.is_floating_point), default=0.0)
    tolerance = _ROUNDING if len(kinds) == 1 else _EPSILONS * coarse
    (was, size), (now, _) = old.sums.T, new.sums.T
    return bool(((was - now).abs() <= tolerance * size.sqrt()).all())
