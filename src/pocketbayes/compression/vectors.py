"""Coarse storage of biases and norms: numbers in steps that hide behind what they are added to."""

import math

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

_SHARE = 1 / 16  # at a tolerance of 1 a step is so much of what it is compared with


@torch.no_grad()
def round_vectors_(model: nn.Module, tolerance: float) -> None:
    """Biases, and scales, means and variances of norms as multiples of powers of two, in place.

    With d = sqrt(tolerance) / 16, rounded down to a power of two, steps are at most, for

    - scales and biases of a norm, y = w (x - m) / s + b: d rms(w);
    - other biases: d rms(b);
    - the mean and variance of a channel: d s and 2 d s^2.
    """
    share = 2.0 ** math.floor(math.log2(_SHARE * math.sqrt(tolerance)))
    for module in model.modules():
        own = {name: module._parameters.get(name) for name in ("weight", "bias")}
        vectors = [p for p in own.values() if p is not None and _is_vector(p)]
        if vectors:
            step = share * vectors[0].double().square().mean().sqrt()
            for vector in vectors:
                _round_(vector, step)
        if isinstance(module, _NormBase):
            _round_moments_(module, share)


def _is_vector(values: Tensor) -> bool:
    """Whether it is one number for each channel."""
    return values.dim() == 1 and values.is_floating_point() and values.numel() > 1


def _round_moments_(norm: _NormBase, share: float) -> None:
    mean, var = norm.running_mean, norm.running_var
    if mean is not None and var is not None and _is_vector(var):
        _round_(mean, share * (var.double() + norm.eps).sqrt())
        _round_(var, 2 * share * var.double())


def _round_(values: Tensor, steps: Tensor) -> None:
    """To the nearest multiples of the largest powers of two that are no larger than the steps."""
    powers = torch.exp2(steps.log2().floor())
    rounded = (values.double() / powers).round() * powers
    values.copy_(torch.where(rounded.isfinite(), rounded, values.double()))
