"""Real values whose noise depends on the input: the network gives mean and log-variance."""

import torch
from torch import Tensor

from pocketbayes.errors import DataError
from pocketbayes.likelihoods.base import Learned, ValueLikelihood, matched_target, spread_of
from pocketbayes.likelihoods.distributions import Normal, bounded

_MOST_LOG_VARIANCE = 20.0


class Heteroscedastic(ValueLikelihood):
    """target ~ N(m, exp(v)); of 2k outputs the first k are m, the others v.

    Beyond -20 and 20, v is bounded softly.
    """

    name = "heteroscedastic"
    outputs_per_target = 2

    def distribution(self, output: Tensor, learned: Learned, dim: int = 1) -> Normal:
        """A normal distribution with a std for every example."""
        mean, log_variance = halves(output, dim)
        return Normal(mean, bounded(log_variance, _MOST_LOG_VARIANCE) / 2)

    def constant(self, output: Tensor, target: Tensor) -> Tensor:
        """Mean and log-variance of each target."""
        y = self.matched(output, target).float()
        return torch.cat([y.mean(0, keepdim=True), 2 * spread_of(y)[None].log()], 1)

    def matched(self, output: Tensor, target: Tensor) -> Tensor:
        """The target in the shape of the means, half of the output."""
        return matched_target(halves(output, 1)[0], target)


def halves(output: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Means and log-variances."""
    if output.dim() <= dim or output.shape[dim] % 2:
        raise DataError(
            f"the model's output is {tuple(output.shape[dim - 1 :])}; a heteroscedastic likelihood "
            "needs (batch, 2 k, ...) for k targets: k means, then k log-variances. Give the last "
            "layer twice as many outputs"
        )
    mean, log_variance = output.chunk(2, dim)
    return mean, log_variance
