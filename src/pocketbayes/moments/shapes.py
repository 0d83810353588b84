"""Rules of operations that move numbers about, and along which dimensions noise is common then."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_leaves

from pocketbayes.moments.value import RULES, Moments, combined, no_rule, parts_of, rule

# A prime for the stride of each dimension tells where a dimension of a view comes from.
_PRIMES = (1000003, 1000033, 1000037, 1000039, 1000081, 1000099, 1000117, 1000121)
_MOVING = (
    "permute", "transpose", "swapaxes", "swapdims", "movedim", "moveaxis", "t", "T", "mT",
    "squeeze", "unsqueeze", "expand", "expand_as", "broadcast_to", "getitem", "select", "narrow",
    "chunk", "split", "tensor_split", "unbind", "diagonal", "index_select", "gather", "flip",
    "roll", "repeat", "tile", "repeat_interleave", "take_along_dim", "unfold", "tril", "triu",
    "contiguous", "cpu", "cuda", "pin_memory", "pixel_shuffle", "pixel_unshuffle",
    "channel_shuffle",
)  # fmt: skip
_HALVING = (torch.float16, torch.bfloat16)


def _moved(func: Any, x: Moments, *args: Any, **kwargs: Any) -> Any:
    """The same done to means and variances."""
    if not isinstance(x, Moments):
        raise TypeError("an index or a shape cannot be random")
    expected, variance = func(x.expected, *args, **kwargs), func(x.variance, *args, **kwargs)
    if isinstance(expected, Tensor):
        return Moments(expected, variance, _positions_after(func, x, expected, args, kwargs))
    pairs = zip(expected, variance, strict=True)
    places = _positions_after(func, x, expected[0], args, kwargs)
    return tuple(Moments(m, v, places) for m, v in pairs)


RULES.update(dict.fromkeys(_MOVING, _moved))


def _positions_after(
    func: Any, x: Moments, result: Tensor, args: Any, kwargs: Any
) -> tuple[bool, ...] | None:
    """By a view of a tensor without content whose strides are primes; copies keep their order."""
    if not any(x.positions):
        return None
    kept = x.positions if result.dim() == x.dim() else None
    if any(isinstance(t, Tensor) for t in tree_leaves((args, kwargs))):
        return kept
    probe = torch.empty_strided(x.shape, _PRIMES[: x.dim()], device="meta", dtype=x.dtype)
    view = func(probe, *args, **kwargs)
    view = view if isinstance(view, Tensor) else view[0]
    if view.untyped_storage()._cdata != probe.untyped_storage()._cdata:
        return kept
    places = zip(view.shape, view.stride(), strict=True)
    return tuple(size != 1 and _is_common(stride, x.positions) for size, stride in places)


def _is_common(stride: int, positions: tuple[bool, ...]) -> bool:
    """Whether noise is common along a dimension of this stride; 0: the same numbers again."""
    common = (c for prime, c in zip(_PRIMES, positions, strict=False) if stride % prime == 0)
    return stride == 0 or any(common)


def positions_regrouped(
    positions: Sequence[bool], old: Sequence[int], new: Sequence[int]
) -> tuple[bool, ...]:
    """After a reshape: a dimension is as all those that it was made from."""
    found, i, j = list[bool](), 0, 0
    while j < len(new):
        first, a, b = i, 1, new[j]
        a = old[i] if i < len(old) else 1
        i, k = i + 1, j + 1
        while a != b:
            if a < b and i < len(old):
                a, i = a * old[i], i + 1
            elif k < len(new):
                b, k = b * new[k], k + 1
            else:
                break
        used = [p for p, n in zip(positions[first:i], old[first:i], strict=True) if n != 1]
        found += [bool(used) and all(used)] * (k - j)
        j = k
    return tuple(found)


@rule("view", "reshape", "flatten", "unflatten", "view_as", "reshape_as", "ravel")
def _reshaped(func: Any, x: Moments, *args: Any, **kwargs: Any) -> Moments:
    args = tuple(a.expected if isinstance(a, Moments) else a for a in args)
    func = Tensor.reshape if func.__name__ == "view" else func
    expected, variance = (func(t, *args, **kwargs) for t in (x.expected, x.variance))
    places = None
    if any(x.positions) and x.numel():
        places = positions_regrouped(x.positions, x.shape, expected.shape)
    return Moments(expected, variance, places)


@rule("cat", "concat", "concatenate")
def _cat(_: Any, tensors: Sequence[Any], dim: int = 0) -> Moments:
    tensors = [t for t in tensors if t.dim() > 1 or t.numel()]
    means, variances = zip(*map(_full_parts, tensors), strict=True)
    return combined(torch.cat(means, dim), torch.cat(variances, dim), *tensors)


@rule("stack")
def _stack(_: Any, tensors: Sequence[Any], dim: int = 0) -> Moments:
    return _cat(None, [t.unsqueeze(dim) for t in tensors], dim)


def _full_parts(value: Any) -> tuple[Tensor, Tensor]:
    m, v = parts_of(value)
    return m, torch.zeros_like(m) if v is None else v


@rule("where")
def _where(_: Any, condition: Tensor, a: Any, b: Any) -> Moments:
    means, variances = zip(parts_of(a), parts_of(b), strict=True)
    v, w = (0.0 if variance is None else variance for variance in variances)
    return combined(torch.where(condition, *means), torch.where(condition, v, w), a, b)


@rule("masked_fill")
def _masked_fill(_: Any, x: Moments, mask: Tensor, value: Any) -> Moments:
    return combined(x.expected.masked_fill(mask, value), x.variance.masked_fill(mask, 0.0), x)


@rule("pad", "constant_pad_nd")
def _pad(
    _: Any, x: Moments, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Moments:
    if mode == "constant":
        expected, variance = F.pad(x.expected, pad, value=value or 0.0), F.pad(x.variance, pad)
    else:
        expected, variance = (F.pad(t, pad, mode=mode) for t in (x.expected, x.variance))
    return x.like(expected, variance)


@rule("setitem")
def _setitem(_: Any, x: Any, index: Any, value: Any) -> None:
    if not isinstance(x, Moments):
        raise no_rule("writing random values into a plain tensor")
    m, v = parts_of(value)
    x.expected, x.variance = x.expected.clone(), x.variance.clone()
    x.expected[index], x.variance[index] = m, 0.0 if v is None else v


@rule("iter")
def _iter(_: Any, x: Moments) -> Any:
    return iter(torch.unbind(x))


@rule("to", "type", "type_as", "float", "double", "half", "bfloat16")
def _converted(func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Another type or device; never to half precision, which ends where variances begin."""
    args = tuple(a.expected if isinstance(a, Moments) else a for a in args)
    if not isinstance(x, Moments):
        return func(x, *args, **kwargs)
    m = func(x.expected, *args, **kwargs)
    if not isinstance(m, Tensor) or not m.is_floating_point():
        raise no_rule(f"{func.__name__} to whole numbers")
    dtype = x.dtype if m.dtype in _HALVING else m.dtype
    return x.like(x.expected.to(m.device, dtype), x.variance.to(m.device, dtype))


@rule("zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like",
      "new_zeros", "new_ones", "new_full", "new_empty", "new_tensor")  # fmt: skip
def _plain(func: Any, x: Moments, *args: Any, **kwargs: Any) -> Any:
    return func(x.expected, *args, **kwargs)


@rule("embedding")
def _embedding(
    func: Any, index: Tensor, weight: Moments, padding_idx: Any = None, max_norm: Any = None,
    *_: Any, **__: Any,
) -> Moments:  # fmt: skip
    """The rows that are asked for; different rows are independent."""
    if max_norm is not None or isinstance(index, Moments):
        raise no_rule("embedding with max_norm")
    return Moments(F.embedding(index, weight.expected), F.embedding(index, weight.variance))


@rule("broadcast_tensors")
def _broadcast(_: Any, *tensors: Any) -> tuple[Any, ...]:
    shape = torch.broadcast_shapes(*(t.shape for t in tensors))  # type: ignore[no-untyped-call]
    return tuple(t.expand(shape) for t in tensors)


def without(positions: tuple[bool, ...], dims: Sequence[int], keep: bool) -> tuple[bool, ...]:
    """After a reduction over these dimensions, which stay with size 1 or go."""
    if keep:
        return tuple(p and d not in dims for d, p in enumerate(positions))
    return tuple(p for d, p in enumerate(positions) if d not in dims)
