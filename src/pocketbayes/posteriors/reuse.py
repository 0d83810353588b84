"""What need not be computed again when a network runs on the same input many times.

From one sample of a prediction to the next the posteriors stay the same, and so do the output
moments of the layers that read the input itself; in all later layers the input is random.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from pocketbayes.posteriors.randomness import inside_vmap

Value = TypeVar("Value")


class _Repetition(NamedTuple):
    """The network's input, its version when it was given, and what is known by now."""

    x: Tensor
    version: int
    known: dict[Hashable, Any]


_current: ContextVar[_Repetition | None] = ContextVar("repetition", default=None)


@contextmanager
def repeated_input(x: Tensor) -> Iterator[None]:
    """Inside, without gradients, the network is run on this very `x` again and again."""
    token = _current.set(_Repetition(x, x._version, {}))
    try:
        yield
    finally:
        _current.reset(token)


def remembered(key: Hashable, compute: Callable[[], Value]) -> Value:
    """What `compute` gives; while the same network is repeated, computed once for each key."""
    repetition = _repetition()
    if repetition is None:
        return compute()
    if key not in repetition.known:
        repetition.known[key] = compute()
    return repetition.known[key]  # type: ignore[no-any-return]


def recalled(key: Hashable) -> Any:
    """What was computed for this key since the repetition began; None: nothing."""
    repetition = _repetition()
    return None if repetition is None else repetition.known.get(key)


def is_repeated(x: Tensor) -> bool:
    """Whether `x` is (a view of) the input that the network is repeated on, still as it was."""
    repetition = _repetition()
    return (
        repetition is not None
        and x.untyped_storage().data_ptr() == repetition.x.untyped_storage().data_ptr()
        and x._version == repetition.version
    )


def _repetition() -> _Repetition | None:
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or inside_vmap():
        return None
    return _current.get()
