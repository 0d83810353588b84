"""The mean-field Gaussian: an independent mean and standard deviation for every weight."""

from collections.abc import Iterator, Mapping
from math import log
from typing import Any, Self

import torch
from torch import Tensor, nn

from pocketbayes.posteriors.base import Posterior
from pocketbayes.randomness import normal_like


class Gaussian(Posterior):
    """q(w_i) = N(mean_i, exp(log_std_i)^2), all i independent.

    The std is stored as its logarithm, and only this file knows that.
    """

    def __init__(self, mean: Tensor, log_std: Tensor, prior_std: float) -> None:
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

    def expectation(self) -> Tensor:
        """E[w] = mean."""
        return self.mean

    def moments(self) -> tuple[Tensor, Tensor]:
        """E[w] = mean, Var[w] = exp(2 log_std)."""
        return self.mean, (2 * self.log_std).exp()

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """W = mean + std * eps, eps ~ N(0, 1)."""
        if generator is None:
            noise = normal_like(self.mean)
        else:
            noise = torch.empty_like(self.mean).normal_(generator=generator)
        return torch.addcmul(self.mean, self.std, noise)

    def kl(self, prior_std: float | Tensor | None = None) -> Tensor:
        """KL(q || N(0, prior_std^2)) = sum_i [expm1(t_i) - t_i + (mean_i / prior_std)^2] / 2.

        Here t_i = 2 log(std_i / prior_std), so no std is ever small enough for log(0).
        """
        prior = self.prior_std if prior_std is None else prior_std
        prior = torch.as_tensor(prior, dtype=self.prior_std.dtype, device=self.prior_std.device)
        dtype = torch.promote_types(self.mean.dtype, torch.float32)
        tensors = (self.mean.to(dtype), self.log_std.to(dtype), prior)
        if torch.compiler.is_compiling():
            return GaussianKL.forward(*tensors)
        return GaussianKL.apply(*tensors)  # type: ignore[no-any-return, no-untyped-call]

    def std_parameters(self) -> Iterator[nn.Parameter]:
        """The log-stds."""
        yield self.log_std

    def arrays(self) -> dict[str, Tensor]:
        """Means, log-stds and the prior's std."""
        tensors = {"mean": self.mean, "log_std": self.log_std, "prior_std": self.prior_std}
        return {name: tensor.detach() for name, tensor in tensors.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Tensor]) -> Self:
        """The posterior with copies of these means, log-stds and prior."""
        mean, log_std = arrays["mean"].clone(), arrays["log_std"].clone()
        return cls(mean, log_std, float(arrays["prior_std"]))


class GaussianKL(torch.autograd.Function):
    """The formula in `Gaussian.kl`, with its gradient in closed form.

    Autograd would keep three tensors of the weight's size alive until the backward pass.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(mean: Tensor, log_std: Tensor, prior_std: Tensor) -> Tensor:
        """The sum over all weights."""
        t = 2 * (log_std - prior_std.log())
        return (torch.expm1(t) - t + (mean / prior_std).square()).sum() / 2

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """Keeps the arguments, which are alive anyway."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """d/dmean = mean / p^2; d/dlog_std = r - 1, r = std^2 / p^2; d/dp = -(both) / p."""
        mean, log_std, prior_std = ctx.saved_tensors
        from_mean = mean / prior_std.square()
        from_log_std = torch.expm1(2 * (log_std - prior_std.log()))
        from_prior = None
        if ctx.needs_input_grad[2]:
            from_prior = -gradient * (from_log_std.sum() + (mean * from_mean).sum()) / prior_std
        return gradient * from_mean, gradient * from_log_std, from_prior
