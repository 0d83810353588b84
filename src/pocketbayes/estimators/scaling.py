"""Means and stds of columns, and what they do to a network."""

import numpy as np
import torch
from torch import nn

from pocketbayes.layers import NOISE
from pocketbayes.models import ScaledMLP


def column_scales(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and std of each column, float64; the std of a constant one is 1.

    Columns are divided by their largest number first, since squares of large ones overflow.
    Constant is what varies by less than rounding does.
    """
    size = np.abs(values).max(0)
    size[size == 0] = 1.0
    relative = values.astype(np.float64) / size
    mean, std = relative.mean(0), relative.std(0)
    constant = std <= 10 * np.finfo(np.float64).eps
    return mean * size, np.where(constant, 1.0, std * size)


@torch.no_grad()
def set_input_scales_(net: ScaledMLP, mean: np.ndarray, std: np.ndarray) -> None:
    """Lets the network take inputs in their own units."""
    net.input_mean.copy_(torch.from_numpy(mean))
    net.input_std.copy_(torch.from_numpy(std))


@torch.no_grad()
def set_output_scales_(model: nn.Module, mean: np.ndarray, std: np.ndarray) -> None:
    """Lets a model of standardised targets predict in their own units: its noise grows by std."""
    factor = torch.from_numpy(std)
    for module in model.modules():
        noise = module._parameters.get(NOISE)
        if noise is not None:
            noise.add_(factor.log().to(noise))
        if isinstance(module, ScaledMLP):
            module.output_mean.copy_(torch.from_numpy(mean))
            module.output_std.copy_(factor)
