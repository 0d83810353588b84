"""Distributions of a target given one draw of the network.

Every tensor of one distribution has the same shape, (S, N, ...) for S draws and N examples, so that
a prediction can join and cut them.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from pocketbayes.errors import PocketBayesError

_MOST_LOG_FREEDOM = 10.0
_MOST_LOG_DISPERSION = 15.0
_MOST_LOG_MEAN = 30.0


@dataclass(frozen=True)
class TargetDistribution(ABC):
    """What all have: mean, variance, log density (or probability), CDF and draws."""

    is_whole: ClassVar[bool] = False

    @property
    @abstractmethod
    def location(self) -> Tensor:
        """The mean."""

    @property
    @abstractmethod
    def variance(self) -> Tensor:
        """The variance, which is finite."""

    @abstractmethod
    def log_prob(self, target: Tensor) -> Tensor:
        """Log density, or log probability of a count; differentiable."""

    @abstractmethod
    def cdf(self, value: Tensor) -> Tensor:
        """P(target <= value)."""

    @abstractmethod
    def sample(self) -> Tensor:
        """One draw each, by torch's own generators."""

    def widened(self, factor: float) -> Self:
        """The mixture over draws (dim 0) with all of its spread times the factor, its mean kept."""
        raise PocketBayesError(
            "counts have no spread that a factor could widen, so there is no temperature for them: "
            "calibrate their intervals by pb.conformal"
        )

    def smoothed(self) -> Self:
        """The mixture over draws (dim 0) without the gaps between them, where that is known."""
        return self

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Self:
        """The distribution of changed tensors."""
        return type(self)(**{f.name: change(getattr(self, f.name)) for f in fields(self)})

    @classmethod
    def joined(cls, parts: "list[Any]", dim: int) -> Self:
        """One distribution for the examples of all."""
        return cls(
            **{f.name: torch.cat([getattr(p, f.name) for p in parts], dim) for f in fields(cls)}
        )


@dataclass(frozen=True)
class Normal(TargetDistribution):
    """N(mean, exp(log_std)^2)."""

    mean: Tensor
    log_std: Tensor

    @property
    def location(self) -> Tensor:
        """The mean."""
        return self.mean

    @property
    def std(self) -> Tensor:
        """The standard deviation."""
        return self.log_std.exp()

    @property
    def variance(self) -> Tensor:
        """std^2."""
        return (2 * self.log_std).exp()

    def log_prob(self, target: Tensor) -> Tensor:
        """-(y - mean)^2 / (2 std^2) - log std - log(2 pi) / 2."""
        error = (target - self.mean) * (-self.log_std).exp()
        return -(error.square() / 2 + self.log_std + math.log(2 * math.pi) / 2)

    def cdf(self, value: Tensor) -> Tensor:
        """Phi((value - mean) / std)."""
        std = self.std.clamp_min(torch.finfo(self.mean.dtype).tiny)
        below: Tensor = torch.special.ndtr((value - self.mean) / std)
        return below

    def sample(self) -> Tensor:
        """mean + std N(0, 1)."""
        return self.mean + self.std * torch.randn_like(self.mean)

    def widened(self, factor: float) -> "Normal":
        """N(m + factor (mean - m), factor^2 std^2), with m the mean over draws."""
        return Normal(spread_out(self.mean, factor), self.log_std + math.log(factor))

    def smoothed(self) -> "Normal":
        """N(m, std^2 + Var mean), m the mean over draws: exact if means are those of a Gaussian."""
        if len(self.mean) == 1:
            return self
        variance = self.variance + self.mean.var(0, keepdim=True)
        return Normal(self.mean.mean(0, keepdim=True).expand_as(variance), variance.log() / 2)


@dataclass(frozen=True)
class StudentT(TargetDistribution):
    """mean + scale t(df), df = 2 + exp(log_freedom): the variance is finite."""

    mean: Tensor
    log_scale: Tensor
    log_freedom: Tensor

    @property
    def location(self) -> Tensor:
        """The mean."""
        return self.mean

    @property
    def freedom(self) -> Tensor:
        """Degrees of freedom, above 2."""
        return 2 + bounded(self.log_freedom, _MOST_LOG_FREEDOM).exp()

    @property
    def variance(self) -> Tensor:
        """scale^2 df / (df - 2)."""
        return (2 * self.log_scale).exp() * self.freedom / (self.freedom - 2)

    def log_prob(self, target: Tensor) -> Tensor:
        """log G((df+1)/2) - log G(df/2) - log(pi df)/2 - log s - (df+1)/2 log(1 + z^2/df)."""
        df = self.freedom.double()  # the two log-gammas almost cancel
        log_norm = ((df + 1) / 2).lgamma() - (df / 2).lgamma() - (math.pi * df).log() / 2
        z = (target - self.mean) * (-self.log_scale).exp()
        tail = (self.freedom + 1) / 2 * (z.square() / self.freedom).log1p()
        return log_norm.to(z.dtype) - self.log_scale - tail

    def cdf(self, value: Tensor) -> Tensor:
        """The CDF of t(df) at (value - mean) / scale."""
        z = (value - self.mean) * (-self.log_scale).exp()
        return _by_scipy("stdtr", self.freedom, z)

    def sample(self) -> Tensor:
        """mean + scale t(df)."""
        student = torch.distributions.StudentT(self.freedom, validate_args=False)
        drawn: Tensor = student.sample()
        return self.mean + self.log_scale.exp() * drawn

    def widened(self, factor: float) -> "StudentT":
        """As of a normal distribution, with the same freedom."""
        mean, log_scale = spread_out(self.mean, factor), self.log_scale + math.log(factor)
        return StudentT(mean, log_scale, self.log_freedom)


@dataclass(frozen=True)
class Poisson(TargetDistribution):
    """Counts with mean and variance exp(log_rate)."""

    is_whole: ClassVar[bool] = True

    log_rate: Tensor

    @property
    def location(self) -> Tensor:
        """The rate."""
        return bounded(self.log_rate, _MOST_LOG_MEAN).exp()

    @property
    def variance(self) -> Tensor:
        """The rate."""
        return self.location

    def log_prob(self, target: Tensor) -> Tensor:
        """y log rate - rate - log y!."""
        log_rate = bounded(self.log_rate, _MOST_LOG_MEAN).double()  # large terms almost cancel
        y = target.double()
        return (y * log_rate - log_rate.exp() - (y + 1).lgamma()).to(self.log_rate.dtype)

    def cdf(self, value: Tensor) -> Tensor:
        """Q(floor(value) + 1, rate), Q the regularised upper incomplete gamma function."""
        count = value.double().floor()
        rate = self.location.double()
        below: Tensor = torch.special.gammaincc(count.clamp_min(0) + 1, rate)
        return torch.where(count < 0, 0.0, below).to(self.log_rate.dtype)

    def sample(self) -> Tensor:
        """A count."""
        return torch.poisson(self.location)


@dataclass(frozen=True)
class NegativeBinomial(TargetDistribution):
    """Counts with mean m = exp(log_mean) and variance m + a m^2, a = exp(log_dispersion)."""

    is_whole: ClassVar[bool] = True

    log_mean: Tensor
    log_dispersion: Tensor

    @property
    def location(self) -> Tensor:
        """m."""
        return bounded(self.log_mean, _MOST_LOG_MEAN).exp()

    @property
    def dispersion(self) -> Tensor:
        """a; 0 would be a Poisson distribution."""
        return bounded(self.log_dispersion, _MOST_LOG_DISPERSION).exp()

    @property
    def variance(self) -> Tensor:
        """m + a m^2."""
        return self.location + self.dispersion * self.location.square()

    def log_prob(self, target: Tensor) -> Tensor:
        """log G(y+r) - log G(r) - log y! - r log(1 + m/r) - y log(1 + r/m), r = 1 / a."""
        log_r = -bounded(self.log_dispersion, _MOST_LOG_DISPERSION).double()
        log_odds = bounded(self.log_mean, _MOST_LOG_MEAN).double() - log_r  # of log(m / r)
        r, y = log_r.exp(), target.double()
        choices = (y + r).lgamma() - r.lgamma() - (y + 1).lgamma()
        softplus = torch.nn.functional.softplus
        density = choices - r * softplus(log_odds) - y * softplus(-log_odds)
        return density.to(self.log_mean.dtype)

    def cdf(self, value: Tensor) -> Tensor:
        """I_p(r, floor(value) + 1) with p = r / (r + m), I the regularised incomplete beta."""
        count, r = value.double().floor(), 1 / self.dispersion.double()
        p = r / (r + self.location.double())
        below = _by_scipy("betainc", r, count.clamp_min(0) + 1, p)
        return torch.where(count < 0, 0.0, below).to(self.log_mean.dtype)

    def sample(self) -> Tensor:
        """A Poisson count whose rate is drawn from a gamma distribution."""
        r = 1 / self.dispersion
        gamma = torch.distributions.Gamma(r, r / self.location, validate_args=False)
        return torch.poisson(gamma.sample())


def spread_out(samples: Tensor, factor: float) -> Tensor:
    """The samples (S, N, ...) with their distances from their mean times the factor."""
    mean = samples.mean(0)
    return mean + factor * (samples - mean)


def bounded(value: Tensor, most: float) -> Tensor:
    """The value itself between -most and most; what is beyond becomes its tanh, at most 1."""
    inside = value.clamp(-most, most)
    return inside + (value - inside).tanh()


def _by_scipy(name: str, *values: Tensor) -> Tensor:
    """A special function that torch does not have, on the CPU in float64."""
    from scipy import special  # type: ignore[import-untyped]

    shaped = torch.broadcast_tensors(*values)  # type: ignore[no-untyped-call]
    arrays = [value.detach().double().cpu().numpy() for value in shaped]
    found = torch.as_tensor(getattr(special, name)(*arrays))
    return found.to(values[-1].device, values[-1].dtype)
