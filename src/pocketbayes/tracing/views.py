"""Rules of operations that only move numbers about."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pocketbayes.tracing.value import (
    RULES,
    Traced,
    as_traced,
    first_traced,
    not_possible,
    rule,
)

_VIEWS = (
    "permute", "transpose", "swapaxes", "swapdims", "movedim", "moveaxis", "t", "T", "mT",
    "squeeze", "unsqueeze", "expand", "expand_as", "broadcast_to", "getitem", "select", "narrow",
    "chunk", "split", "tensor_split", "unbind",
)  # fmt: skip
_SAME = (
    "contiguous", "clone", "detach", "to", "type", "type_as", "float", "double", "half", "bfloat16",
    "cpu", "cuda", "positive", "pos", "requires_grad", "alias", "view_of", "long", "int",
)  # fmt: skip


class Source(NamedTuple):
    """Where an axis of a view comes from: axis, first place, step, number; axis None: from none."""

    axis: int | None
    start: int
    step: int
    size: int


def _viewed(func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Does the same to a tensor without numbers, whose strides tell what became of each axis."""
    if func.__name__.endswith("_") and not func.__name__.startswith("_"):
        raise not_possible(f"{func.__name__}, which changes a shape in place")
    if func.__name__ == "expand_as":
        x, func, args = as_traced(x, first_traced(x, *args).recorder), Tensor.expand, args[0].shape
    if not isinstance(x, Traced) or any(isinstance(a, Tensor) for a in _leaves(args[:1])):
        raise not_possible(f"the operation {func.__name__!r} by an index that is a tensor")
    strides = [math.prod(n + 1 for n in x.shape[i + 1 :]) for i in range(x.dim())]
    probe = torch.empty_strided(x.shape, strides, device="meta")
    found = func(probe, *args, **kwargs)
    if isinstance(found, Tensor):
        return _moved(x, probe, found, func.__name__)
    return tuple(_moved(x, probe, view, func.__name__) for view in found)


RULES.update(dict.fromkeys(_VIEWS, _viewed))


def _leaves(args: Sequence[Any]) -> list[Any]:
    return [a for arg in args for a in (arg if isinstance(arg, list | tuple) else (arg,))]


def _moved(x: Traced, probe: Tensor, view: Tensor, name: str) -> Traced:
    """Slices, then one permutation, one reshape, one broadcast: those that are needed."""
    if view.untyped_storage()._cdata != probe.untyped_storage()._cdata:
        raise not_possible(f"the operation {name!r} by such an index")
    sources = [_source(probe, n, s, name) for n, s in zip(view.shape, view.stride(), strict=True)]
    starts, rest = [], view.storage_offset()
    for stride in probe.stride():
        starts.append(rest // stride)
        rest %= stride
    used = {s.axis: s for s in sources if s.axis is not None}
    if len(used) < sum(s.axis is not None for s in sources):
        raise not_possible(f"the operation {name!r}")
    if x.batch is not None and used.get(x.batch) != (x.batch, 0, 1, x.recorder.batch):
        raise not_possible(f"the operation {name!r}, which picks some of the examples")
    for axis, size in enumerate(x.shape):
        step, count = (used[axis].step, used[axis].size) if axis in used else (1, 1)
        if axis != x.batch and count != size:
            x = x.emit("slice", x.axis(axis), starts[axis], step, count)
    return _arranged(x, sources)


def _source(probe: Tensor, size: int, stride: int, name: str) -> Source:
    """By its stride: that of the axis it comes from, times a step."""
    if size == 1 or stride == 0:
        return Source(None, 0, 0, size)
    for axis, own in enumerate(probe.stride()):
        if own <= stride:
            if stride % own:
                raise not_possible(f"the operation {name!r}")
            return Source(axis, 0, stride // own, size)
    raise not_possible(f"the operation {name!r}")


def _arranged(x: Traced, sources: list[Source]) -> Traced:
    """Axes in the order of their sources; others are broadcast."""
    new_batch = next(
        (
            place
            for place, s in enumerate(sources)
            if (s.axis == x.batch and x.batch is not None)
            or (x.batch is None and s.axis is None and s.size == x.recorder.batch)
        ),
        None,
    )
    order = [x.axis(s.axis) for s in sources if s.axis is not None and s.axis != x.batch]
    if order != sorted(order):
        others = [axis for axis in range(len(x.each)) if axis not in order]
        x = x.emit("permute", (*order, *others))
    final = [s for place, s in enumerate(sources) if place != new_batch]
    x = x.reshaped([1 if s.axis is None else s.size for s in final], new_batch)
    wide = tuple(s.size for s in final)
    return x if wide == x.each else x.emit("expand", wide)


@rule("iter")
def _iter(_: Any, x: Traced) -> Any:
    return iter(torch.unbind(x))


@rule("view", "reshape", "flatten", "unflatten", "ravel", "view_as", "reshape_as")
def _reshaped(func: Any, x: Traced, *args: Any, **kwargs: Any) -> Traced:
    """The axis of examples must stay whole, with as many numbers before it."""
    other = first_traced(args[0]) if args and isinstance(args[0], Traced) else None
    if other is not None:
        shape = tuple(other.shape)
    else:
        func = Tensor.reshape if func.__name__ == "view" else func
        shape = tuple(func(torch.empty(x.shape, device="meta"), *args, **kwargs).shape)
    if x.batch is None:
        return x.reshaped(shape, None)
    before = math.prod(x.shape[: x.batch])
    for place, size in enumerate(shape):
        if size == x.recorder.batch and math.prod(shape[:place]) == before:
            return x.reshaped(shape[:place] + shape[place + 1 :], place)
    raise not_possible(f"the operation {func.__name__!r}, which joins examples with another axis")


def _same(_: Any, x: Traced, *__: Any, **___: Any) -> Traced:
    """Another type or place in memory; all numbers of a program are float32."""
    return Traced(x.recorder, x.operand, x.each, x.batch)


RULES.update(dict.fromkeys(_SAME, _same))


@rule("cat", "concat", "concatenate")
def _cat(_: Any, tensors: Sequence[Any], dim: int = 0, *, axis: int | None = None) -> Traced:
    recorder = first_traced(tensors).recorder
    values = [as_traced(t, recorder) for t in tensors]
    batch = next((v.batch for v in values if v.batch is not None), None)
    dim = (dim if axis is None else axis) % values[0].dim()
    if dim == batch:
        raise not_possible("a concatenation along the axis of examples")
    parts = tuple(_with_batch_at(v, batch) for v in values)
    place = dim - (batch is not None and dim > batch)
    return recorder.emit("concat", parts, place, batch=batch)


def _with_batch_at(x: Traced, batch: int | None) -> Traced:
    if x.batch != batch:
        raise not_possible("a concatenation of tensors whose examples lie along different axes")
    return x


@rule("stack")
def _stack(_: Any, tensors: Sequence[Any], dim: int = 0) -> Any:
    recorder = first_traced(tensors).recorder
    return torch.cat([as_traced(t, recorder).unsqueeze(dim) for t in tensors], dim)


@rule("pad", "constant_pad_nd")
def _pad(
    _: Any, x: Traced, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Traced:
    if mode != "constant" or value:
        raise not_possible(f"padding by other than zeros (mode={mode!r}, value={value})")
    for number in range(len(pad) // 2):
        before, after = pad[2 * number], pad[2 * number + 1]
        axis = None if before == after == 0 else x.axis(-1 - number)
        if axis is not None:
            x = _padded(x, axis, before, after)
    return x


def _padded(x: Traced, axis: int, before: int, after: int) -> Traced:
    """Negative padding cuts."""
    if before < 0 or after < 0:
        start, count = max(0, -before), x.each[axis] - max(0, -before) - max(0, -after)
        x = x.emit("slice", axis, start, 1, count)
    before, after = max(0, before), max(0, after)
    return x if before == after == 0 else x.emit("pad", axis, before, after)


@rule("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "new_tensor")
def _made(func: Any, x: Traced, *args: Any, **kwargs: Any) -> Tensor:
    """A plain tensor, for which only the shape of x matters."""
    plain: Tensor = func(torch.empty(x.shape, dtype=x.dtype), *args, **kwargs)
    return plain
