"""Rules of normalisation: statistics are those of a mean draw, and noise moves them, too."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pocketbayes.moments.value import Moments, no_rule, rule


def standardised(x: Moments, dims: Sequence[int], eps: float) -> Moments:
    """(x - mean) / sqrt(var + eps) over some dimensions of n numbers that are independent.

    The statistic var is E of what a draw has, var(m) + (1 - 1/n) mean(v).
    """
    m, v, dims = x.expected, x.variance, tuple(dims)
    spread, centre = torch.var_mean(m, dims, correction=0, keepdim=True)
    noise = v.mean(dims, keepdim=True)
    share = noise.numel() / max(1, v.numel())
    scale = torch.rsqrt(spread + (1 - share) * noise + eps)
    return _scaled(x.like(m - centre, v), dims, scale, share, noise)


def _scaled(
    x: Moments, dims: tuple[int, ...], scale: Tensor, share: Any, noise: Tensor | None = None
) -> Moments:
    """Y = x c to first order, where c is 1 / the root of a mean square with shares 1/n.

    dy_i / dx_j = c (1[i = j] - (k + y_i y_j) / n), so that with means over j of v_j, y_j v_j and
    y_j^2 v_j: Var y_i = c^2 (v_i (1 - 2 (k + y_i^2) / n) + (k A + 2 k y_i B + y_i^2 C) / n).
    k is 1 if a mean is taken away before, whose `noise` is A; else 0.
    """
    y, v = x.expected * scale, x.variance
    square, count = y.square(), 1 / share
    second = (square * v).sum(dims, keepdim=True) * share
    own, all_of_them = square, square * second
    if noise is not None:
        own = square + 1
        all_of_them = all_of_them + noise + 2 * y * (y * v).sum(dims, keepdim=True) * share
    variance = v * (1 - 2 * own / count) + all_of_them / count
    return x.like(y, (variance * scale.square()).clamp_min_(0))


def _affine(x: Any, weight: Any, bias: Any, shape: Sequence[int]) -> Any:
    """Weight x + bias, of which each may be random, in a shape that goes with x."""
    x = x if weight is None else x * weight.view(shape)
    return x if bias is None else x + bias.view(shape)


@rule("layer_norm")
def _layer_norm(
    func: Any, x: Any, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None,
    eps: float = 1e-5, *_: Any,
) -> Moments:  # fmt: skip
    if isinstance(x, Moments):
        normal: Any = standardised(x, range(-len(normalized_shape), 0), eps)
    else:
        normal = func(x, normalized_shape, None, None, eps)
    return _affine(normal, weight, bias, tuple(normalized_shape))  # type: ignore[no-any-return]


@rule("rms_norm")
def _rms_norm(
    func: Any, x: Any, normalized_shape: Sequence[int], weight: Any = None, eps: Any = None
) -> Moments:
    if isinstance(x, Moments):
        dims = tuple(range(-len(normalized_shape), 0))
        eps = torch.finfo(x.dtype).eps if eps is None else eps
        square = (x.expected.square() + x.variance).mean(dims, keepdim=True)
        x = _scaled(x, dims, torch.rsqrt(square + eps), square.numel() / max(1, x.numel()))
    else:
        x = func(x, normalized_shape, None, eps)
    return _affine(x, weight, None, tuple(normalized_shape))  # type: ignore[no-any-return]


@rule("group_norm")
def _group_norm(
    func: Any, x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5,
    *_: Any,
) -> Moments:  # fmt: skip
    if isinstance(x, Moments):
        m, v = (t.reshape(x.shape[0], num_groups, -1) for t in (x.expected, x.variance))
        normal = standardised(Moments(m, v), (2,), eps)
        normal = x.like(normal.expected.view(x.shape), normal.variance.view(x.shape))
    else:
        normal = func(x, num_groups, None, None, eps)
    return _affine(normal, weight, bias, (-1, *(1 for _ in x.shape[2:])))  # type: ignore[no-any-return]


@rule("instance_norm")
def _instance_norm(
    func: Any, x: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None,
    bias: Any = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
    *_: Any,
) -> Moments:  # fmt: skip
    if not use_input_stats:
        return _batch_norm(None, x, running_mean, running_var, weight, bias, eps=eps)
    return _group_norm(F.group_norm, x, x.shape[1], weight, bias, eps)


@rule("batch_norm")
def _batch_norm(
    _: Any, x: Any, running_mean: Tensor | None, running_var: Tensor | None, weight: Any = None,
    bias: Any = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5, *__: Any,
) -> Moments:  # fmt: skip
    """By running statistics an affine map; else by those of the batch, which is left as it is."""
    shape = (-1, *(1 for _ in x.shape[2:]))
    if training or running_mean is None or running_var is None:
        dims = [d for d in range(x.dim()) if d != 1]
        moments = x if isinstance(x, Moments) else Moments(x, torch.zeros_like(x))
        return _affine(standardised(moments, dims, eps), weight, bias, shape)  # type: ignore[no-any-return]
    scale = torch.rsqrt(running_var + eps)
    if isinstance(x, Moments) and not isinstance(weight, Moments) and not isinstance(bias, Moments):
        expected = F.batch_norm(x.expected, running_mean, running_var, weight, bias, eps=eps)
        scale = scale if weight is None else scale * weight
        return x.like(expected, x.variance * scale.square().view(shape))
    normal = x * scale.view(shape) - (running_mean * scale).view(shape)
    return _affine(normal, weight, bias, shape)  # type: ignore[no-any-return]


@rule("normalize")
def _normalize(
    _: Any, x: Moments, p: float = 2.0, dim: int = 1, eps: float = 1e-12, **__: Any
) -> Moments:
    """X / |x|, with E |x|^2 under the root."""
    if p != 2.0:
        raise no_rule(f"normalize(p={p})")
    square = (x.expected.square() + x.variance).sum(dim, keepdim=True)
    return _scaled(x, (dim,), 1 / square.sqrt().clamp_min(eps), 1.0)
