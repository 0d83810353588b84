"""Gaussians under a prior that is flat in log |w|: weights without use end up as noise."""

import torch
import torch.nn.functional as F
from torch import Tensor

from pocketbayes.posteriors.gaussian import Gaussian

_K1, _K2, _K3 = 0.63576, 1.87320, 1.48695


class LogUniform(Gaussian):
    """q(w_i) = N(mean_i, exp(log_std_i)^2) with the improper prior p(log |w_i|) = constant.

    Moments, draws and arrays are those of `Gaussian`. The prior has no scale; `prior_std` is kept
    for the day the weights get a Gaussian one.
    """

    def kl(self, prior_std: float | Tensor | None = None) -> Tensor:
        """KL(q || log-uniform) up to its infinite constant, summed: see `log_uniform_kls`.

        It does not depend on `prior_std`.
        """
        return log_uniform_kls(self.mean, self.log_std).sum()

    def best_prior_variance(self) -> None:  # type: ignore[override]
        """None: the prior has no scale."""


def log_alpha(mean: Tensor, log_std: Tensor) -> Tensor:
    """Log of alpha = std^2 / mean^2, in single precision at least; finite where the mean is 0."""
    dtype = torch.promote_types(mean.dtype, torch.float32)
    size = mean.to(dtype).abs().clamp_min(torch.finfo(dtype).tiny)
    return 2 * (log_std.to(dtype) - size.log())


def log_uniform_kls(mean: Tensor, log_std: Tensor) -> Tensor:
    """KL of each weight = k1 (1 - sigmoid(k2 + k3 log alpha)) + log(1 + 1 / alpha) / 2.

    Molchanov et al. 2017, equation 14: a fit, with the constant that makes it 0 at alpha = oo.
    """
    noise = log_alpha(mean, log_std)
    return _K1 * torch.sigmoid(-_K2 - _K3 * noise) + F.softplus(-noise) / 2
