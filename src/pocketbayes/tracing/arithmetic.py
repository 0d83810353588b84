"""Rules of arithmetic, activations and sums."""

from collections.abc import Callable
from typing import Any

import torch

from pocketbayes.tracing.value import (
    RULES,
    Recorder,
    Shape,
    Traced,
    as_traced,
    first_traced,
    not_possible,
    number_in,
    require_weight,
    rule,
)

_LARGEST = 3.4e38


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


def _binary(name: str, a: Any, b: Any) -> Traced:
    recorder: Recorder = first_traced(a, b).recorder
    (a, b), batch = aligned([as_traced(a, recorder), as_traced(b, recorder)])
    return recorder.emit(name, a, b, batch=batch)


def _affine(x: Traced, factor: float, shift: float) -> Traced:
    return x if (factor, shift) == (1, 0) else x.emit("affine", factor, shift)


@rule("add", "radd", "iadd")
def _add(_: Any, a: Any, b: Any, *, alpha: float = 1) -> Traced:
    if isinstance(a, Traced) and number_in(b) is not None:
        return _affine(a, 1.0, alpha * (number_in(b) or 0.0))
    if number_in(a) is not None:
        return _affine(b, float(alpha), number_in(a) or 0.0)
    return _binary("add", a, b if alpha == 1 else b * alpha)


@rule("sub", "subtract", "isub")
def _sub(_: Any, a: Any, b: Any, *, alpha: float = 1) -> Traced:
    if isinstance(a, Traced) and number_in(b) is not None:
        return _affine(a, 1.0, -alpha * (number_in(b) or 0.0))
    if number_in(a) is not None:
        return _affine(b, -float(alpha), number_in(a) or 0.0)
    return _binary("subtract", a, b if alpha == 1 else b * alpha)


@rule("rsub")
def _rsub(_: Any, a: Any, b: Any, *, alpha: float = 1) -> Traced:
    return _sub(None, b, a, alpha=alpha)


@rule("mul", "multiply", "rmul", "imul")
def _mul(_: Any, a: Any, b: Any) -> Traced:
    if number_in(a) is not None:
        a, b = b, a
    factor = number_in(b)
    return _binary("multiply", a, b) if factor is None else _affine(a, factor, 0.0)


@rule("div", "divide", "true_divide", "truediv", "itruediv")
def _div(_: Any, a: Any, b: Any, *, rounding_mode: str | None = None) -> Traced:
    if rounding_mode is not None:
        raise not_possible(f"div(rounding_mode={rounding_mode!r})")
    divisor = number_in(b)
    return _binary("divide", a, b) if divisor is None else _affine(a, 1 / divisor, 0.0)


@rule("rdiv", "rtruediv")
def _rdiv(_: Any, a: Any, b: Any) -> Traced:
    return _binary("divide", b, a)


@rule("reciprocal")
def _reciprocal(_: Any, x: Traced) -> Traced:
    return _binary("divide", 1.0, x)


@rule("neg", "negative")
def _neg(_: Any, x: Traced) -> Traced:
    return _affine(x, -1.0, 0.0)


@rule("square")
def _square(_: Any, x: Traced) -> Traced:
    return _binary("multiply", x, x)


@rule("rsqrt")
def _rsqrt(_: Any, x: Traced) -> Traced:
    return _binary("divide", 1.0, x.emit("sqrt"))


@rule("pow", "float_power")
def _pow(_: Any, x: Any, exponent: Any) -> Any:
    known: dict[Any, Callable[[], Traced]] = {
        1: lambda: x,
        2: lambda: _square(None, x),
        3: lambda: _binary("multiply", _square(None, x), x),
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
    return _binary("maximum", a, b)


@rule("minimum", "fmin")
def _minimum(_: Any, a: Any, b: Any) -> Traced:
    return _binary("minimum", a, b)


def _value_by_value(name: str) -> Callable[..., Traced]:
    return lambda _, x, *__, **___: x.emit(name)


_PLAIN = (
    "relu",
    "silu",
    "tanh",
    "sigmoid",
    "exp",
    "log",
    "sqrt",
    "abs",
    "hardswish",
    "hardsigmoid",
)
RULES.update({name: _value_by_value(name) for name in _PLAIN})


@rule("gelu")
def _gelu(_: Any, x: Traced, *, approximate: str = "none") -> Traced:
    return x.emit("gelu_tanh" if approximate == "tanh" else "gelu")


@rule("leaky_relu")
def _leaky_relu(_: Any, x: Traced, negative_slope: float = 0.01) -> Traced:
    return x.emit("leaky_relu", float(negative_slope))


@rule("elu")
def _elu(_: Any, x: Traced, alpha: float = 1.0) -> Traced:
    return x.emit("elu", float(alpha))


@rule("selu")
def _selu(_: Any, x: Traced) -> Traced:
    return _affine(x.emit("elu", 1.6732632423543772), 1.0507009873554805, 0.0)


@rule("mish")
def _mish(_: Any, x: Traced) -> Traced:
    return _binary("multiply", x, x.emit("softplus").emit("tanh"))


@rule("softplus")
def _softplus(_: Any, x: Traced, beta: float = 1, threshold: float = 20) -> Traced:
    """Log(1 + exp(beta x)) / beta."""
    return _affine(_affine(x, float(beta), 0.0).emit("softplus"), 1 / beta, 0.0)


@rule("hardtanh")
def _hardtanh(_: Any, x: Traced, min_val: float = -1.0, max_val: float = 1.0) -> Traced:
    return x.emit("clamp", float(min_val), float(max_val))


@rule("relu6")
def _relu6(_: Any, x: Traced) -> Traced:
    return x.emit("clamp", 0.0, 6.0)


@rule("clamp", "clip")
def _clamp(_: Any, x: Traced, min: Any = None, max: Any = None) -> Traced:  # noqa: A002
    low = -_LARGEST if min is None else number_in(min)
    high = _LARGEST if max is None else number_in(max)
    if low is None or high is None:
        raise not_possible("the operation 'clamp' between tensors")
    return x.emit("clamp", low, high)


@rule("clamp_min")
def _clamp_min(_: Any, x: Traced, min: Any) -> Traced:  # noqa: A002
    return _clamp(None, x, min)


@rule("prelu")
def _prelu(_: Any, x: Traced, weight: Any) -> Traced:
    return x.emit("prelu", require_weight(weight, "prelu"))


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
def _norm(_: Any, x: Traced, p: Any = 2, dim: Any = None, keepdim: bool = False) -> Traced:
    if p not in (2, 2.0, "fro"):
        raise not_possible(f"the operation 'norm' with p={p}")
    return reduced("sum", _square(None, x), dim, keepdim).emit("sqrt")


@rule("normalize")
def _normalize(_: Any, x: Traced, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Any:
    length = _norm(None, x, p, dim, True)
    return x / torch.clamp(length, min=eps)
