"""Counts: the network gives the log of their rate."""

from torch import Tensor

from pocketbayes.likelihoods.base import CountLikelihood, Learned
from pocketbayes.likelihoods.distributions import Poisson as PoissonDistribution


class Poisson(CountLikelihood):
    """target ~ Poisson(exp(output)): the variance is the mean."""

    name = "poisson"

    def distribution(self, output: Tensor, learned: Learned, dim: int = 1) -> PoissonDistribution:
        """Poisson with this log-rate."""
        return PoissonDistribution(output)
