"""IVON: variational inference by natural gradients; its curvature is that of the loss."""

from dataclasses import dataclass

from torch import nn

from pocketbayes.errors import PocketBayesError, require_number
from pocketbayes.layers import named_posteriors
from pocketbayes.methods.base import (
    VariationalMethod,
    require_no_inclusion_variables,
    unshare_,
)
from pocketbayes.posteriors import Gaussian, Sparse


@dataclass(frozen=True, kw_only=True)
class IVON(VariationalMethod):
    """The improved variational online Newton method (Shen et al. 2024, arXiv:2402.17641).

    Minimises the loss of `MeanField`. Means and stds follow the natural gradient: with N examples
    and lambda = N / beta each weight's curvature is h + delta = 1 / (lambda std^2), which learns
    from the gradient at the std, and the mean takes Newton's steps by it. What is deterministic
    (biases, norms) goes by `optimizer` and `lr`.

    Attributes:
        step_size: peak of the share of Newton's steps that means take; no step is longer than so
            many stds.
        curvature_rate: peak share of a step's own curvature in the running one.
        prior_std: of the Gaussian prior, which stays; None: as `bayesianize_` set it.
        momentum: of the means' gradient.
    """

    prior: str | None = "fixed"
    warmup: float | None = 0.0
    step_size: float = 0.1
    curvature_rate: float = 1e-2
    prior_std: float | None = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("step_size", "curvature_rate"):
            require_number(getattr(self, name), f"IVON.{name}", above=0, most=1)
        if self.prior_std is not None:
            require_number(self.prior_std, "IVON.prior_std", above=0)
        for name in ("beta", "least_beta"):
            if getattr(self, name) == 0:
                raise PocketBayesError(
                    f"IVON.{name} must be more than 0: without a KL stds have no size; use "
                    "Deterministic for plain training"
                )
        if self.weight_decay != 0:
            raise PocketBayesError(
                "IVON.weight_decay must be 0: the prior decays the weights; use prior_std"
            )
        if self.warmup != 0:
            raise PocketBayesError(
                "IVON.warmup must be 0: stds are in units of the KL's weight, from the first step"
            )

    def start(self, model: nn.Module) -> None:
        """Gives every weight a Gaussian of its own, and the prior."""
        require_no_inclusion_variables(model, "prune_(model) first, then they are sparse")
        unshare_(model)
        super().start(model)
        for _, q in named_posteriors(model):
            if self.prior_std is not None and isinstance(q, Gaussian | Sparse):
                q.prior_std.fill_(self.prior_std)


def trained_by_pairs(model: nn.Module) -> list[Gaussian | Sparse]:
    """The posteriors with a mean and a std of every weight, where a gradient trains both."""
    found = [q for _, q in named_posteriors(model) if isinstance(q, Gaussian | Sparse)]
    return [q for q in found if q.mean.requires_grad and q.log_std.requires_grad]
