"""The shape of every result: one rule an operation, which refuses operands that do not fit."""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from pocketbayes.errors import FormatError

Shape = tuple[int, ...]
Rule = TypeVar("Rule", bound=Callable[..., Shape])

SHAPES: dict[str, Callable[..., Shape]] = {}
MOST_NUMBERS = 1 << 26  # of one buffer, also of one that is only needed inside of an operation


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def entered(function: Rule) -> Rule:
        SHAPES.update(dict.fromkeys(names, function))
        return function

    return entered


def _require(good: bool, what: str) -> None:
    if not good:
        raise FormatError(what)


def _require_vectors(length: int, *shapes: Shape | None) -> None:
    _require(all(s in (None, (length,)) for s in shapes), f"a weight has not the shape ({length})")


def _require_axis(x: Shape, axis: int) -> None:
    _require(axis < len(x), f"there is no axis {axis} in {x}")


def _require_flags(*flags: int) -> None:
    _require(all(flag in (0, 1) for flag in flags), "a flag is neither 0 nor 1")


@_rule("linear")
def _linear(x: Shape, weight: Shape, bias: Shape | None) -> Shape:
    _require(len(weight) == 2 and x[-1:] == weight[1:], f"weight {weight} does not fit {x}")
    _require_vectors(weight[0], bias)
    return (*x[:-1], weight[0])


@_rule("conv")
def _conv(
    x: Shape, weight: Shape, bias: Shape | None, groups: int, stride: Shape, padding: Shape,
    dilation: Shape,
) -> Shape:  # fmt: skip
    kernel = weight[2:]
    _require(len(kernel) in (1, 2) and len(x) == len(kernel) + 1, f"{weight} does not fit {x}")
    _require(groups >= 1 and weight[0] % groups == 0, f"{groups} groups do not fit {weight}")
    _require(weight[1] * groups == x[0], f"weight {weight} does not fit {x}")
    _require_vectors(weight[0], bias)
    return (weight[0], *_windows(x, kernel, stride, padding, dilation))


def _windows(
    x: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, up: int = 0
) -> Shape:
    """The number of windows along each of the last axes."""
    kept, sides = x[: -len(kernel)], x[-len(kernel) :]
    lists = (kernel, stride, padding, dilation)
    _require(all(len(part) == len(sides) for part in lists), "a list has not one number an axis")
    _require(min((*kernel, *stride, *dilation)) >= 1, "a kernel, stride or dilation is 0")
    padded = (side + 2 * p for side, p in zip(sides, padding, strict=True))
    _require(math.prod((*kept, *padded)) <= MOST_NUMBERS, "too much padding")
    found = []
    for side, k, s, p, d in zip(sides, *lists, strict=True):
        room = side + 2 * p - d * (k - 1) - 1
        _require(room >= 0, f"a kernel of {k} is larger than a side of {side}")
        number = (room + (s - 1) * up) // s + 1
        found.append(number - 1 if up and (number - 1) * s >= side + p else number)
    return tuple(found)


@_rule("norm")
def _norm(
    x: Shape, weight: Shape | None, bias: Shape | None, mean: Shape, variance: Shape, eps: float
) -> Shape:
    _require_axis(x, 0)
    _require_vectors(x[0], weight, bias, mean, variance)
    _require(eps >= 0, "eps is negative")
    return x


@_rule("layer_norm")
def _layer_norm(x: Shape, weight: Shape | None, bias: Shape | None, axes: int, eps: float) -> Shape:
    _require(1 <= axes <= len(x) and eps >= 0, f"{axes} axes of {x} are none to normalise")
    _require(all(w in (None, x[-axes:]) for w in (weight, bias)), f"a weight does not fit {x}")
    return x


@_rule("group_norm")
def _group_norm(
    x: Shape, weight: Shape | None, bias: Shape | None, groups: int, eps: float
) -> Shape:
    _require_axis(x, 0)
    _require(groups >= 1 and x[0] % groups == 0 and eps >= 0, f"{groups} groups do not fit {x}")
    _require_vectors(x[0], weight, bias)
    return x


@_rule("embedding")
def _embedding(x: Shape, weight: Shape) -> Shape:
    _require(len(weight) == 2, f"{weight} is no table")
    return (*x, weight[1])


def _recurrent(
    gates: int, x: Shape, inner: Shape, outer: Shape, biases: Sequence[Shape | None], backwards: int
) -> Shape:
    width = outer[-1] if outer else 0
    rows = gates * width
    _require(len(x) == 2 and inner == (rows, x[1]), f"weight {inner} does not fit {x}")
    _require(outer == (rows, width), f"weight {outer} does not fit {inner}")
    _require_vectors(rows, *biases)
    _require_flags(backwards)
    return (x[0], width)


@_rule("lstm")
def _lstm(
    x: Shape, inner: Shape, outer: Shape, b: Shape | None, c: Shape | None, backwards: int
) -> Shape:
    return _recurrent(4, x, inner, outer, (b, c), backwards)


@_rule("gru")
def _gru(
    x: Shape, inner: Shape, outer: Shape, b: Shape | None, c: Shape | None, backwards: int
) -> Shape:
    return _recurrent(3, x, inner, outer, (b, c), backwards)


@_rule("attention")
def _attention(
    q: Shape, k: Shape, v: Shape, mask: Shape | None, causal: int, scale: float
) -> Shape:
    _require(min(map(len, (q, k, v))) >= 2, "queries, keys or values have less than two axes")
    _require(q[:-2] == k[:-2] == v[:-2], f"{q}, {k} and {v} do not fit")
    _require(q[-1] == k[-1] and k[-2] == v[-2], f"{q}, {k} and {v} do not fit")
    scores = (*q[:-1], k[-2])
    _require(math.prod(scores) <= MOST_NUMBERS, "there are too many pairs of queries and keys")
    _require(mask is None or _broadcast(mask, scores) == scores, f"mask {mask} is not {scores}")
    _require_flags(causal)
    return (*q[:-1], v[-1])


@_rule("matmul")
def _matmul(a: Shape, b: Shape) -> Shape:
    _require(len(a) >= 2 and len(b) >= 2 and a[-1] == b[-2], f"{a} and {b} are no product")
    return (*_broadcast(a[:-2], b[:-2]), a[-2], b[-1])


@_rule("add", "subtract", "multiply", "divide", "maximum", "minimum")
def _broadcast(a: Shape, b: Shape) -> Shape:
    rank = max(len(a), len(b))
    pairs = list(zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True))
    _require(all(m == n or 1 in (m, n) for m, n in pairs), f"{a} and {b} do not broadcast")
    return tuple(map(max, pairs))


@_rule("concat")
def _concat(parts: Sequence[Shape], axis: int) -> Shape:
    first = parts[0]
    _require_axis(first, axis)
    before, after = first[:axis], first[axis + 1 :]
    same = all(len(p) == len(first) and (p[:axis], p[axis + 1 :]) == (before, after) for p in parts)
    _require(same, "what is to be joined has different shapes")
    return (*before, sum(p[axis] for p in parts), *after)


@_rule("reshape")
def _reshape(x: Shape, shape: Shape) -> Shape:
    _require(math.prod(x) == math.prod(shape), f"{x} cannot have the shape {shape}")
    return shape


@_rule("permute")
def _permute(x: Shape, axes: Shape) -> Shape:
    _require(sorted(axes) == list(range(len(x))), f"{axes} are not all axes of {x}")
    return tuple(x[axis] for axis in axes)


@_rule("slice")
def _slice(x: Shape, axis: int, start: int, step: int, count: int) -> Shape:
    _require_axis(x, axis)
    _require(step >= 1 and count >= 1, "a slice is empty")
    _require(start + step * (count - 1) < x[axis], f"a slice ends outside of {x}")
    return (*x[:axis], count, *x[axis + 1 :])


@_rule("pad")
def _pad(x: Shape, axis: int, before: int, after: int) -> Shape:
    _require_axis(x, axis)
    return (*x[:axis], x[axis] + before + after, *x[axis + 1 :])


@_rule("expand")
def _expand(x: Shape, shape: Shape) -> Shape:
    _require(len(x) <= len(shape) and _broadcast(x, shape) == shape, f"{x} is not part of {shape}")
    return shape


@_rule("max_pool")
def _max_pool(
    x: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, up: int
) -> Shape:
    _require(1 <= len(kernel) <= min(2, len(x)), f"a window of {len(kernel)} axes in {x}")
    _require(all(2 * p <= k for p, k in zip(padding, kernel, strict=False)), "too much padding")
    _require_flags(up)
    return (*x[: -len(kernel)], *_windows(x, kernel, stride, padding, dilation, up))


@_rule("avg_pool")
def _avg_pool(
    x: Shape, kernel: Shape, stride: Shape, padding: Shape, up: int, counted: int
) -> Shape:
    _require_flags(counted)
    return _max_pool(x, kernel, stride, padding, (1,) * len(kernel), up)


@_rule("adaptive_avg_pool")
def _adaptive_avg_pool(x: Shape, sizes: Shape) -> Shape:
    _require(1 <= len(sizes) <= min(2, len(x)), f"a window of {len(sizes)} axes in {x}")
    return (*x[: -len(sizes)], *sizes)


@_rule("mean", "sum", "amax")
def _reduced(x: Shape, axes: Shape, keep: int) -> Shape:
    rising = list(axes) == sorted(set(axes)) and max(axes, default=len(x)) < len(x)
    _require(rising, f"{axes} are no rising axes of {x}")
    _require_flags(keep)
    return tuple(1 if i in axes else n for i, n in enumerate(x) if keep or i not in axes)


@_rule("softmax", "log_softmax")
def _softmax(x: Shape, axis: int) -> Shape:
    _require_axis(x, axis)
    return x


@_rule("constant")
def _constant(shape: Shape, values: Sequence[float]) -> Shape:
    _require(math.prod(shape) == len(values), f"{len(values)} numbers are not {shape}")
    return shape


@_rule("dropout")
def _dropout(x: Shape, rate: float, channels: int) -> Shape:
    _require(0 <= rate <= 1, f"{rate} is no probability")
    _require_flags(channels)
    return x


@_rule("upsample")
def _upsample(x: Shape, times: Shape) -> Shape:
    _require(1 <= len(times) <= len(x) and min(times) >= 1, f"{times} does not fit {x}")
    kept = len(x) - len(times)
    return (*x[:kept], *(n * t for n, t in zip(x[kept:], times, strict=True)))


@_rule("prelu")
def _prelu(x: Shape, weight: Shape) -> Shape:
    _require(weight == (1,) or weight == x[:1], f"weight {weight} does not fit {x}")
    return x


@_rule(
    "relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", "softplus", "exp", "log", "sqrt", "abs",
    "hardswish", "hardsigmoid", "affine", "leaky_relu", "elu", "clamp",
)  # fmt: skip
def _value_by_value(x: Shape, *_: float) -> Shape:
    return x
