"""The mean-field Gaussian: an independent mean and standard deviation for every weight."""

from collections.abc import Iterator, Mapping
from math import log
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from pocketbayes.posteriors.base import Posterior, prior_std_from, require_real_arrays
from pocketbayes.posteriors.randomness import normal_like
from pocketbayes.posteriors.reuse import remembered
from pocketbayes.posteriors.shards import is_split, summed_over_parts

SHARE_AT_FIRST = 0.1  # of the size of a tensor's weights that their stds start with
_LEAST_AT_FIRST = 1e-4
_LARGE = 1 << 14  # numbers, from which a gradient of our own is the faster


def suitable_std(weights: Tensor) -> float:
    """A tenth of the root mean square of these weights: draws differ, and still fit."""
    if weights.is_meta:  # a network without values
        return SHARE_AT_FIRST
    size = weights.detach().to(torch.promote_types(weights.dtype, torch.float32))
    return max(SHARE_AT_FIRST * float(size.square().mean().sqrt()), _LEAST_AT_FIRST)


class Gaussian(Posterior):
    """q(w_i) = N(mean_i, exp(log_std_i)^2), all i independent.

    The std is stored as its logarithm, and only this file knows that.
    """

    array_names = ("mean", "log_std", "prior_std")

    def __init__(self, mean: Tensor, log_std: Tensor, prior_std: float | Tensor) -> None:
        super().__init__(prior_std, like=mean)
        self.mean = mean if isinstance(mean, nn.Parameter) else nn.Parameter(mean)
        self.log_std = nn.Parameter(log_std, requires_grad=self.mean.requires_grad)

    @classmethod
    def around(cls, mean: Tensor, std: float, prior_std: float) -> Self:
        """The posterior centred at `mean` (a Parameter is kept, not copied), every std equal."""
        return cls(mean, torch.full_like(mean.detach(), log(std)), prior_std)

    @property
    def shape(self) -> torch.Size:
        """The shape of the weight tensor."""
        return self.mean.shape

    @property
    def std(self) -> Tensor:
        """The standard deviation of every weight."""
        return self.log_std.exp()

    @property
    def is_normal(self) -> bool:
        """It is."""
        return True

    def expectation(self) -> Tensor:
        """E[w] = mean."""
        return self.mean

    def moments(self) -> tuple[Tensor, Tensor]:
        """E[w] = mean, Var[w] = exp(2 log_std)."""
        return self.mean, remembered(
            ("variance", self.log_std), lambda: square_of_exp(self.log_std)
        )

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """W = mean + std * eps, eps ~ N(0, 1)."""
        return reparameterised(self.mean, self.log_std, generator)

    def sample_rows(self, index: Tensor) -> Tensor:
        """A draw of some rows, which is all that a pass needs of a large table."""
        return noisy(self.mean[index], self.log_std[index].exp(), None)

    def kl(self, prior_std: float | Tensor | None = None) -> Tensor:
        """KL(q || N(0, p^2)), summed over all weights: see `gaussian_kl`."""
        return gaussian_kl(self.mean, self.log_std, self.prior(prior_std))

    def best_prior_variance(self) -> Tensor:
        """E_q[w^2], averaged over the weights: see `mean_square`."""
        return mean_square(self.mean, self.log_std)

    def std_parameters(self) -> Iterator[nn.Parameter]:
        """The log-stds."""
        yield self.log_std

    def arrays(self) -> dict[str, Tensor]:
        """Means, log-stds and the prior's std."""
        tensors = {"mean": self.mean, "log_std": self.log_std, "prior_std": self.prior_std}
        return {name: tensor.detach() for name, tensor in tensors.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Tensor]) -> Self:
        """The posterior of these means, log-stds and prior."""
        mean, log_std = arrays["mean"], arrays["log_std"]
        require_real_arrays(mean, log_std)
        return cls(mean, log_std, prior_std_from(arrays))


def reparameterised(mean: Tensor, log_std: Tensor, generator: torch.Generator | None) -> Tensor:
    """mean + exp(log_std) * eps, eps ~ N(0, 1)."""
    if not _wants_gradient(mean, log_std) or _is_left_to_torch(mean) or _is_half(mean):
        return noisy(mean, remembered(("std", log_std), log_std.exp), generator)
    noise = _normal(mean, generator)
    return Reparameterised.apply(mean, log_std, noise)  # type: ignore[no-any-return, no-untyped-call]


def noisy(mean: Tensor, std: Tensor, generator: torch.Generator | None) -> Tensor:
    """mean + std * eps, eps ~ N(0, 1)."""
    return torch.addcmul(mean, std, _normal(mean, generator))


def _normal(like: Tensor, generator: torch.Generator | None) -> Tensor:
    if generator is None:
        return normal_like(like)
    return torch.empty_like(like).normal_(generator=generator)


def _wants_gradient(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)


def gaussian_kl(mean: Tensor, log_std: Tensor, prior_std: Tensor) -> Tensor:
    """KL(q || N(0, p^2)) = sum_i [r_i - 1 - log r_i + (mean_i / p)^2] / 2, r_i = std_i^2 / p^2.

    From log_std, so that no std is small enough for log(0).
    """
    if is_split(mean):
        return summed_over_parts(lambda m, s: gaussian_kl(m, s, prior_std), mean, log_std)
    dtype = torch.promote_types(mean.dtype, torch.float32)
    tensors = (mean.to(dtype), log_std.to(dtype), prior_std.to(dtype))
    if _is_left_to_torch(mean):
        return GaussianKL.forward(*tensors)
    return GaussianKL.apply(*tensors)  # type: ignore[no-any-return, no-untyped-call]


def mean_square(mean: Tensor, log_std: Tensor, weight: Tensor | None = None) -> Tensor:
    """Weighted mean of m^2 + s^2, where sum_i weight_i KL(N(m_i, s_i^2) || N(0, v)) is least."""
    if is_split(mean):
        return summed_over_parts(_sum_of_squares, mean, log_std) / mean.numel()
    squares = _squares(mean, log_std)
    if weight is None:
        return squares.mean()
    weight = weight.to(squares.dtype).expand_as(squares)
    return (weight * squares).sum() / weight.sum()


def _squares(mean: Tensor, log_std: Tensor) -> Tensor:
    wide = torch.promote_types(mean.dtype, torch.float32)
    return mean.to(wide).square() + (2 * log_std.to(wide)).exp()


def _sum_of_squares(mean: Tensor, log_std: Tensor) -> Tensor:
    return _squares(mean, log_std).sum()


def gaussian_kls(mean: Tensor, log_std: Tensor, prior_std: Tensor) -> Tensor:
    """KL(N(m, s^2) || N(0, p^2)) = [r - 1 - log r + (m / p)^2] / 2 each, r = s^2 / p^2."""
    wide = torch.promote_types(mean.dtype, torch.float32)
    mean, log_std, prior_std = (t.to(wide) for t in (mean, log_std, prior_std))
    log_ratio = 2 * (log_std - prior_std.log())
    return (log_ratio.expm1() - log_ratio + (mean / prior_std).square()) / 2


def square_of_exp(x: Tensor) -> Tensor:
    """exp(x)^2, differentiable."""
    if _is_left_to_torch(x) or not torch.is_grad_enabled():
        return _square_of_exp(x)
    return SquareOfExp.apply(x)  # type: ignore[no-any-return, no-untyped-call]


def _is_left_to_torch(x: Tensor) -> bool:
    """Whether torch differentiates by itself: of few numbers faster, of halves worse."""
    return torch.compiler.is_compiling() or (x.numel() < _LARGE and not _is_half(x))


def _is_half(x: Tensor) -> bool:
    return x.dtype in (torch.float16, torch.bfloat16)


def _square_of_exp(x: Tensor) -> Tensor:
    """Base 2 is a third faster than base e on a CPU."""
    return (x * (2 / log(2))).exp2_()


class SquareOfExp(torch.autograd.Function):
    """exp(x)^2, with two passes over the weights backward where autograd makes three."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        """The value."""
        return _square_of_exp(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        """Keeps the value."""
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """d/dx = 2 exp(x)^2."""
        square: Tensor = ctx.saved_tensors[0]
        return (gradient * square).mul_(2)


class Reparameterised(torch.autograd.Function):
    """w = mean + exp(log_std) * noise. Keeps w, which the layer keeps anyway, for the gradient.

    Autograd would keep the std and the noise, too: two tensors of the weights' size.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(mean: Tensor, log_std: Tensor, noise: Tensor) -> Tensor:
        """The draw."""
        return torch.addcmul(mean, log_std.exp(), noise)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """Keeps the draw, and the mean, which is alive anyway."""
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """d/dmean = 1; d/dlog_std = w - mean."""
        mean, draw = ctx.saved_tensors
        return gradient, (draw - mean) * gradient, None


class GaussianKL(torch.autograd.Function):
    """The formula in `Gaussian.kl`, with its gradient in closed form.

    Autograd would pass over the weights four times more often, and keep three tensors of their
    size where this keeps none.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(mean: Tensor, log_std: Tensor, prior_std: Tensor) -> Tensor:
        """The sum over all weights."""
        log2_ratio = _log2_ratio(log_std, prior_std)
        sum_of_logs = log2_ratio.sum() * log(2)
        ratio = log2_ratio.exp2_()
        from_std = ratio.sum() - ratio.numel() - sum_of_logs
        from_std = from_std + (from_std.clamp_min(0) - from_std).detach()  # rounding has no slope
        from_mean = torch.dot(mean.flatten(), mean.flatten()) / prior_std.square()
        return (from_std + from_mean) / 2

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """Keeps the arguments, which are alive anyway."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """d/dmean = mean / p^2; d/dlog_std = r - 1; d/dp = -sum(r - 1 + mean^2 / p^2) / p."""
        mean, log_std, prior_std = ctx.saved_tensors
        ratio, from_prior = _log2_ratio(log_std, prior_std).exp2_(), None
        if ctx.needs_input_grad[2]:
            square = torch.dot(mean.flatten(), mean.flatten()) / prior_std.square()
            from_prior = -gradient * ((ratio - 1).sum() + square) / prior_std
        from_mean = mean * (gradient / prior_std.square())
        return from_mean, (ratio * gradient).sub_(gradient), from_prior


def _log2_ratio(log_std: Tensor, prior_std: Tensor) -> Tensor:
    return torch.add(-2 * prior_std.log2(), log_std, alpha=2 / log(2))
