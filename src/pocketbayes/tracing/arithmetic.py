"""Rules of arithmetic, sums and products."""

from collections.abc import Callable
from typing import Any

import torch

from pocketbayes.tracing.value import (
    Recorder,
    Shape,
    Traced,
    as_traced,
    first_traced,
    not_possible,
    number_in,
    rule,
)


def aligned(values: list[Traced]) -> tuple[list[Traced], int | None]:
    """Operands that broadcast example by example as they did with the axis of examples.

    That axis lies at one place, counted from the last; operands without examples give up their
    axis of size 1 there.
    """
    rank = max(v.dim() for v in values)
    places = {v.dim() - v.batch for v in values if v.batch is not None}
    if not places:
        return values, None
    if len(places) > 1:
        raise not_possible("operands whose examples lie along different axes")
    place = places.pop()
    return [_without_axis(v, v.dim() - place) for v in values], rank - place


def _without_axis(x: Traced, axis: int) -> Traced:
    if x.batch is not None or axis < 0:
        return x
    if x.each[axis] != 1:
        raise not_possible("operands whose examples lie along different axes")
    shape: Shape = x.each[:axis] + x.each[axis + 1 :]
    return x.reshaped(shape, None)


def binary(name: str, a: Any, b: Any) -> Traced:
    """An operation on two values that broadcast."""
    recorder: Recorder = first_traced(a, b).recorder
    (a, b), batch = aligned([as_traced(a, recorder), as_traced(b, recorder)])
    return recorder.emit(name, a, b, batch=batch)


def affine(x: Traced, factor: float, shift: float) -> Traced:
    """Factor x + shift."""
    return x if (factor, shift) == (1, 0) else x.emit("affine", factor, shift)


@rule("add", "radd", "iadd")
def _add(_: Any, a: Any, b: Any, *, alpha: float = 1) -> Traced:
    if isinstance(a, Traced) and number_in(b) is not None:
        return affine(a, 1.0, alpha * (number_in(b) or 0.0))
    if number_in(a) is not None:
        return affine(b, float(alpha), number_in(a) or 0.0)
    return binary("add", a, b if alpha == 1 else b * alpha)


@rule("sub", "subtract", "isub")
def _sub(_: Any, a: Any, b: Any, *, alpha: float = 1) -> Traced:
    if isinstance(a, Traced) and number_in(b) is not None:
        return affine(a, 1.0, -alpha * (number_in(b) or 0.0))
    if number_in(a) is not None:
        return affine(b, -float(alpha), number_in(a) or 0.0)
    return binary("subtract", a, b if alpha == 1 else b * alpha)


@rule("rsub")
def _rsub(_: Any, a: Any, b: Any, *, alpha: float = 1) -> Traced:
    return _sub(None, b, a, alpha=alpha)


@rule("mul", "multiply", "rmul", "imul")
def _mul(_: Any, a: Any, b: Any) -> Traced:
    if number_in(a) is not None:
        a, b = b, a
    factor = number_in(b)
    return binary("multiply", a, b) if factor is None else affine(a, factor, 0.0)


@rule("div", "divide", "true_divide", "truediv", "itruediv")
def _div(_: Any, a: Any, b: Any, *, rounding_mode: str | None = None) -> Traced:
    if rounding_mode is not None:
        raise not_possible(f"div(rounding_mode={rounding_mode!r})")
    divisor = number_in(b)
    return binary("divide", a, b) if divisor is None else affine(a, 1 / divisor, 0.0)


@rule("rdiv", "rtruediv")
def _rdiv(_: Any, a: Any, b: Any) -> Traced:
    return binary("divide", b, a)


@rule("reciprocal")
def _reciprocal(_: Any, x: Traced) -> Traced:
    return binary("divide", 1.0, x)


@rule("neg", "negative")
def _neg(_: Any, x: Traced) -> Traced:
    return affine(x, -1.0, 0.0)


@rule("square")
def _square(_: Any, x: Traced) -> Traced:
    return binary("multiply", x, x)


@rule("rsqrt")
def _rsqrt(_: Any, x: Traced) -> Traced:
    return binary("divide", 1.0, x.emit("sqrt"))


@rule("pow", "float_power")
def _pow(_: Any, x: Any, exponent: Any) -> Any:
    known: dict[Any, Callable[[], Traced]] = {
        1: lambda: x,
        2: lambda: _square(None, x),
        3: lambda: binary("multiply", _square(None, x), x),
        0.5: lambda: x.emit("sqrt"),
        -0.5: lambda: _rsqrt(None, x),
        -1: lambda: _reciprocal(None, x),
    }
    power = number_in(exponent)
    if not isinstance(x, Traced) or power not in known:
        raise not_possible(f"the operation 'pow' with the exponent {power}")
    return known[power]()


@rule("maximum", "fmax")
def _maximum(_: Any, a: Any, b: Any) -> Traced:
    return binary("maximum", a, b)


@rule("minimum", "fmin")
def _minimum(_: Any, a: Any, b: Any) -> Traced:
    return binary("minimum", a, b)


@rule("softmax")
def _softmax(_: Any, x: Traced, dim: int | None = None, *__: Any, **___: Any) -> Traced:
    return x.emit("softmax", x.axis(_known(dim)))


@rule("log_softmax")
def _log_softmax(_: Any, x: Traced, dim: int | None = None, *__: Any, **___: Any) -> Traced:
    return x.emit("log_softmax", x.axis(_known(dim)))


def _known(dim: int | None) -> int:
    if dim is None:
        raise not_possible("a softmax that does not say its dim")
    return dim


def reduced(name: str, x: Traced, dim: Any, keepdim: bool) -> Traced:
    """Over some dimensions, none of which is that of the examples."""
    dims = range(x.dim()) if dim is None or dim == () else (dim,) if isinstance(dim, int) else dim
    axes = tuple(sorted(x.axis(d) for d in dims))
    gone = 0 if keepdim or x.batch is None else sum(axis < x.batch for axis in axes)
    batch = None if x.batch is None else x.batch - gone
    return x.recorder.emit(name, x, axes, int(keepdim), batch=batch)


@rule("mean")
def _mean(_: Any, x: Traced, dim: Any = None, keepdim: bool = False, **__: Any) -> Traced:
    return reduced("mean", x, dim, keepdim)


@rule("sum")
def _sum(_: Any, x: Traced, dim: Any = None, keepdim: bool = False, **__: Any) -> Traced:
    return reduced("sum", x, dim, keepdim)


@rule("amax")
def _amax(_: Any, x: Traced, dim: Any = (), keepdim: bool = False) -> Traced:
    return reduced("amax", x, dim, keepdim)


@rule("matmul", "bmm", "mm", "rmatmul")
def _matmul(func: Any, a: Any, b: Any) -> Any:
    """Vectors are matrices of one row."""
    a, b = (b, a) if func.__name__ == "__rmatmul__" else (a, b)
    recorder = first_traced(a, b).recorder
    a, b = as_traced(a, recorder), as_traced(b, recorder)
    if a.dim() == 2 and b.batch is None and a.batch == 0 and b.dim() == 2:
        rows = recorder.emit("reshape", a, (1, *a.each), batch=0)
        return recorder.emit("matmul", rows, b, batch=0).reshaped(b.each[1:], 0)
    if min(a.dim(), b.dim()) < 2 or any(v.batch in (v.dim() - 2, v.dim() - 1) for v in (a, b)):
        raise not_possible("a matrix product along the axis of examples, or of vectors")
    (a, b), batch = aligned([a, b])
    return recorder.emit("matmul", a, b, batch=batch)


@rule("dropout", "feature_dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout")
def _dropout(func: Any, x: Traced, p: float = 0.5, training: bool = True, **__: Any) -> Traced:
    """Nothing, but where it stays on in prediction."""
    name = func.__name__.strip("_")
    if not training or p == 0:
        return x
    if name == "alpha_dropout" or x.batch != 0:
        raise not_possible(f"the operation {name!r} that stays on in prediction")
    return x.emit("dropout", float(p), int(name != "dropout"))


@rule("norm", "vector_norm")
def _norm(
    _: Any, x: Traced, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Traced:
    if p not in (2, 2.0, "fro"):
        raise not_possible(f"the operation 'norm' with p={p}")
    return reduced("sum", _square(None, x), dim, keepdim).emit("sqrt")


@rule("normalize")
def _normalize(_: Any, x: Traced, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Any:
    length = _norm(None, x, p, dim, True)
    return x / torch.clamp(length, min=eps)
