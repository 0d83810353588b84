"""Random numbers in traced code, which asks for them as it runs.

To a compiler each is an operation that it cannot look into. A tensor goes through all of them, so
that they stay in their order.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from pocketbayes.posteriors.drawing import Drawing, current_drawing
from pocketbayes.posteriors.randomness import drawn_bernoulli, drawn_normal, drawn_uniform

_SCHEMAS = {
    "normal": "(Tensor order, int count, ScalarType dtype, Device device) -> (Tensor, Tensor)",
    "bernoulli": "(Tensor order, Tensor chances) -> (Tensor, Tensor)",
    "uniform": "(Tensor order, SymInt[] shape, Device device) -> (Tensor, Tensor)",
}


class Tape:
    """What a drawing whose passes are traced takes its numbers from."""

    def __init__(self) -> None:
        self.order = torch.zeros(1)
        self._next, self._operations = self.order, operations()

    def normal(self, count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """So many standard normal numbers."""
        return self._noted(self._operations.normal(self._next, count, dtype, device))

    def bernoulli(self, chances: Tensor) -> Tensor:
        """1 with these chances, else 0."""
        return self._noted(self._operations.bernoulli(self._next, chances))

    def uniform(self, shape: Sequence[int], device: torch.device) -> Tensor:
        """Numbers between 0 and 1."""
        return self._noted(self._operations.uniform(self._next, shape, device))

    def _noted(self, made: tuple[Tensor, Tensor]) -> Tensor:
        numbers, self._next = made
        return numbers


@cache
def operations() -> Any:
    """The operations, by name."""
    library: Any = torch.library.Library("pocketbayes", "FRAGMENT")  # type: ignore[no-untyped-call]
    fake: dict[str, Any] = _FAKE
    for name, schema in _SCHEMAS.items():
        library.define(name + schema, tags=(torch.Tag.nondeterministic_seeded,))
        library.impl(name, _RUN[name], "CompositeExplicitAutograd")
        torch.library.register_fake(f"pocketbayes::{name}", fake[name], lib=library)
    _libraries.append(library)
    return torch.ops.pocketbayes


_libraries: list[Any] = []  # which take their operations with them


def _drawing() -> Drawing:
    drawing = current_drawing()
    assert drawing is not None, "traced code runs inside of a drawing"
    return drawing


def _normal(
    order: Tensor, count: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    return drawn_normal(_drawing(), count, dtype, device), order.clone()


def _bernoulli(order: Tensor, chances: Tensor) -> tuple[Tensor, Tensor]:
    return drawn_bernoulli(_drawing(), chances), order.clone()


def _uniform(order: Tensor, shape: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor]:
    return drawn_uniform(_drawing(), shape, device), order.clone()


def _fake_normal(
    order: Tensor, count: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    return torch.empty(count, dtype=dtype, device=device), torch.empty_like(order)


def _fake_bernoulli(order: Tensor, chances: Tensor) -> tuple[Tensor, Tensor]:
    made = torch.empty(chances.shape, dtype=chances.dtype, device=chances.device)
    return made, torch.empty_like(order)


def _fake_uniform(
    order: Tensor, shape: Sequence[int], device: torch.device
) -> tuple[Tensor, Tensor]:
    return torch.empty(tuple(shape), device=device), torch.empty_like(order)


_RUN = {"normal": _normal, "bernoulli": _bernoulli, "uniform": _uniform}
_FAKE = {"normal": _fake_normal, "bernoulli": _fake_bernoulli, "uniform": _fake_uniform}
