"""Rules of functions of one number: exact for what is piecewise linear, else by quadrature."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pocketbayes.moments.arithmetic import product_of
from pocketbayes.moments.gaussians import (
    MANY_NODES,
    NODES,
    clipped_moments,
    half_moments,
    leaky_moments,
    quadrature,
    tail_moments,
)
from pocketbayes.moments.value import RULES, Moments, no_rule, rule

_SMOOTH: dict[str, Callable[..., Tensor]] = {
    "tanh": torch.tanh, "sigmoid": torch.sigmoid, "logsigmoid": F.logsigmoid,
    "log_sigmoid": F.logsigmoid, "gelu": F.gelu, "silu": F.silu, "mish": F.mish,
    "softplus": F.softplus, "elu": F.elu, "selu": F.selu, "celu": F.celu,
    "softsign": F.softsign, "tanhshrink": F.tanhshrink, "sin": torch.sin, "cos": torch.cos,
    "erf": torch.erf, "atan": torch.atan, "arctan": torch.atan, "expm1": torch.expm1,
    "sinh": torch.sinh, "cosh": torch.cosh, "exp2": torch.exp2,
}  # fmt: skip


def _by_quadrature(function: Callable[..., Tensor], nodes: int) -> Callable[..., Moments]:
    def applied(_: Any, x: Moments, *args: Any, **kwargs: Any) -> Moments:
        return quadrature(lambda t: function(t, *args, **kwargs), x, nodes)

    return applied


RULES.update({name: _by_quadrature(f, NODES) for name, f in _SMOOTH.items()})
RULES["hardswish"] = _by_quadrature(F.hardswish, MANY_NODES)


@rule("relu")
def _relu(_: Any, x: Moments) -> Moments:
    mean, variance, _above = half_moments(x.expected, x.variance)
    return x.like(mean, variance)


@rule("leaky_relu")
def _leaky(_: Any, x: Moments, negative_slope: float = 0.01) -> Moments:
    return x.like(*leaky_moments(x.expected, x.variance, negative_slope))


@rule("prelu")
def _prelu(_: Any, x: Moments, weight: Tensor) -> Moments:
    if weight.numel() > 1:
        weight = weight.view(-1, *(1 for _ in x.shape[2:]))
    return x.like(*leaky_moments(x.expected, x.variance, weight))


@rule("abs", "absolute")
def _abs(_: Any, x: Moments) -> Moments:
    return x.like(*leaky_moments(x.expected, x.variance, -1))


@rule("hardtanh")
def _hardtanh(_: Any, x: Moments, min_val: float = -1.0, max_val: float = 1.0) -> Moments:
    return x.like(*clipped_moments(x.expected, x.variance, min_val, max_val))


@rule("relu6")
def _relu6(_: Any, x: Moments) -> Moments:
    return x.like(*clipped_moments(x.expected, x.variance, 0.0, 6.0))


@rule("clamp", "clip")
def _clamp(_: Any, x: Moments, min: Any = None, max: Any = None) -> Moments:  # noqa: A002
    low = -math.inf if min is None else min
    high = math.inf if max is None else max
    return x.like(*clipped_moments(x.expected, x.variance, low, high))


@rule("clamp_min")
def _clamp_min(func: Any, x: Moments, min: Any) -> Moments:  # noqa: A002
    return _clamp(func, x, min=min)


@rule("clamp_max")
def _clamp_max(func: Any, x: Moments, max: Any) -> Moments:  # noqa: A002
    return _clamp(func, x, max=max)


@rule("hardsigmoid")
def _hardsigmoid(_: Any, x: Moments) -> Moments:
    mean, variance = clipped_moments(x.expected, x.variance, -3.0, 3.0)
    return x.like(mean / 6 + 0.5, variance / 36)


@rule("softshrink")
def _softshrink(_: Any, x: Moments, lambd: float = 0.5) -> Moments:
    """Max(x - c, 0) - max(-x - c, 0), one of which is 0: Cov = -(-m1 m2)."""
    (m, v, _p), (n, w, _q) = (
        half_moments(t - lambd, x.variance) for t in (x.expected, -x.expected)
    )
    return x.like(m - n, v + w + 2 * m * n)


@rule("hardshrink")
def _hardshrink(_: Any, x: Moments, lambd: float = 0.5) -> Moments:
    (_p, m, s), (_q, n, r) = (tail_moments(t, x.variance, lambd) for t in (x.expected, -x.expected))
    return x.like(m - n, (s + r - (m - n).square()).clamp_min(0))


@rule("threshold")
def _threshold(_: Any, x: Moments, threshold: float, value: float) -> Moments:
    above, first, second = tail_moments(x.expected, x.variance, threshold)
    mean = first + value * (1 - above)
    return x.like(mean, (second + value**2 * (1 - above) - mean.square()).clamp_min(0))


@rule("exp")
def _exp(_: Any, x: Moments) -> Moments:
    """The log-normal's: exp(m + v / 2), and that squared times exp(v) - 1."""
    mean = torch.exp(x.expected + x.variance / 2)
    return x.like(mean, mean.square() * torch.expm1(x.variance))


@rule("glu")
def _glu(_: Any, x: Moments, dim: int = -1) -> Moments:
    value, gate = torch.chunk(x, 2, dim)
    return product_of(value, torch.sigmoid(gate))


@rule("softmax")
def _softmax(_: Any, x: Moments, dim: int, *__: Any, **___: Any) -> Moments:
    """To first order: p = softmax(m), Var_i = p_i^2 (v_i (1 - 2 p_i) + sum_j p_j^2 v_j)."""
    p, v = x.expected.softmax(dim), x.variance
    spread = v * (1 - 2 * p) + (p.square() * v).sum(dim, keepdim=True)
    return x.like(p, (p.square() * spread).clamp_min(0))


@rule("log_softmax")
def _log_softmax(_: Any, x: Moments, dim: int, *__: Any, **___: Any) -> Moments:
    """To first order: Var_i = v_i (1 - 2 p_i) + sum_j p_j^2 v_j."""
    logs, v = x.expected.log_softmax(dim), x.variance
    p = logs.exp()
    spread = v * (1 - 2 * p) + (p.square() * v).sum(dim, keepdim=True)
    return x.like(logs, spread.clamp_min(0))


@rule("dropout", "dropout1d", "dropout2d", "dropout3d", "feature_dropout")
def _dropout(_: Any, x: Any, p: float = 0.5, training: bool = True) -> Any:
    """Nothing in evaluation; else x b / (1 - p): mean m, variance (m^2 + v) / (1 - p) - m^2."""
    if not training or p == 0:
        return x
    return x.like(x.expected, (x.variance + p * x.expected.square()) / (1 - p))


@rule("alpha_dropout", "feature_alpha_dropout")
def _alpha_dropout(_: Any, x: Moments, p: float = 0.5, training: bool = False) -> Moments:
    if training and p > 0:
        raise no_rule("alpha_dropout in training")
    return x
