"""The sparse Gaussian: a mean and a standard deviation for the active weights only."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Any, Self

import torch
from torch import Tensor, nn

from pocketbayes.errors import PocketBayesError
from pocketbayes.posteriors.base import Posterior, prior_std_from, require_real_arrays
from pocketbayes.posteriors.gaussian import gaussian_kl, reparameterised, square_of_exp
from pocketbayes.reuse import remembered


class Sparse(Posterior):
    """q(w_i) = N(mean_i, exp(log_std_i)^2) for the active i; every other weight is exactly 0.

    Everything kept is packed: `index` (sorted places in the flattened tensor), `mean` and
    `log_std` have one entry per active weight. The dense tensor exists only inside a forward
    pass. The KL is that given the support: an inactive weight costs nothing.
    """

    array_names = ("index", "mean", "log_std", "prior_std", "shape")
    index: Tensor

    def __init__(
        self,
        index: Tensor,
        mean: Tensor,
        log_std: Tensor,
        shape: torch.Size | tuple[int, ...],
        prior_std: float | Tensor,
        trainable: bool = True,
    ) -> None:
        super().__init__(prior_std, like=mean)
        self.register_buffer("index", index)
        self.mean = nn.Parameter(mean, trainable)
        self.log_std = nn.Parameter(log_std, trainable)
        self._shape = torch.Size(shape)
        self._recorded: list[Tensor] | None = None

    @property
    def shape(self) -> torch.Size:
        """The shape of the weight tensor."""
        return self._shape

    @property
    def std(self) -> Tensor:
        """The standard deviation of every active weight."""
        return self.log_std.exp()

    def expectation(self) -> Tensor:
        """E[w]: the mean of an active weight, else 0."""
        return self._placed(self.mean, record=True)

    def moments(self) -> tuple[Tensor, Tensor]:
        """E[w] and Var[w]; both are 0 where a weight is not active."""
        return remembered(("moments", self.mean), self._moments)

    def _moments(self) -> tuple[Tensor, Tensor]:
        return self.expectation(), self._placed(square_of_exp(self.log_std))

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """W = mean + std * eps on the active weights, eps ~ N(0, 1)."""
        return self._placed(reparameterised(self.mean, self.log_std, generator), record=True)

    def kl(self, prior_std: float | Tensor | None = None) -> Tensor:
        """KL(q || N(0, p^2)), summed over the active weights: see `gaussian_kl`."""
        return gaussian_kl(self.mean, self.log_std, self.prior(prior_std))

    def std_parameters(self) -> Iterator[nn.Parameter]:
        """The log-stds."""
        yield self.log_std

    def arrays(self) -> dict[str, Tensor]:
        """Places, means and log-stds of the active weights, the prior's std and the shape."""
        tensors = {"index": self.index, "mean": self.mean, "log_std": self.log_std}
        tensors |= {"prior_std": self.prior_std, "shape": torch.tensor(self.shape)}
        return {name: tensor.detach() for name, tensor in tensors.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Tensor]) -> Self:
        """The posterior with copies of these arrays, if the places are sorted and inside."""
        index, mean, log_std = (arrays[name].clone() for name in ("index", "mean", "log_std"))
        shape = arrays["shape"]
        require_real_arrays(mean, log_std)
        if shape.dtype != torch.int64 or shape.dim() != 1 or bool((shape < 1).any()):
            raise PocketBayesError("shape must be a list of positive whole numbers")
        size = prod(shape.tolist())
        if index.dtype != torch.int64 or index.dim() != 1 or index.shape != mean.shape:
            raise PocketBayesError("index must be whole numbers, one per active weight")
        inside = len(index) > 0 and int(index[0]) >= 0 and int(index[-1]) < size
        if not inside or bool((index.diff() < 1).any()):
            raise PocketBayesError(f"index must rise and stay below {size}, the number of weights")
        return cls(index, mean, log_std, tuple(shape.tolist()), prior_std_from(arrays))

    @contextmanager
    def recorded_gradient(self) -> Iterator[list[Tensor]]:
        """Inside, every dense tensor made keeps its gradient: see `dense_gradient`."""
        self._recorded = []
        try:
            yield self._recorded
        finally:
            self._recorded = None

    def _placed(self, values: Tensor, record: bool = False) -> Tensor:
        """Packed values at their places in a dense tensor of zeros."""
        dense = values.new_zeros(prod(self.shape)).index_copy(0, self.index, values)
        dense = dense.view(self.shape)
        if record and self._recorded is not None and dense.requires_grad:
            dense.retain_grad()
            self._recorded.append(dense)
        return dense

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Takes a state of another number of active weights, too."""
        stored = state_dict.get(prefix + "index")
        if isinstance(stored, Tensor) and stored.shape != self.index.shape:
            self.index = self.index.new_zeros(stored.shape)
            for name in ("mean", "log_std"):
                old = getattr(self, name)
                setattr(self, name, nn.Parameter(old.new_zeros(stored.shape), old.requires_grad))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def dense_gradient(recorded: list[Tensor]) -> Tensor:
    """dL/d(dense mean) of one posterior: the sum over every dense tensor that the loss read."""
    gradients = [dense.grad for dense in recorded if dense.grad is not None]
    if not gradients:
        raise PocketBayesError("a sparse weight took no part in the loss: it has no gradient")
    return torch.stack(gradients).sum(0) if len(gradients) > 1 else gradients[0]
