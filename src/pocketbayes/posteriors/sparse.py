"""Sparse families: a mean, and for a Gaussian a standard deviation, for the active weights only."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from pocketbayes.posteriors.base import prior_std_from, require_real_arrays
from pocketbayes.posteriors.gaussian import gaussian_kl, mean_square, reparameterised, square_of_exp
from pocketbayes.posteriors.packed import Packed, checked_places
from pocketbayes.posteriors.reuse import remembered


class Sparse(Packed):
    """q(w_i) = N(mean_i, exp(log_std_i)^2) for the active i; every other weight is exactly 0.

    The KL is that given the support: an inactive weight costs nothing.
    """

    array_names = ("index", "mean", "log_std", "prior_std", "shape", "structure")

    def __init__(
        self,
        index: Tensor,
        mean: Tensor,
        log_std: Tensor,
        shape: torch.Size | tuple[int, ...],
        prior_std: float | Tensor,
        structure: str = "none",
        trainable: bool = True,
    ) -> None:
        super().__init__(index, mean, shape, prior_std, structure, trainable)
        self.log_std = nn.Parameter(log_std, trainable)

    @property
    def std(self) -> Tensor:
        """The standard deviation of every active weight."""
        return self.log_std.exp()

    @property
    def is_normal(self) -> bool:
        """It is."""
        return True

    def moments(self) -> tuple[Tensor, Tensor]:
        """E[w] and Var[w]; both are 0 where a weight is not active."""
        return remembered(("moments", self.mean), self._moments)

    def _moments(self) -> tuple[Tensor, Tensor]:
        return self.expectation(), self.placed(square_of_exp(self.log_std))

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """W = mean + std * eps on the active weights, eps ~ N(0, 1)."""
        return self.placed(reparameterised(self.mean, self.log_std, generator), record=True)

    def kl(self, prior_std: float | Tensor | None = None) -> Tensor:
        """KL(q || N(0, p^2)), summed over the active weights: see `gaussian_kl`."""
        return gaussian_kl(self.mean, self.log_std, self.prior(prior_std))

    def best_prior_variance(self) -> Tensor:
        """E_q[w^2], averaged over the active weights."""
        return mean_square(self.mean, self.log_std)

    def std_parameters(self) -> Iterator[nn.Parameter]:
        """The log-stds."""
        yield self.log_std

    def arrays(self) -> dict[str, Tensor]:
        """Places, means and log-stds of the active weights, the prior's std and the shape."""
        tensors = {"mean": self.mean, "log_std": self.log_std} | self.packed_arrays()
        return {name: tensors[name].detach() for name in self.array_names}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Tensor]) -> Self:
        """The posterior with copies of these arrays, if the places are sorted and inside."""
        mean, log_std = arrays["mean"].clone(), arrays["log_std"].clone()
        require_real_arrays(mean, log_std)
        index, shape, structure = checked_places(arrays)
        return cls(index, mean, log_std, shape, prior_std_from(arrays), structure)


class SparsePoint(Packed):
    """All mass at `mean` for the active weights, at 0 for the others: a sparse plain network."""

    is_random: ClassVar[bool] = False
    array_names = ("index", "mean", "prior_std", "shape", "structure")

    def moments(self) -> tuple[Tensor, Tensor]:
        """E[w], and Var[w] = 0."""
        mean = self.expectation()
        return mean, torch.zeros_like(mean)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """The mean: there is nothing to draw."""
        return self.expectation()

    def kl(self, prior_std: float | Tensor | None = None) -> Tensor:
        """0."""
        return self.prior_std.new_zeros(())

    def std_parameters(self) -> Iterator[nn.Parameter]:
        """None."""
        return iter(())

    def arrays(self) -> dict[str, Tensor]:
        """Places and means of the active weights, the prior's std and the shape."""
        tensors = {"mean": self.mean} | self.packed_arrays()
        return {name: tensors[name].detach() for name in self.array_names}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Tensor]) -> Self:
        """The point with copies of these arrays, if the places are sorted and inside."""
        require_real_arrays(arrays["mean"])
        index, shape, structure = checked_places(arrays)
        return cls(index, arrays["mean"].clone(), shape, prior_std_from(arrays), structure)
