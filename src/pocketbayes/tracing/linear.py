"""Rules of layers with weights, and of norms."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from pocketbayes.tracing.value import (
    Traced,
    as_traced,
    first_traced,
    not_possible,
    require_batch_first,
    require_weight,
    rule,
)

Ints = tuple[int, ...]


def several(value: Any, axes: int) -> Ints:
    """One number for each axis."""
    values = tuple(value) if isinstance(value, list | tuple) else (value,)
    return tuple(int(v) for v in (values * axes if len(values) == 1 else values))


@rule("linear")
def _linear(_: Any, x: Any, weight: Any, bias: Any = None) -> Traced:
    given = as_traced(x, first_traced(x, weight).recorder)
    given.axis(-1)
    return given.emit("linear", require_weight(weight, "linear"), require_weight(bias, "linear"))


@rule("conv1d", "conv2d")
def _conv(
    func: Any, x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> Traced:  # fmt: skip
    name, axes = func.__name__, 1 if func.__name__ == "conv1d" else 2
    given = require_batch_first(x, name)
    kernel, dilations = tuple(weight.shape[2:]), several(dilation, axes)
    before, after = _padding(padding, kernel, dilations)
    if len(given.each) != axes + 1:
        raise not_possible(f"{name} of a single example without an axis of examples")
    for axis, (low, high) in enumerate(zip(before, after, strict=True), 1):
        given = given if low == high else given.emit("pad", axis, 0, high - low)
    kept = require_weight(weight, name), require_weight(bias, name)
    return given.emit("conv", *kept, int(groups), several(stride, axes), before, dilations)


def _padding(padding: Any, kernel: Ints, dilation: Ints) -> tuple[Ints, Ints]:
    """Zeros before and after; "same" puts the odd one behind."""
    if padding == "same":
        room = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return tuple(r // 2 for r in room), tuple(r - r // 2 for r in room)
    each = several(0 if padding == "valid" else padding, len(kernel))
    return each, each


@rule("embedding")
def _embedding(
    _: Any, index: Any, weight: Any, padding_idx: Any = None, max_norm: Any = None, *__: Any,
    **___: Any,
) -> Traced:  # fmt: skip
    if max_norm is not None:
        raise not_possible("an embedding with max_norm")
    rows = as_traced(index, first_traced(index, weight).recorder)
    return rows.emit("embedding", require_weight(weight, "embedding"))


@rule("batch_norm")
def _batch_norm(
    _: Any, x: Any, mean: Any, variance: Any, weight: Any = None, bias: Any = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5, *__: Any,
) -> Traced:  # fmt: skip
    if training or mean is None:
        raise not_possible("a batch norm without running statistics: it mixes examples")
    return _by_statistics(x, mean, variance, weight, bias, eps)


def _by_statistics(x: Any, mean: Any, variance: Any, weight: Any, bias: Any, eps: float) -> Traced:
    kept = [require_weight(w, "batch_norm") for w in (weight, bias, mean, variance)]
    return require_batch_first(x, "batch_norm").emit("norm", *kept, float(eps))


@rule("layer_norm")
def _layer_norm(
    _: Any, x: Any, shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5,
    *__: Any,
) -> Traced:  # fmt: skip
    if x.batch is not None and x.batch >= x.dim() - len(shape):
        raise not_possible("a layer norm over examples")
    kept = require_weight(weight, "layer_norm"), require_weight(bias, "layer_norm")
    return as_traced(x, x.recorder).emit("layer_norm", *kept, len(shape), float(eps))


@rule("rms_norm")
def _rms_norm(
    _: Any, x: Any, shape: Sequence[int], weight: Any = None, eps: float | None = None
) -> Any:
    dims = tuple(range(-len(shape), 0))
    small = torch.finfo(torch.float32).eps if eps is None else eps
    standard = x / torch.sqrt((x * x).mean(dims, keepdim=True) + small)
    return standard if weight is None else standard * weight


@rule("group_norm")
def _group_norm(
    _: Any, x: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *__: Any
) -> Traced:
    kept = require_weight(weight, "group_norm"), require_weight(bias, "group_norm")
    given = require_batch_first(x, "group_norm")
    return given.emit("group_norm", *kept, int(groups), float(eps))


@rule("instance_norm")
def _instance_norm(
    _: Any, x: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5, *__: Any,
) -> Traced:  # fmt: skip
    if not use_input_stats:
        return _by_statistics(x, running_mean, running_var, weight, bias, eps)
    return _group_norm(None, x, x.shape[1], weight, bias, eps)


@rule("max_pool1d", "max_pool2d")
def _max_pool(
    func: Any, x: Traced, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Traced:  # fmt: skip
    axes = 1 if "1d" in func.__name__ else 2
    if return_indices:
        raise not_possible("a max pooling that returns indices")
    kernel = several(kernel_size, axes)
    steps = kernel if stride is None or stride == [] else several(stride, axes)
    x = require_batch_first(x, func.__name__)
    rest = several(padding, axes), several(dilation, axes), int(ceil_mode)
    return x.emit("max_pool", kernel, steps, *rest)


@rule("avg_pool1d", "avg_pool2d")
def _avg_pool(
    func: Any, x: Traced, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Traced:  # fmt: skip
    axes = 1 if "1d" in func.__name__ else 2
    if divisor_override is not None:
        raise not_possible("an average pooling with divisor_override")
    kernel = several(kernel_size, axes)
    steps = kernel if stride is None or stride == [] else several(stride, axes)
    x = require_batch_first(x, func.__name__)
    flags = int(ceil_mode), int(count_include_pad)
    return x.emit("avg_pool", kernel, steps, several(padding, axes), *flags)


@rule("adaptive_avg_pool1d", "adaptive_avg_pool2d")
def _adaptive_avg_pool(func: Any, x: Traced, output_size: Any) -> Traced:
    axes = 1 if "1d" in func.__name__ else 2
    x = require_batch_first(x, func.__name__)
    wanted = output_size if isinstance(output_size, list | tuple) else (output_size,) * axes
    sides = x.each[-axes:]
    sizes = tuple(s if w is None else int(w) for w, s in zip(wanted, sides, strict=True))
    return x if sizes == sides else x.emit("adaptive_avg_pool", sizes)


@rule("adaptive_max_pool1d", "adaptive_max_pool2d")
def _adaptive_max_pool(func: Any, x: Traced, output_size: Any, return_indices: bool = False) -> Any:
    axes = 1 if "1d" in func.__name__ else 2
    if return_indices or set(several(output_size, axes)) != {1}:
        raise not_possible("an adaptive max pooling to more than one number")
    return torch.amax(x, tuple(range(-axes, 0)), keepdim=True)


@rule("interpolate", "upsample", "upsample_nearest2d")
def _interpolate(
    _: Any, x: Traced, size: Any = None, scale_factor: Any = None, mode: str = "nearest", *__: Any,
    **___: Any,
) -> Traced:  # fmt: skip
    x = require_batch_first(x, "interpolate")
    sides = x.each[1:]
    if size is None:
        times = [float(f) for f in _spread(scale_factor, len(sides))]
    else:
        times = [n / s for n, s in zip(_spread(size, len(sides)), sides, strict=True)]
    if mode != "nearest" or any(t != int(t) or t < 1 for t in times):
        raise not_possible("an interpolation that does not repeat numbers a whole number of times")
    return x if math.prod(times) == 1 else x.emit("upsample", tuple(int(t) for t in times))


def _spread(value: Any, axes: int) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list | tuple) else (value,) * axes
