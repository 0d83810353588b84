"""The optimiser of pairs of means and log-stds: IVON, in terms of the whole loss's gradients."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class NaturalGradient(torch.optim.Optimizer):
    """Newton's steps for means, by a curvature that the stds are: c = 1 / (lambda std^2).

    With the loss L = E_q[nll] + KL / lambda, g its gradients at mean and log std, rates a and r,

        c    <- c (1 + u + u^2 / 2),  u = r lambda dL/dlog std       (Shen et al. 2024)
        mean <- mean - a m / c,       m the running mean of dL/dmean, |m / c| at most a std

    since lambda dL/dlog std = (h' - h) / c, h' the curvature that this step saw: the KL's gradient
    is what turns h' into h' - h. The factor is positive for every u, so c is, too. Where a weight
    was of no use so far, c is small and m / c may be wild.
    """

    def __init__(
        self, means: Sequence[Tensor], log_stds: Sequence[Tensor], step_size: float,
        curvature_rate: float, momentum: float,
    ) -> None:  # fmt: skip
        groups: list[dict[str, Any]] = [
            {"params": list(means), "peak_lr": step_size, "is_clipped": True},
            {"params": list(log_stds), "peak_lr": curvature_rate},
        ]
        super().__init__(groups, {"lr": 0.0, "kl_weight": 0.0})
        self.momentum = momentum

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One step of all pairs that have gradients, at the groups' `lr` and `kl_weight`."""
        of_means, of_stds = self.param_groups
        for mean, log_std in zip(of_means["params"], of_stds["params"], strict=True):
            if mean.grad is None or log_std.grad is None:
                continue
            strength = 1 / of_means["kl_weight"]
            log_std -= 0.5 * curvature_growth(of_stds["lr"] * strength * log_std.grad)
            std = log_std.exp()
            in_stds = (strength * std * self._running_mean(mean)).clamp(-1, 1)
            mean -= of_means["lr"] * std * in_stds

    def _running_mean(self, mean: Tensor) -> Tensor:
        """Of its gradients, without the pull of the zero that it began with."""
        state = self.state[mean]
        if not state:
            state["step"] = torch.zeros((), device=mean.device)
            state["exp_avg"] = torch.zeros_like(mean)
        state["step"] += 1
        state["exp_avg"].lerp_(mean.grad, 1 - self.momentum)
        running: Tensor = state["exp_avg"] / (1 - self.momentum ** state["step"])
        return running


def curvature_growth(change: Tensor) -> Tensor:
    """log(1 + u + u^2 / 2), the logarithm of the factor on the curvature."""
    return torch.log1p(change + change.square() / 2)
