"""Real values with outliers: Student's t around the network's output."""

import math

import torch
from torch import Tensor

from pocketbayes.likelihoods.base import Learned, ValueLikelihood, at_least_float32, spread_of
from pocketbayes.likelihoods.distributions import StudentT as StudentTDistribution
from pocketbayes.likelihoods.gaussian import LEAST_STD

SCALE, FREEDOM = "noise_log_scale", "noise_log_freedom"
_FREEDOM_AT_START = math.log(4)  # df = 2 + 4


class StudentT(ValueLikelihood):
    """target ~ output + scale t(df); scale and df > 2 are learned, one of each per output."""

    name = "student-t"
    learned = (SCALE, FREEDOM)

    def distribution(self, output: Tensor, learned: Learned, dim: int = 1) -> StudentTDistribution:
        """Student's t around the output."""
        scale, freedom = (learned[n].to(output.dtype).expand_as(output) for n in self.learned)
        return StudentTDistribution(output, scale, freedom)

    def start(self, output: Tensor, target: Tensor) -> dict[str, Tensor]:
        """A scale from the median absolute deviation, which outliers do not move; df = 6."""
        y = self.matched(output, target).float()
        robust = 1.4826 * (y - y.median(0).values).abs().median(0).values
        scale = torch.where(robust.isfinite() & (robust > 0), robust, spread_of(y)).log()
        return {SCALE: scale, FREEDOM: torch.full_like(scale, _FREEDOM_AT_START)}

    def unlearned(self, output: Tensor) -> dict[str, Tensor]:
        """A scale of 1e-6."""
        like = at_least_float32(output[0])
        return {
            SCALE: torch.full_like(like, math.log(LEAST_STD)),
            FREEDOM: torch.full_like(like, _FREEDOM_AT_START),
        }
