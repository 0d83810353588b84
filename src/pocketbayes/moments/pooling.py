"""Rules of sums, means, pools and maxima."""

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pocketbayes.moments.gaussians import larger_moments
from pocketbayes.moments.shapes import without
from pocketbayes.moments.value import Moments, no_rule, rule

_FAR_BELOW = -1e15  # what a border holds; its square is still a float32


def _dims(x: Moments, dim: Any) -> tuple[int, ...]:
    if dim is None or dim == ():
        return tuple(range(x.dim()))
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    return tuple(d % x.dim() for d in dims)


def summed(x: Moments, dim: Any = None, keepdim: bool = False) -> Moments:
    """Sum over dimensions: variances add; where noise is common, stds do."""
    dims = _dims(x, dim)
    common = [d for d in dims if x.positions[d]]
    variance = x.variance
    if common:
        variance = variance.sqrt().sum(common, keepdim=True).square()
    if len(common) < len(dims):
        variance = variance.sum([d for d in dims if d not in common], keepdim=True)
    expected = x.expected.sum(dims, keepdim=keepdim)
    return Moments(expected, variance.reshape(expected.shape), without(x.positions, dims, keepdim))


@rule("sum")
def _sum(_: Any, x: Moments, dim: Any = None, keepdim: bool = False, **__: Any) -> Moments:
    return summed(x, dim, keepdim)


@rule("mean")
def _mean(_: Any, x: Moments, dim: Any = None, keepdim: bool = False, **__: Any) -> Moments:
    count = math.prod(x.shape[d] for d in _dims(x, dim))
    total = summed(x, dim, keepdim)
    return total.like(total.expected / count, total.variance / count**2)


@rule("amax")
def _amax(_: Any, x: Moments, dim: Any = (), keepdim: bool = False) -> Moments:
    return _largest(x, dim, keepdim)


@rule("amin")
def _amin(_: Any, x: Moments, dim: Any = (), keepdim: bool = False) -> Moments:
    least = _largest(x.like(-x.expected, x.variance), dim, keepdim)
    return least.like(-least.expected, least.variance)


def _largest(x: Moments, dim: Any, keepdim: bool) -> Moments:
    """The largest along some dimensions, half against half until one is left."""
    dims, m, v = _dims(x, dim), x.expected, x.variance
    for d in sorted(dims, reverse=True):
        m, v = _largest_along(m, v, d, x.positions[d])
    places = without(x.positions, dims, keepdim)
    if keepdim:
        return Moments(m, v, places)
    shape = [n for d, n in enumerate(m.shape) if d not in dims]
    return Moments(m.reshape(shape), v.reshape(shape), places)


def _largest_along(m: Tensor, v: Tensor, d: int, common: bool) -> tuple[Tensor, Tensor]:
    if common:
        m, place = m.max(d, keepdim=True)
        return m, v.gather(d, place)
    while (size := m.shape[d]) > 1:
        half = size // 2
        (m1, m2, *m3), (v1, v2, *v3) = (torch.split(t, half, d) for t in (m, v))
        m, v = larger_moments(m1, v1, m2, v2)
        if m3:
            m, v = torch.cat([m, *m3], d), torch.cat([v, *v3], d)
    return m, v


def _averages(
    func: Any, x: Moments, spatial: int, share: Callable[[Tensor], Any], *args: Any, **kwargs: Any
) -> Moments:
    """A pool of averages; `share` is the weight of one number in its window."""
    expected = func(x.expected, *args, **kwargs)
    if all(x.positions[-spatial:]):
        return x.like(expected, func(x.variance.sqrt(), *args, **kwargs).square())
    return x.like(expected, func(x.variance, *args, **kwargs) * share(expected))


@rule("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _avg_pool(
    func: Any, x: Moments, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Moments:  # fmt: skip
    spatial = int(func.__name__[-2])
    count = math.prod(_each(kernel_size, spatial))
    args = (kernel_size, stride if stride not in (None, [], ()) else kernel_size, padding)
    options = (ceil_mode, count_include_pad)
    if divisor_override is not None:
        options = (*options, divisor_override)  # type: ignore[assignment]

    def share(_: Tensor) -> Any:
        if divisor_override is not None:
            return 1 / divisor_override
        if count_include_pad:
            return 1 / count
        ones = torch.ones_like(x.expected)
        return 1 / (count * func(ones, *args, ceil_mode, True))

    return _averages(func, x, spatial, share, *args, *options)


@rule("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
def _adaptive_avg_pool(func: Any, x: Moments, output_size: Any) -> Moments:
    spatial = int(func.__name__[-2])
    inputs = x.shape[-spatial:]

    def share(pooled: Tensor) -> Tensor:
        found = torch.ones((), dtype=x.dtype, device=x.device)
        for size, out in zip(inputs, pooled.shape[-spatial:], strict=True):
            places = torch.arange(out, device=x.device)
            window = ((places + 1) * size + out - 1) // out - places * size // out
            found = found.unsqueeze(-1) / window
        return found

    return _averages(func, x, spatial, share, output_size)


@rule("max_pool1d", "max_pool2d", "max_pool3d")
def _max_pool(
    func: Any, x: Moments, kernel_size: Any, stride: Any = None, padding: Any = 0,
    dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Moments:  # fmt: skip
    """Where noise is common, the winner of the means; else window by window as `_largest`."""
    if return_indices:
        raise no_rule("max_pool with indices")
    spatial = int(func.__name__[-2])
    stride = stride if stride not in (None, [], ()) else kernel_size
    window = [_each(value, spatial) for value in (kernel_size, stride, padding, dilation)]
    if all(x.positions[-spatial:]):
        return _winners(x, spatial, window, ceil_mode)
    sizes = zip(x.shape[-spatial:], *window, strict=True)
    outputs = [_outputs(ceil_mode, *each) for each in sizes]
    m, v = _in_windows(x, window, outputs)
    return x.like(*(t.squeeze(0) for t in _largest_along(m, v, 0, False)))


def _outputs(ceil_mode: bool, size: int, k: int, stride: int, padding: int, dilation: int) -> int:
    """How many windows there are; one that begins in the right border does not count."""
    room = size + 2 * padding - dilation * (k - 1) - 1
    number = room // stride + 1
    if ceil_mode and room % stride and number * stride < size + padding:
        number += 1
    return number


def _in_windows(x: Moments, window: list[Any], outputs: Sequence[int]) -> tuple[Tensor, Tensor]:
    """(places of a window, ..., outputs): each place of the window in all windows at once."""
    kernel, stride, _, dilation = window
    sides = list[int]()
    spans = zip(x.shape[-len(kernel) :], outputs, *window, strict=True)
    for size, out, k, s, p, d in spans:
        sides = [p, max(0, (out - 1) * s + (k - 1) * d + 1 - size - p), *sides]
    m, v = (x.expected, x.variance)
    if any(sides):
        m, v = F.pad(m, sides, value=_FAR_BELOW), F.pad(v, sides)
    places: list[Any] = []
    for offsets in product(*(range(k) for k in kernel)):
        cut = zip(offsets, outputs, stride, dilation, strict=True)
        places.append((..., *(slice(o * d, o * d + (n - 1) * s + 1, s) for o, n, s, d in cut)))
    return torch.stack([m[place] for place in places]), torch.stack([v[place] for place in places])


def _winners(x: Moments, spatial: int, window: list[Any], ceil_mode: bool) -> Moments:
    pool: Any = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[spatial - 1]
    m, place = pool(x.expected, *window, ceil_mode, return_indices=True)
    v = x.variance.flatten(-spatial).gather(-1, place.flatten(-spatial)).view_as(m)
    return x.like(m, v)


@rule("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def _adaptive_max_pool(
    func: Any, x: Moments, output_size: Any, return_indices: bool = False
) -> Moments:
    spatial = int(func.__name__[-2])
    inputs = x.shape[-spatial:]
    outputs = [n or size for n, size in zip(_each(output_size, spatial), inputs, strict=True)]
    if return_indices or any(size % n for size, n in zip(inputs, outputs, strict=True)):
        raise no_rule(f"{func.__name__} from {tuple(inputs)} to {tuple(outputs)}")
    kernel = tuple(size // n for size, n in zip(inputs, outputs, strict=True))
    pool: Any = (torch.max_pool1d, torch.max_pool2d, torch.max_pool3d)[spatial - 1]
    return _max_pool(pool, x, kernel)


@rule("interpolate", "upsample")
def _interpolate(func: Any, x: Moments, *args: Any, **kwargs: Any) -> Moments:
    """Nearest neighbours are copies; what lies between two has as its std the mean of theirs."""
    expected = func(x.expected, *args, **kwargs)
    mode = kwargs.get("mode", args[2] if len(args) > 2 else "nearest")
    if mode.startswith("nearest"):
        return x.like(expected, func(x.variance, *args, **kwargs))
    return x.like(expected, func(x.variance.sqrt(), *args, **kwargs).square())


def _each(value: Any, spatial: int) -> tuple[Any, ...]:
    if isinstance(value, Sequence):
        return tuple(value) if len(value) == spatial else (value[0],) * spatial
    return (value,) * spatial
