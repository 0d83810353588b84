"""A point: the posterior of a deterministic weight, so that plain networks go the same way."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from pocketbayes.posteriors.base import Posterior, prior_std_from, require_real_arrays


class Point(Posterior):
    """All mass at `mean`: no variance, no noise, and a KL that counts as zero.

    The true KL to a Gaussian prior is infinite; a deterministic network has no such term.
    """

    is_random: ClassVar[bool] = False
    array_names = ("mean", "prior_std")

    def __init__(self, mean: Tensor, prior_std: float | Tensor) -> None:
        super().__init__(prior_std, like=mean)
        self.mean = mean if isinstance(mean, nn.Parameter) else nn.Parameter(mean)

    @property
    def shape(self) -> torch.Size:
        """The shape of the weight tensor."""
        return self.mean.shape

    def expectation(self) -> Tensor:
        """E[w] = mean."""
        return self.mean

    def moments(self) -> tuple[Tensor, Tensor]:
        """E[w] = mean, Var[w] = 0."""
        return self.mean, torch.zeros_like(self.mean)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """The mean: there is nothing to draw."""
        return self.mean

    def kl(self, prior_std: float | Tensor | None = None) -> Tensor:
        """0."""
        return self.prior_std.new_zeros(())

    def std_parameters(self) -> Iterator[nn.Parameter]:
        """None."""
        return iter(())

    def arrays(self) -> dict[str, Tensor]:
        """Means, and the prior's std for the day the network becomes Bayesian."""
        return {"mean": self.mean.detach(), "prior_std": self.prior_std.detach()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Tensor]) -> Self:
        """The point with this mean."""
        require_real_arrays(arrays["mean"])
        return cls(arrays["mean"], prior_std_from(arrays))
