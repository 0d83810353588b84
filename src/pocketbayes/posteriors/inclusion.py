"""Whether a weight is there at all: the mathematics of spike-and-slab posteriors.

Pure functions. A group of weights shares one inclusion variable gamma ~ Bernoulli(p), p =
sigmoid(log_odds); where gamma = 1 each weight theta is Gaussian, else it is 0.
"""

from math import exp, log

import torch
import torch.nn.functional as F
from torch import Tensor

from pocketbayes.posteriors.randomness import normal_like

MOST_LOG_ODDS = 12.0
LEAST_INCLUSION = 1 / (1 + exp(MOST_LOG_ODDS))
# Of gates, which training draws: the noise in their optima grows like 1 / (p (1 - p)).
MOST_DRAWN_LOG_ODDS = 5.0
_MOST_LOG_PRECISION = 40.0  # its square still is a float32


def bernoulli_kl(log_odds: Tensor, prior_log_odds: Tensor) -> Tensor:
    """KL(Bern(p) || Bern(q)) = p (a - b) + log(1 + e^b) - log(1 + e^a), a and b the log-odds."""
    inclusion = torch.sigmoid(log_odds)
    apart = inclusion * (log_odds - prior_log_odds)
    return (apart + F.softplus(prior_log_odds) - F.softplus(log_odds)).clamp_min(0)


def included_moments(mean: Tensor, variance: Tensor, inclusion: Tensor) -> tuple[Tensor, Tensor]:
    """E and Var of gamma theta: p m and p v + p (1 - p) m^2."""
    return inclusion * mean, inclusion * variance + inclusion * (1 - inclusion) * mean.square()


def soft_gate(inclusion: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """P + sqrt(p (1 - p)) eps: the mean and variance of a gate, with a derivative in p."""
    if generator is None:
        noise = normal_like(inclusion)
    else:
        noise = torch.empty_like(inclusion).normal_(generator=generator)
    variance = (inclusion * (1 - inclusion)).clamp_min(torch.finfo(inclusion.dtype).tiny)
    return torch.addcmul(inclusion, variance.sqrt(), noise)


def stationary_log_odds(log_odds: Tensor, slope: Tensor) -> Tensor:
    """Where the ELBO has no slope in p, for the gain and the KL that it has now.

    That is b - KL + gain / beta, with b the prior's log-odds and gain = d E[log p(D | w)] / dp.
    The slope of the negative ELBO, divided by beta, in the log-odds a is
    p (1 - p) [KL + a - b - gain / beta]; so it is a - slope / (p (1 - p)).

    Args:
        log_odds: of the inclusion variables, a.
        slope: d(-ELBO / beta) / da.
    """
    on = torch.sigmoid(log_odds.clamp(-MOST_LOG_ODDS, MOST_LOG_ODDS))
    curve = (on * (on - 1)).clamp_max(-torch.finfo(on.dtype).tiny)
    return torch.addcdiv(log_odds, slope, curve)


def density_ratio(mean: Tensor, log_std: Tensor, slab_std: Tensor) -> Tensor:
    """log slab(0) - log q(0) = mean^2 / (2 std^2) + log std - log slab_std, of each weight.

    The gain of an inclusion variable less its KL, wherever q is the best Gaussian and the loss
    quadratic (Dickey 1971): how much less likely 0 became by looking at the data.
    """
    signal = mean * torch.exp((-log_std).clamp_max(_MOST_LOG_PRECISION))
    return signal.square() / 2 + log_std - slab_std.log()


def log_odds_of(probability: float) -> float:
    """ln(p / (1 - p)), within the bounds that inclusion variables are kept in."""
    odds = log(probability) - log(1 - probability)
    return min(max(odds, -MOST_LOG_ODDS), MOST_LOG_ODDS)
