"""Coarse storage of biases and norms: numbers in steps that hide behind what they are added to."""

import math
from collections import Counter

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

_SHARE = 1 / 16  # at a tolerance of 1 a step is so much of what it is compared with
_LEAST = 2.0**-22  # variance, so that float16 keeps it from 0


@torch.no_grad()
def round_vectors_(model: nn.Module, tolerance: float) -> None:
    """Biases, and scales, means and variances of norms in few digits, in place.

    With d = sqrt(tolerance) / 16, rounded down to a power of two, they become multiples of powers
    of two that are at most, for

    - scales and biases of a norm, y = w (x - m) / s + b: d rms(w);
    - other biases: d rms(b);
    - the mean of a channel: s / 2, and its variance has two binary digits, as scale and bias
      make up for both (`_move_moments_`); d s and 2 d s^2 where the norm has none of its own.
    """
    share = 2.0 ** math.floor(math.log2(_SHARE * math.sqrt(tolerance)))
    users = Counter(
        id(t) for m in model.modules() for t in (*m._parameters.values(), *m._buffers.values())
    )
    for module in model.modules():
        own = {name: module._parameters.get(name) for name in ("weight", "bias")}
        vectors = [p for p in own.values() if p is not None and _is_vector(p)]
        steps = share * vectors[0].double().square().mean().sqrt() if vectors else torch.ones(())
        if isinstance(module, _NormBase) and (moments := _moments_of(module)):
            if len(vectors) == 2 and all(users[id(t)] == 1 for t in (*vectors, *moments)):
                _move_moments_(vectors[0], vectors[1], *moments, module.eps)
            else:
                _round_moments_(*moments, module.eps, share)
        for vector in vectors:
            _round_(vector, steps)


def _is_vector(values: Tensor) -> bool:
    """Whether it is one number for each channel."""
    return values.dim() == 1 and values.is_floating_point() and values.numel() > 1


def _moments_of(norm: _NormBase) -> tuple[Tensor, Tensor] | None:
    """Mean and variance of each channel, where the norm keeps them."""
    mean, var = norm.running_mean, norm.running_var
    return (mean, var) if mean is not None and var is not None and _is_vector(var) else None


def _move_moments_(weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, eps: float) -> None:
    """Coarse moments m', v', and the scale and bias that give the same numbers with them.

        w' = w s' / s,    b' = b + w (m' - m) / s,    s^2 = v + eps.

    They stay near the real ones, within s / 4 and 12% of s, as training and `refresh_norms_` put
    real ones in their place. A channel that never varied, v = 0, becomes its bias, also for inputs
    that vary: of pruned networks these are many.
    """
    old = weight, bias, mean, var
    w, b, m, v = (values.double() for values in old)
    coarse = _in_two_digits(v.clamp_min(max(eps / 64, _LEAST)))
    unit = (coarse + eps).log2().div(2).floor().exp2() / 2
    middle = (m / unit).round() * unit
    std, after = (v + eps).sqrt(), (coarse + eps).sqrt()
    moved = torch.stack([w * after / std, b + w * (middle - m) / std, middle, coarse])
    constant = torch.stack([torch.zeros_like(b), b, torch.zeros_like(b), v])
    new = torch.where(v == 0, constant, moved)
    fine = torch.stack([n.to(o.dtype).isfinite() for n, o in zip(new, old, strict=True)]).all(0)
    for values, numbers in zip(old, new, strict=True):
        values.copy_(torch.where(fine, numbers, values.double()))


def _in_two_digits(values: Tensor) -> Tensor:
    """To the nearest of 2 and 3 times powers of two."""
    fraction, exponent = torch.frexp(values)
    return torch.ldexp((fraction * 4).round() / 4, exponent)


def _round_moments_(mean: Tensor, var: Tensor, eps: float, share: float) -> None:
    _round_(mean, share * (var.double() + eps).sqrt())
    _round_(var, 2 * share * var.double())


def _round_(values: Tensor, steps: Tensor) -> None:
    """To the nearest multiples of the largest powers of two that are no larger than the steps."""
    powers = torch.exp2(steps.log2().floor())
    rounded = (values.double() / powers).round() * powers
    values.copy_(torch.where(rounded.isfinite(), rounded, values.double()))
