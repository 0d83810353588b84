"""What every posterior over one weight tensor can do."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn

from pocketbayes.errors import PocketBayesError, require_number


class Gate(NamedTuple):
    """Gates of whole inputs or outputs of a layer: how likely each is on, and which side."""

    inclusion: Tensor
    side: str


class Posterior(nn.Module, ABC):
    """A distribution over one weight tensor, with its own prior N(0, prior_std^2).

    Layers ask for `moments` or a `sample`, the loss for the `kl`, the file for the `arrays`.
    """

    is_random: ClassVar[bool] = True
    array_names: ClassVar[tuple[str, ...]]
    prior_std: Tensor

    def __init__(self, prior_std: float | Tensor, like: Tensor) -> None:
        super().__init__()
        dtype = like.dtype if like.dtype in (torch.float32, torch.float64) else torch.float32
        if not isinstance(prior_std, Tensor):
            prior_std = torch.tensor(prior_std, dtype=dtype, device=like.device)
        self.register_buffer("prior_std", prior_std)

    def prior(self, other: float | Tensor | None = None) -> Tensor:
        """The prior's std, or another in its type and on its device."""
        if other is None:
            return self.prior_std
        return torch.as_tensor(other, dtype=self.prior_std.dtype, device=self.prior_std.device)

    @property
    @abstractmethod
    def shape(self) -> torch.Size:
        """The shape of the weight tensor."""

    @property
    def num_active(self) -> int:
        """Weights that are there; the others are exactly 0."""
        return self.shape.numel()

    @property
    def is_independent(self) -> bool:
        """Whether the weights are drawn independently, as local reparameterisation takes it."""
        return True

    @property
    def is_normal(self) -> bool:
        """Whether a sum of some of the weights, times numbers, is exactly normal."""
        return not self.is_random

    @property
    def gate(self) -> Gate | None:
        """Gates that whole inputs or outputs of the layer go through; None: there are none."""
        return None

    @abstractmethod
    def expectation(self) -> Tensor:
        """E[w], the weight's mean as a dense tensor."""

    @abstractmethod
    def moments(self) -> tuple[Tensor, Tensor]:
        """E[w] and Var[w], both as dense tensors."""

    def slab(self) -> tuple[Tensor, Tensor]:
        """The moments while a gate is open; without one, simply the moments."""
        return self.moments()

    @abstractmethod
    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """One draw of the whole tensor, differentiable in the posterior's parameters."""

    @abstractmethod
    def kl(self, prior_std: float | Tensor | None = None) -> Tensor:
        """KL(q || N(0, prior_std^2)) in nats, summed over the tensor; None: its own prior."""

    def best_prior_variance(self) -> Tensor | None:
        """The prior variance that this posterior's KL is least at; None: its prior stays."""
        return None

    @abstractmethod
    def std_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters that live on a log-std scale and want a learning rate of their own."""

    def inclusion_parameters(self) -> Iterator[nn.Parameter]:
        """Parameters that no optimiser moves: a method has an update of its own for them."""
        return iter(())

    @abstractmethod
    def arrays(self) -> dict[str, Tensor]:
        """The least arrays that determine this posterior."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: Mapping[str, Tensor]) -> Self:
        """The posterior whose `arrays()` these are; may keep them, and checks what it can."""


def require_real_arrays(*arrays: Tensor) -> None:
    """An error unless all have one shape and one floating-point type."""
    shapes, dtypes = {tuple(a.shape) for a in arrays}, {a.dtype for a in arrays}
    if len(shapes) > 1 or len(dtypes) > 1 or not arrays[0].is_floating_point():
        raise PocketBayesError(
            f"arrays of shapes {sorted(shapes)} and types {sorted(map(str, dtypes))}; "
            "they must agree and be floating point"
        )


def prior_std_from(arrays: Mapping[str, Tensor]) -> Tensor:
    """The prior's std among these arrays: one positive number, in the type it was stored in."""
    stored = arrays["prior_std"]
    if stored.dim() or not stored.is_floating_point():
        raise PocketBayesError("prior_std must be a single real number")
    require_number(float(stored), "prior_std", above=0)
    return stored.clone()
