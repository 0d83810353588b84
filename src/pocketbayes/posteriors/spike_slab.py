"""Weights that may not be there: an inclusion variable for each or a group, times a Gaussian."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from pocketbayes.errors import PocketBayesError
from pocketbayes.posteriors.base import Gate, Posterior, prior_std_from, require_real_arrays
from pocketbayes.posteriors.gaussian import (
    gaussian_kls,
    mean_square,
    reparameterised,
    square_of_exp,
)
from pocketbayes.posteriors.inclusion import (
    MOST_LOG_ODDS,
    bernoulli_kl,
    density_ratio,
    included_moments,
    soft_gate,
)
from pocketbayes.posteriors.randomness import bernoulli
from pocketbayes.posteriors.reuse import remembered

GRANULARITIES = ("weight", "input", "output")


class SpikeSlab(Posterior):
    """q(w_i) = p N(mean_i, exp(log_std_i)^2) + (1 - p) delta_0, p = sigmoid(log_odds).

    The inclusion variable is that of the weight, or of all weights along one place of `axis`: an
    input or an output of the layer. The prior is q = sigmoid(prior_log_odds) of N(0, prior_std^2),
    else 0. Log-odds stay in float32 in a network of half precision, where p near 1 would be 1.
    """

    array_names: ClassVar[tuple[str, ...]] = (
        "mean", "log_std", "log_odds", "prior_std", "prior_log_odds", "layout",
    )  # fmt: skip
    prior_log_odds: Tensor
    layout: Tensor

    def __init__(
        self,
        mean: Tensor,
        log_std: Tensor,
        log_odds: Tensor,
        prior_std: float | Tensor,
        prior_log_odds: Tensor,
        granularity: str = "weight",
        axis: int = 0,
    ) -> None:
        super().__init__(prior_std, like=mean)
        self.mean = mean if isinstance(mean, nn.Parameter) else nn.Parameter(mean)
        learns, wide = self.mean.requires_grad, at_least_single(mean.dtype)
        self.log_std = nn.Parameter(log_std, learns)
        self.log_odds = nn.Parameter(log_odds.to(wide), learns)
        self.register_buffer("prior_log_odds", prior_log_odds.to(wide))
        layout = torch.tensor([GRANULARITIES.index(granularity), axis], device=mean.device)
        self.register_buffer("layout", layout)  # part of the state: no other one fits
        self.granularity, self.axis = granularity, axis

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Moves and converts, but for log-odds to half precision."""
        wide = {id(t) for t in (self.log_odds, self.log_odds.grad, self.prior_log_odds)}

        def applied(tensor: Tensor) -> Tensor:
            made = fn(tensor)
            lost = id(tensor) in wide and at_least_single(made.dtype) != made.dtype
            return tensor.to(made.device, at_least_single(made.dtype)) if lost else made

        super()._apply(applied, recurse)  # type: ignore[no-untyped-call]
        return self

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *others: Any
    ) -> None:
        """Takes no state whose inclusion variables belong to something else."""
        layout, own = state_dict.get(f"{prefix}layout"), GRANULARITIES.index(self.granularity)
        if isinstance(layout, Tensor) and layout.tolist() != [own, self.axis]:
            error_msgs: list[str] = others[-1]
            error_msgs.append(f"{prefix[:-1]} has inclusion variables of another granularity")
            return
        super()._load_from_state_dict(state_dict, prefix, *others)

    @property
    def shape(self) -> torch.Size:
        """The shape of the weight tensor."""
        return self.mean.shape

    @property
    def std(self) -> Tensor:
        """The standard deviation of every weight that is there."""
        return self.log_std.exp()

    @property
    def inclusion(self) -> Tensor:
        """p of every inclusion variable."""
        return torch.sigmoid(self.log_odds)

    @property
    def is_independent(self) -> bool:
        """Not if several weights share a gate, which layers must then draw once."""
        return self.granularity == "weight"

    @property
    def gate(self) -> Gate | None:
        """The gates of whole inputs or outputs, if there are any."""
        return None if self.is_independent else Gate(self.inclusion, self.granularity)

    def slab(self) -> tuple[Tensor, Tensor]:
        """Mean and variance of every weight behind a gate; without one, the moments."""
        return self.moments() if self.is_independent else self._open()

    def _open(self) -> tuple[Tensor, Tensor]:
        return self.mean, remembered(
            ("variance", self.log_std), lambda: square_of_exp(self.log_std)
        )

    def expectation(self) -> Tensor:
        """E[w] = p mean."""
        return (self.each(self.inclusion) * self.mean).to(self.mean.dtype)

    def moments(self) -> tuple[Tensor, Tensor]:
        """E[w] = p m and Var[w] = p v + p (1 - p) m^2, of each weight alone."""
        mean, variance = self._wide_moments()
        return mean.to(self.mean.dtype), variance.to(self.mean.dtype)

    def _wide_moments(self) -> tuple[Tensor, Tensor]:
        return included_moments(*self._open(), self.each(self.inclusion))

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """One draw; where gradients are wanted, of Gaussians with the same moments.

        An inclusion variable has no derivative, so it becomes p + sqrt(p (1 - p)) eps there, and a
        single weight with its own inclusion variable E[w] + sqrt(Var[w]) eps.
        """
        smooth = torch.is_grad_enabled()
        if smooth and self.is_independent:
            mean, variance = self._wide_moments()
            tiny = torch.finfo(variance.dtype).tiny
            drawn = reparameterised(mean, variance.clamp_min(tiny).log() / 2, generator)
            return drawn.to(self.mean.dtype)
        theta = reparameterised(self.mean, self.log_std, generator)
        draw = soft_gate if smooth else bernoulli
        return theta * self.each(draw(self.inclusion, generator=generator)).to(theta.dtype)

    def kl(self, prior_std: float | Tensor | None = None) -> Tensor:
        """Sum over all p of p KL(slab || N(0, prior_std^2)) + KL(Bern(p) || Bern(q))."""
        slabs = self.of_groups(self.slab_kls(prior_std))
        inclusions = bernoulli_kl(self.log_odds, self.prior_log_odds)
        return (self.inclusion * slabs + inclusions).sum()

    def slab_kls(self, prior_std: float | Tensor | None = None) -> Tensor:
        """KL(N(mean, std^2) || N(0, prior_std^2)) of every weight."""
        return gaussian_kls(self.mean, self.log_std, self.prior(prior_std))

    def best_prior_variance(self) -> Tensor:
        """E[w^2] of the slabs, weighted by p: what is out says nothing of the slab."""
        return mean_square(self.mean, self.log_std, self.each(self.inclusion))

    def log_odds_by_density(self) -> Tensor:
        """Logit of the prior + log slab(0) - log q(0), summed over the weights of each gamma."""
        values = (self.mean, self.log_std, self.prior(None))
        ratio = density_ratio(*(value.to(self.log_odds.dtype) for value in values))
        return self.prior_log_odds + self.of_groups(ratio)

    def of_groups(self, values: Tensor) -> Tensor:
        """Sums of one value per weight over the weights of each inclusion variable."""
        if self.granularity == "weight":
            return values
        others = [axis for axis in range(values.dim()) if axis != self.axis]
        return values.sum(others) if others else values

    def each(self, values: Tensor) -> Tensor:
        """One value per inclusion variable, in a shape that goes with the weights."""
        if self.granularity == "weight":
            return values
        shape = [1] * self.mean.dim()
        shape[self.axis] = -1
        return values.view(shape)

    def std_parameters(self) -> Iterator[nn.Parameter]:
        """The log-stds."""
        yield self.log_std

    def inclusion_parameters(self) -> Iterator[nn.Parameter]:
        """The log-odds, which have an update of their own."""
        yield self.log_odds

    def arrays(self) -> dict[str, Tensor]:
        """Means, log-stds and log-odds, both priors, and what an inclusion variable belongs to."""
        return {name: getattr(self, name).detach() for name in self.array_names}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Tensor]) -> Self:
        """The posterior with copies of these arrays, if they fit each other."""
        return cls(*_checked(arrays))


class NarrowSpike(SpikeSlab):
    """q(w_i) = N(mean_i, exp(log_std_i)^2) under a prior of two scales, wide or narrow.

    Where gamma = 1, which q believes with probability p = sigmoid(log_odds), the prior is
    N(0, prior_std^2), where gamma = 0 N(0, spike_std^2). Weights are drawn as those of
    `Gaussian`: inclusion variables are part of the prior only.
    """

    array_names = (*SpikeSlab.array_names, "spike_std")
    spike_std: Tensor

    def __init__(self, *others: Any, spike_std: float | Tensor) -> None:
        super().__init__(*others)
        self.register_buffer("spike_std", torch.as_tensor(spike_std).to(self.prior_std))

    @property
    def is_independent(self) -> bool:
        """All weights are."""
        return True

    @property
    def is_normal(self) -> bool:
        """It is."""
        return True

    def expectation(self) -> Tensor:
        """E[w] = mean."""
        return self.mean

    def moments(self) -> tuple[Tensor, Tensor]:
        """E[w] = mean, Var[w] = exp(2 log_std)."""
        return self._open()

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """W = mean + std * eps, eps ~ N(0, 1)."""
        return reparameterised(self.mean, self.log_std, generator)

    def kl(self, prior_std: float | Tensor | None = None) -> Tensor:
        """Sum over all p of p KL(q || slab) + (1 - p) KL(q || spike) + KL(Bern(p) || Bern)."""
        slabs, spikes = (self.of_groups(self.slab_kls(std)) for std in (prior_std, self.spike_std))
        inclusions = bernoulli_kl(self.log_odds, self.prior_log_odds)
        return (spikes + self.inclusion * (slabs - spikes) + inclusions).sum()

    def best_prior_variance(self) -> None:  # type: ignore[override]
        """None: two scales that learn have no optimum but to become one."""

    def best_log_odds(self) -> Tensor:
        """Where the ELBO is stationary: logit of the prior + KL(q || spike) - KL(q || slab)."""
        slabs, spikes = (self.of_groups(self.slab_kls(std)) for std in (None, self.spike_std))
        found = self.prior_log_odds + spikes - slabs
        return found.clamp(-MOST_LOG_ODDS, MOST_LOG_ODDS)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Tensor]) -> Self:
        """The posterior with copies of these arrays, if they fit each other."""
        spike = arrays["spike_std"].clone()
        if spike.dim() or not spike.is_floating_point() or not 0 < float(spike) < float("inf"):
            raise PocketBayesError("spike_std must be a single number above 0")
        return cls(*_checked(arrays), spike_std=spike)


def at_least_single(dtype: torch.dtype) -> torch.dtype:
    """The same type, or float32 if it is half as wide."""
    return torch.promote_types(dtype, torch.float32)


def _checked(arrays: Mapping[str, Tensor]) -> tuple[Any, ...]:
    """The arguments of a posterior with inclusion variables, if these arrays fit each other."""
    mean, log_std, log_odds = (arrays[name].clone() for name in ("mean", "log_std", "log_odds"))
    require_real_arrays(mean, log_std)
    prior, layout = arrays["prior_log_odds"].clone(), arrays["layout"]
    granularity, axis = _checked_layout(layout, mean.dim())
    wanted = mean.shape if granularity == "weight" else mean.shape[axis : axis + 1]
    types = (mean.dtype, at_least_single(mean.dtype))
    if log_odds.dtype not in types or log_odds.shape != wanted:
        raise PocketBayesError(
            f"log_odds has shape {tuple(log_odds.shape)}; inclusion variables of each "
            f"{granularity} need {tuple(wanted)}, in the type of the means or, if that is half, "
            "in float32"
        )
    if prior.dim() or not prior.is_floating_point() or not prior.isfinite():
        raise PocketBayesError("prior_log_odds must be a single real number")
    return mean, log_std, log_odds, prior_std_from(arrays), prior, granularity, axis


def _checked_layout(layout: Tensor, dimensions: int) -> tuple[str, int]:
    """What an inclusion variable belongs to, and along which axis."""
    if layout.dtype != torch.int64 or layout.shape != (2,):
        raise PocketBayesError("layout must be two whole numbers")
    code, axis = layout.tolist()
    if not 0 <= code < len(GRANULARITIES) or not 0 <= axis < max(1, dimensions):
        raise PocketBayesError(f"layout must be a granularity and an axis; got {code} and {axis}")
    return GRANULARITIES[code], axis
