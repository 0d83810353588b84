"""Counts that spread more than a Poisson's: the network gives the log of their mean."""

import torch
from torch import Tensor

from pocketbayes.likelihoods.base import CountLikelihood, Learned, at_least_float32, mean_count
from pocketbayes.likelihoods.distributions import NegativeBinomial as Distribution

DISPERSION = "noise_log_dispersion"
_AS_GOOD_AS_POISSON = -15.0


class NegativeBinomial(CountLikelihood):
    """Counts of mean m = exp(output) and variance m + a m^2; a is learned, one per output."""

    name = "negative-binomial"
    learned = (DISPERSION,)

    def distribution(self, output: Tensor, learned: Learned, dim: int = 1) -> Distribution:
        """Negative binomial with this log-mean."""
        return Distribution(output, learned[DISPERSION].to(output.dtype).expand_as(output))

    def start(self, output: Tensor, target: Tensor) -> dict[str, Tensor]:
        """a = (variance - mean) / mean^2 of the targets, between 0.01 and 10."""
        y = self.matched(output, target).float()
        mean = y.mean(0).clamp_min(1e-3)
        excess = (y.var(0, correction=0) - mean) / mean.square()
        return {DISPERSION: excess.clamp(0.01, 10).log()}

    def constant_nll(self, sums: Tensor, best_for: Tensor) -> Tensor:
        """By the better one of a = 0 and a = 1."""
        mean = mean_count(best_for)
        geometric = ((sums[0] + sums[1]) * mean.log1p() - sums[1] * mean.log()).sum()
        return geometric.minimum(super().constant_nll(sums, best_for))

    def unlearned(self, output: Tensor) -> dict[str, Tensor]:
        """As good as none: a Poisson distribution."""
        return {DISPERSION: torch.full_like(at_least_float32(output[0]), _AS_GOOD_AS_POISSON)}
