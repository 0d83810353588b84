"""Scores of predicted numbers: pure functions of draws, intervals and targets, per target."""

import math

import torch
from torch import Tensor


def mixture_log_density(log_density: Tensor) -> Tensor:
    """Log of mean over s of prod over outputs p_s(target), from their logs (S, N, ...); (N,)."""
    per_sample = log_density.flatten(2).sum(2) if log_density.dim() > 2 else log_density
    return per_sample.logsumexp(0) - math.log(len(log_density))


def gaussian_mixture_crps(mean: Tensor, std: Tensor, target: Tensor) -> Tensor:
    """The exact CRPS of equal parts N(mean_s, std_s^2) (Grimit et al. 2006).

    It is E|Y - y| - E|Y - Y'| / 2, with E|N(m, s^2)| = m (2 Phi(m / s) - 1) + 2 s phi(m / s).
    """
    far = _mean_size(target - mean, std).mean(0)
    apart = torch.zeros_like(far)
    for one, its_std in zip(mean, std, strict=True):
        apart += _mean_size(one - mean, (its_std.square() + std.square()).sqrt()).mean(0)
    return far - apart / len(mean) / 2


def _mean_size(mean: Tensor, std: Tensor) -> Tensor:
    """E|X| of X ~ N(mean, std^2)."""
    z = mean / std.clamp_min(torch.finfo(std.dtype).tiny)
    density = torch.exp(-z.square() / 2) / math.sqrt(2 * math.pi)
    found: Tensor = mean * (2 * torch.special.ndtr(z) - 1) + 2 * std * density
    return found


def crps_of_draws(draws: Tensor, target: Tensor) -> Tensor:
    """An unbiased estimate of the CRPS from M > 1 draws: mean |y_i - y| - mean |y_i - y_j| / 2.

    The mean over pairs of different draws is sum_i (2 i - M - 1) y_(i) 2 / (M (M - 1)), of sorted
    draws.
    """
    count = len(draws)
    ordered = draws.sort(0).values
    weights = 2 * torch.arange(1, count + 1, dtype=draws.dtype, device=draws.device) - count - 1
    apart: Tensor = torch.tensordot(weights, ordered, 1) * 2 / (count * (count - 1))
    return (draws - target).abs().mean(0) - apart / 2


def interval_score(low: Tensor, high: Tensor, target: Tensor, coverage: float) -> Tensor:
    """Width plus 2 / (1 - coverage) times the distance of a target outside (Gneiting 2007)."""
    outside = (low - target).clamp_min(0) + (target - high).clamp_min(0)
    return high - low + outside * 2 / (1 - coverage)
