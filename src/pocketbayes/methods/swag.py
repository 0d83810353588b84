"""SWAG: a Gaussian around the weights that plain training wanders over at a constant rate."""

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from pocketbayes.errors import TrainingError, require_count, require_number
from pocketbayes.layers import named_posteriors, replace_posterior
from pocketbayes.methods.base import StartContext, StepContext
from pocketbayes.methods.deterministic import Deterministic
from pocketbayes.methods.schedules import lr_scale
from pocketbayes.posteriors import Gaussian, Sparse, as_random

_LEAST_STD = 1e-4  # of a tensor's root mean square: weights that never moved


@dataclass(frozen=True, kw_only=True)
class SWAG(Deterministic):
    """Trains as `Deterministic`, then wanders at a constant rate; the posterior is where it was.

    Each weight gets the mean and the variance of its snapshots,

        q(w) = N(mean_t w_t, scale * var_t w_t),

    and all that is not random the mean of its own (Maddox et al. 2019). This is the diagonal form:
    correlations between weights are left out, so that the model is an ordinary mean-field Gaussian,
    as small in its file, and can be pruned, shared and distilled as such.

    Attributes:
        wander_from: share of training that has passed at the first snapshot.
        wander_lr: the constant learning rate from then on, as a share of the peak.
        snapshots: how many are taken, evenly spread over what is left of training.
        scale: factor on their variance.
    """

    averages: ClassVar[bool] = True

    wander_from: float = 0.75
    wander_lr: float = 0.2
    snapshots: int = 30
    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number(self.wander_from, "SWAG.wander_from", least=0, most=0.99)
        require_number(self.wander_lr, "SWAG.wander_lr", above=0, most=1)
        require_count(self.snapshots, "SWAG.snapshots", least=2)
        require_number(self.scale, "SWAG.scale", above=0)

    def lr_share(self, progress: float) -> float:
        """As of any method, but it falls to `wander_lr` by `wander_from` and stays there."""
        if progress >= self.wander_from:
            return self.wander_lr
        falling = lr_scale(progress / self.wander_from, self.lr_warmup)
        return self.wander_lr + (1 - self.wander_lr) * falling

    @torch.no_grad()
    def after_step(self, model: nn.Module, context: StepContext) -> bool:
        """Takes a snapshot when it is time."""
        memory = context.memory
        taken = int(memory.setdefault("snapshots", torch.zeros(())))
        passed = (context.progress - self.wander_from) / (1 - self.wander_from)
        if passed < 0 or passed * self.snapshots < taken:
            return False
        memory["snapshots"] = torch.tensor(taken + 1.0)
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                _remember(memory, name, parameter, taken + 1)
        return False

    @torch.no_grad()
    def finish(self, model: nn.Module, context: StartContext) -> None:
        """Makes the model what its snapshots say, and looks at the data once more for its norms."""
        memory = context.memory
        if "snapshots" not in memory:
            return  # no epoch, no training
        taken = int(memory["snapshots"])
        if taken < 2:
            raise TrainingError(
                f"SWAG took {taken} snapshots in the last {1 - self.wander_from:.0%} of training, "
                "and a variance needs two: train for more epochs, or from a smaller wander_from"
            )
        spreads = _take_means_(model, memory)
        for name, posterior in list(named_posteriors(model)):
            mean = cast(Tensor, getattr(posterior, "mean", None))
            if id(mean) in spreads:
                variance = self.scale * spreads[id(mean)].clamp_min(0) / (taken - 1)
                _make_random_(model, name, variance)
        context.refresh_norms()


def _remember(memory: dict[str, Tensor], name: str, value: Tensor, count: int) -> None:
    """Welford's running mean and sum of squared deviations."""
    mean, spread = (
        memory.setdefault(f"{kind} {name}", torch.zeros_like(value)) for kind in ("mean", "spread")
    )
    before = value - mean
    mean += before / count
    spread += before * (value - mean)


def _take_means_(model: nn.Module, memory: dict[str, Tensor]) -> dict[int, Tensor]:
    """Gives every parameter its mean; returns the sums of squared deviations, by identity."""
    spreads = {}
    for name, parameter in model.named_parameters():
        if f"spread {name}" in memory and f"mean {name}" in memory:
            parameter.copy_(memory[f"mean {name}"])
            spreads[id(parameter)] = memory[f"spread {name}"]
    return spreads


def _make_random_(model: nn.Module, name: str, variance: Tensor) -> None:
    """Gives a point this variance, under the prior of least KL."""
    q = as_random(dict(named_posteriors(model))[name], 1.0)
    assert isinstance(q, Gaussian | Sparse)
    least = _LEAST_STD * float(q.mean.square().mean().sqrt())
    q.log_std.copy_(variance.sqrt().clamp_min(max(least, 1e-12)).log())
    q.prior_std.copy_(q.best_prior_variance().sqrt())
    replace_posterior(model, name, q)
