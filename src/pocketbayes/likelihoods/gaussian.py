"""Real values: a Gaussian around the network's output, with a learned std per output."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from pocketbayes.errors import DataError
from pocketbayes.likelihoods.base import Learned, ValueLikelihood, at_least_float32, spread_of
from pocketbayes.likelihoods.distributions import Normal

NOISE = "noise_log_std"
LEAST_STD = 1e-6  # of a network that repeats its targets, or never learned a noise


class Gaussian(ValueLikelihood):
    """target ~ N(output, exp(noise_log_std)^2)."""

    name = "gaussian"
    learned = (NOISE,)

    def distribution(self, output: Tensor, learned: Learned, dim: int = 1) -> Normal:
        """A normal distribution around the output."""
        return Normal(output, learned[NOISE].to(output.dtype).expand_as(output))

    def start(self, output: Tensor, target: Tensor) -> dict[str, Tensor]:
        """The spread of the targets."""
        return {NOISE: spread_of(self.matched(output, target).float()).log()}

    def unlearned(self, output: Tensor) -> dict[str, Tensor]:
        """A noise of 1e-6."""
        return {NOISE: torch.full_like(at_least_float32(output[0]), math.log(LEAST_STD))}

    def fitted(self, batches: Iterable[tuple[Tensor, Tensor]], begin: Learned) -> dict[str, Tensor]:
        """std^2 = E (y - output)^2, over examples and draws."""
        like = begin[NOISE]
        total = torch.zeros_like(like, dtype=torch.promote_types(like.dtype, torch.float32))
        count = 0
        for draws, target in batches:
            y = self.matched(draws[0], target).to(draws.dtype)
            total += (y - draws).square().sum((0, 1))
            count += draws.shape[0] * draws.shape[1]
        if count == 0:
            raise DataError("there is no batch to estimate the noise from")
        return {NOISE: (total / count).clamp(min=LEAST_STD**2).log() / 2}
