"""How much a weight matters: scores of q(w) = N(mean, std^2), by which sparse methods rank weights.

Pure functions of tensors (Li et al. 2024, section 3.3). They compute in float64, in forms that do
not cancel, since a NaN or a lost digit here removes the weights that are most certain.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

Criterion = Callable[[Tensor, Tensor], Tensor]
_SMALL = 1e-3


def magnitude(mean: Tensor, std: Tensor) -> Tensor:
    """|mean|."""
    return mean.abs()


def snr(mean: Tensor, std: Tensor) -> Tensor:
    """|mean| / std, the signal-to-noise ratio of w."""
    return mean.abs() / std


def expected_magnitude(mean: Tensor, std: Tensor) -> Tensor:
    """E|w| = |mean| erf(r / sqrt 2) + std sqrt(2 / pi) exp(-r^2 / 2), r = |mean| / std."""
    ratio = _ratio(mean, std)
    return ((ratio + _excess(ratio)) * std.double()).to(mean.dtype)


def snr_magnitude(mean: Tensor, std: Tensor) -> Tensor:
    """E|w| / sqrt(Var|w|), the signal-to-noise ratio of |w|; ranks weights exactly as `snr` does.

    With E|w| = std (r + e), e >= 0, the variance is std^2 (1 - e (2 r + e)): nothing cancels for
    large r, where 1 + r^2 - (r + e)^2 loses every digit.
    """
    ratio = _ratio(mean, std)
    excess = _excess(ratio)
    return ((ratio + excess) / (1 - excess * (2 * ratio + excess)).sqrt()).to(mean.dtype)


def expected_exp(mean: Tensor, std: Tensor, scale: float = 1.0) -> Tensor:
    """E exp(scale |w|), in closed form from the normal distribution function."""
    ratio, width = _ratio(mean, std), scale * std.double()
    log_value = ratio * width + width.square() / 2 + _log_tail_sum(ratio, width)
    return log_value.exp().to(mean.dtype)


def snr_exp(mean: Tensor, std: Tensor, scale: float = 1.0) -> Tensor:
    """E exp(scale |w|) over its standard deviation. It *falls* with |mean|: for ablations only.

    With A(t) = E exp(t |w|) it is 1 / sqrt(A(2 scale) / A(scale)^2 - 1). The logarithm of that
    ratio comes from the cumulants of |w| where scale * std is small and logarithms would cancel.
    """
    ratio, width = _ratio(mean, std), scale * std.double()
    by_logs = width.square() + _log_tail_sum(ratio, 2 * width) - 2 * _log_tail_sum(ratio, width)
    log_ratio = torch.where(width < _SMALL, _log_ratio_by_cumulants(ratio, width), by_logs)
    score: Tensor = log_ratio.expm1().rsqrt()
    return score.to(mean.dtype)


def _ratio(mean: Tensor, std: Tensor) -> Tensor:
    return mean.double().abs() / std.double()


def _excess(ratio: Tensor) -> Tensor:
    """E|z| - r for z ~ N(r, 1), r >= 0."""
    density = math.sqrt(2 / math.pi) * torch.exp(-ratio.square() / 2)
    tail: Tensor = torch.special.erfc(ratio / math.sqrt(2))
    return (density - ratio * tail).clamp_min(0)


def _log_tail_sum(ratio: Tensor, width: Tensor) -> Tensor:
    """log [Phi(r + t) + exp(-2 r t) Phi(t - r)]: log E exp(t |z|) less r t + t^2 / 2."""
    right = torch.special.log_ndtr(ratio + width)
    left = torch.special.log_ndtr(width - ratio) - 2 * ratio * width
    return torch.logaddexp(right, left)


def _log_ratio_by_cumulants(ratio: Tensor, width: Tensor) -> Tensor:
    """log A(2 t) - 2 log A(t) = k2 t^2 + k3 t^3 + 7/12 k4 t^4 + ..., cumulants of |z|."""
    excess = _excess(ratio)
    density = math.sqrt(2 / math.pi) * torch.exp(-ratio.square() / 2)
    first, second = ratio + excess, 1 + ratio.square()
    variance = 1 - excess * (2 * ratio + excess)
    # E|z|^3 = (r^3 + 3 r) erf + (r^2 + 2) density, and E z^4 = r^4 + 6 r^2 + 3. In cumulants:
    sure = excess < 1e-8  # |z| is z itself there: a Gaussian has no further cumulants
    third = (ratio**3 + 3 * ratio) * torch.special.erf(ratio / math.sqrt(2))
    third = third + (ratio.square() + 2) * density
    fourth = ratio**4 + 6 * ratio.square() + 3
    k3: Tensor = third - 3 * first * second + 2 * first**3
    k4: Tensor = fourth - 4 * third * first - 3 * second**2 + 12 * second * first**2 - 6 * first**4
    further = k3 * width + 7 / 12 * k4 * width.square()
    return width.square() * (variance + further.masked_fill(sure, 0.0))


CRITERIA: dict[str, Criterion] = {
    "magnitude": magnitude,
    "snr": snr,
    "expected_magnitude": expected_magnitude,
    "snr_magnitude": snr_magnitude,
    "expected_exp": expected_exp,
    "snr_exp": snr_exp,
}
