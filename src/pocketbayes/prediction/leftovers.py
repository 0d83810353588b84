"""Tensors of many draws at once that a network has kept, which are dead once these are over."""

from typing import Any

import torch
from torch import Tensor, nn


def mend_kept(network: nn.Module) -> bool:
    """Whether the network has kept any; it then holds those of the last draw instead."""
    return sum(_mend(vars(module)) for module in network.modules()) > 0


def _mend(held: Any) -> bool:
    """The same of what a dict or list holds, also inside of others."""
    items = held.items() if isinstance(held, dict) else enumerate(held)
    found = False
    for key, value in list(items):
        if isinstance(value, Tensor):
            if _is_dead(value):
                held[key], found = _of_last_draw(value), True
        elif isinstance(value, dict | list):
            found |= _mend(value)
        elif isinstance(value, tuple):
            parts = list(value)
            if _mend(parts):
                made = type(value)
                held[key] = made(*parts) if hasattr(value, "_fields") else made(parts)
                found = True
    return found


def _is_dead(x: Tensor) -> bool:
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(x))


def _of_last_draw(x: Tensor) -> Tensor:
    while _is_dead(x):
        inner = torch._C._functorch.get_unwrapped(x)
        if torch._C._functorch.is_batchedtensor(x):
            inner = inner.select(torch._C._functorch.maybe_get_bdim(x), -1)
        x = inner
    return x
