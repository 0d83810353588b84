"""The reference's convolutions and poolings."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Array = NDArray[np.float32]
Ints = tuple[int, ...]


def _conv(
    x: Array, weight: Array, bias: Array | None, groups: int, stride: Ints, padding: Ints,
    dilation: Ints,
) -> Any:  # fmt: skip
    """For each place k in the kernel W_k times the inputs that it meets, group by group."""
    wide, kernel = _padded(x, padding), weight.shape[2:]
    sizes = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(wide.shape[1:], kernel, stride, dilation, strict=True)
    ]
    inputs = wide.reshape(groups, -1, *wide.shape[1:])
    weights = weight.reshape(groups, -1, *weight.shape[1:])
    total: Any = 0
    for place in np.ndindex(*kernel):
        ends = zip(place, dilation, stride, sizes, strict=True)
        met: Any = (..., *(slice(p * d, p * d + s * (n - 1) + 1, s) for p, d, s, n in ends))
        seen = inputs[met].reshape(groups, inputs.shape[1], -1)
        total = total + weights[(..., *place)] @ seen
    outputs = total.reshape(len(weight), *sizes)
    return outputs if bias is None else outputs + bias.reshape(-1, *(1,) * len(sizes))


def _padded(x: Array, padding: Ints, value: float = 0.0) -> Array:
    kept = x.ndim - len(padding)
    return np.pad(x, [(0, 0)] * kept + [(p, p) for p in padding], constant_values=value)


def _windows(x: Array, kernel: Ints, stride: Ints, dilation: Ints) -> Any:
    """All windows over the last axes, whose own axes come last."""
    spread = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
    axes = tuple(range(x.ndim - len(kernel), x.ndim))
    steps: Any = (..., *(slice(None, None, s) for s in (*stride, *dilation)))
    return sliding_window_view(x, spread, axes)[steps]


def _max_pool(x: Array, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, up: int) -> Any:
    lowest = float(np.finfo(np.float32).min)
    wide = _with_room(_padded(x, padding, lowest), kernel, stride, dilation, up, lowest)
    seen = _windows(wide, kernel, stride, dilation)[_inside(x, kernel, stride, padding, up)]
    return seen.max(tuple(range(-len(kernel), 0)))


def _avg_pool(x: Array, kernel: Ints, stride: Ints, padding: Ints, up: int, counted: int) -> Any:
    once, inside = (1,) * len(kernel), _inside(x, kernel, stride, padding, up)

    def totals(values: Array) -> Any:
        wide = _with_room(values, kernel, stride, once, up, 0.0)
        return _windows(wide, kernel, stride, once)[inside].sum(tuple(range(-len(kernel), 0)))

    ones = np.ones_like(x)
    return totals(_padded(x, padding)) / totals(_padded(ones, padding, float(counted)))


def _with_room(
    x: Array, kernel: Ints, stride: Ints, dilation: Ints, up: int, value: float
) -> Array:
    """With as many numbers behind as the last window may need."""
    kept = x.ndim - len(kernel)
    more = [
        (0, min(s - 1, d * (k - 1) + 1) if up else 0)
        for k, s, d in zip(kernel, stride, dilation, strict=True)
    ]
    return np.pad(x, [(0, 0)] * kept + more, constant_values=value)


def _inside(x: Array, kernel: Ints, stride: Ints, padding: Ints, up: int) -> Any:
    """The windows that begin before the padding behind."""
    sides = x.shape[x.ndim - len(kernel) :]
    most = [
        -(-(n + p) // s) if up else None for n, p, s in zip(sides, padding, stride, strict=True)
    ]
    return (*(slice(None),) * (x.ndim - len(kernel)), *map(slice, most))


def _adaptive_avg_pool(x: Array, sizes: Ints) -> Any:
    for axis, size in enumerate(sizes, x.ndim - len(sizes)):
        side = x.shape[axis]
        ends = [(i * side // size, -(-(i + 1) * side // size)) for i in range(size)]
        means = [x.take(range(a, b), axis).mean(axis, keepdims=True) for a, b in ends]
        x = np.concatenate(means, axis)
    return x


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "conv": _conv,
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
    "adaptive_avg_pool": _adaptive_avg_pool,
}
