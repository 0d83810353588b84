"""Real values: a Gaussian around the network's output, with a learned std."""

import math

import torch
from torch import Tensor

from pocketbayes.errors import DataError


def gaussian_nll(output: Tensor, target: Tensor, log_std: Tensor) -> tuple[Tensor, Tensor]:
    """Mean over examples of -log N(target; output, exp(log_std)^2), and the mean squared error."""
    target = matched_target(output, target)
    output = output.to(torch.promote_types(output.dtype, torch.float32))
    error = target.to(output.dtype) - output
    per_value = (error * (-log_std).exp()).square() / 2 + log_std + math.log(2 * math.pi) / 2
    return per_value.sum() / len(output), error.square().mean()


def matched_target(output: Tensor, target: Tensor) -> Tensor:
    """The target in the output's shape: (batch,) goes with (batch, 1), and nothing broadcasts."""
    if output.shape == (*target.shape, 1):
        return target.unsqueeze(-1)
    if output.shape != target.shape:
        raise DataError(
            f"the model's output is {tuple(output.shape)}, the target is {tuple(target.shape)}; "
            "a Gaussian likelihood needs them equal, or (batch, 1) and (batch,)"
        )
    return target
