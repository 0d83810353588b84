"""Moments of functions of Gaussians: half moments, clipping, the larger of two, quadrature."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pocketbayes.moments.value import Moments, combined, parts_of

NODES = 16
MANY_NODES = 64  # for functions with kinks or jumps
_AT_ONCE = 1 << 20  # numbers that quadrature holds at a time
_ROOT_HALF, _DENSITY = math.sqrt(0.5), 1 / math.sqrt(2 * math.pi)


def half_moments(m: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance of max(x, 0), and P(x > 0), for x ~ N(m, v), v = s^2.

    With a = m / s: P = Phi(a), mean = m P + s phi(a), variance = v P + mean (m - mean).
    """
    std = _std(v)
    scaled = torch.div(m, std).mul_(_ROOT_HALF)
    above = torch.erf(scaled).add_(1).mul_(0.5)
    density = _exp_(scaled.square_().neg_()).mul_(std)
    mean = torch.mul(m, above).add_(density, alpha=_DENSITY)
    variance = torch.sub(m, mean, out=std).mul_(mean).addcmul_(v, above).clamp_min_(0)
    return mean, variance, above


def _exp_(x: Tensor) -> Tensor:
    """exp(x) in place, and 0 where it is subnormal or nearly: there x86 takes 50 times as long."""
    if x.is_cuda:
        return x.exp_()
    tiny = torch.finfo(torch.promote_types(x.dtype, torch.float32)).tiny
    return F.threshold(x.clamp_min_(math.log(tiny) + 1).exp_(), 4 * tiny, 0.0, inplace=True)


def leaky_moments(m: Tensor, v: Tensor, slope: Any) -> tuple[Tensor, Tensor]:
    """Mean and variance of c x + (1 - c) r, r = max(x, 0): Cov(x, r) = v P(x > 0)."""
    half, spread, above = half_moments(m, v)
    rest = 1 - slope
    variance = slope**2 * v + rest**2 * spread + 2 * slope * rest * v * above
    return slope * m + rest * half, variance.clamp_min(0)


def clipped_moments(m: Tensor, v: Tensor, low: Any, high: Any) -> tuple[Tensor, Tensor]:
    """Mean and variance of min(max(x, low), high), by the moments of what lies between.

    With z = x - m cut to [a, b] = [low - m, high - m]: E z = a P(z < a) + b P(z > b) + E between.
    """
    std = _std(v)
    a, b = (torch.as_tensor(bound).to(m) - m for bound in (low, high))
    a, b = torch.maximum(a, -40 * std), torch.minimum(b, 40 * std)  # bounds may be infinite
    below, under = (torch.erfc(t / std * -_ROOT_HALF) / 2 for t in (a, b))
    beyond = torch.erfc(b / std * _ROOT_HALF) / 2
    left, right = (std * _DENSITY * torch.exp(-(t / std).square() / 2) for t in (a, b))
    first = a * below + b * beyond + left - right
    between = v * (under - below) + a * left - b * right
    second = a.square() * below + b.square() * beyond + between
    return m + first, (second - first.square()).clamp_min(0)


def tail_moments(m: Tensor, v: Tensor, bound: float) -> tuple[Tensor, Tensor, Tensor]:
    """P(x > t), E[x; x > t] and E[x^2; x > t]: P, m P + s phi, (m^2 + v) P + s (m + t) phi."""
    std = _std(v)
    scaled = (m - bound) / std
    above = torch.erfc(scaled * -_ROOT_HALF) / 2
    density = std * _DENSITY * torch.exp(-scaled.square() / 2)
    return above, m * above + density, (m.square() + v) * above + (m + bound) * density


def larger_moments(m: Tensor, v: Tensor, n: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of the larger of two independent Gaussians, as Clark (1961) has them.

    With x the one whose mean is larger, max(x, y) = x + r, r = max(y - x, 0),
    y - x ~ N(-|m - n|, v + w), Cov(x, r) = -v P(y > x).
    """
    own = torch.where(m >= n, v, w)
    half, spread, above = half_moments((m - n).abs_().neg_(), v + w)
    return half.add_(torch.maximum(m, n)), spread.addcmul_(own, 1 - 2 * above).clamp_min_(0)


def larger_of(a: Any, b: Any) -> Moments:
    """The larger of two, number by number."""
    (m, v), (n, w) = parts_of(a), parts_of(b)
    none = torch.zeros((), dtype=m.dtype, device=m.device)
    v, w = (none if variance is None else variance for variance in (v, w))
    m, n, v, w = torch.broadcast_tensors(m, n, v, w)  # type: ignore[no-untyped-call]
    return combined(*larger_moments(m, v, n, w), a, b)


def quadrature(function: Callable[[Tensor], Tensor], x: Moments, nodes: int = NODES) -> Moments:
    """Mean and variance of f(x) by Gauss and Hermite: sum_i w_i f(m + s x_i), exact to degree 2n-1.

    Sums are those of f - f(m), so that a narrow Gaussian loses no digits.
    """
    m, std = x.expected, x.variance.sqrt()
    points, weights = _hermite(nodes, m.dtype, m.device)
    centre, first, second = function(m), torch.zeros_like(m), torch.zeros_like(m)
    at_once = nodes
    if not torch.compiler.is_exporting():  # a graph is for batches of any size
        at_once = max(1, min(nodes, _AT_ONCE // max(1, m.numel())))
    parts = (torch.split(t, at_once) for t in (points, weights))
    for point, weight in zip(*parts, strict=True):
        apart = function(m + std * point.view(-1, *(1 for _ in m.shape))) - centre
        first += torch.tensordot(weight, apart, 1)
        second += torch.tensordot(weight, apart.square(), 1)
    return x.like(centre + first, (second - first.square()).clamp_min(0))


@cache
def _hermite(nodes: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    weights = weights / weights.sum()
    return tuple(torch.tensor(a, dtype=dtype, device=device) for a in (points, weights))  # type: ignore[return-value]


def _std(v: Tensor) -> Tensor:
    return v.clamp_min(torch.finfo(v.dtype).tiny).sqrt_()
