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

from pocketbayes.posteriors.drawing import inside_other_vmap, is_of_draws

Value = TypeVar("Value")


class _Repetition(NamedTuple):
    """The network's inputs, their versions when they were given, and what is known by now."""

    inputs: tuple[Tensor, ...]
    versions: dict[int, int]
    known: dict[Hashable, Any]


_current: ContextVar[_Repetition | None] = ContextVar("repetition", default=None)


@contextmanager
def repeated_input(*inputs: Tensor) -> Iterator[None]:
    """Inside, without gradients, the network is run on these very tensors again and again."""
    versions = {_place(x): x._version for x in inputs}
    token = _current.set(_Repetition(inputs, versions, {}))
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
    """Whether `x` is (a view of) an input that the network is repeated on, still as it was."""
    repetition = _repetition()
    if repetition is None or is_of_draws(x):
        return False
    return repetition.versions.get(_place(x)) == x._version


def _place(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


def _repetition() -> _Repetition | None:
    if torch.compiler.is_dynamo_compiling() or torch.is_grad_enabled() or inside_other_vmap():
        return None
    return _current.get()
