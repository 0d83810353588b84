"""Rank-1 BNN: any network of the table, every weight of which is scaled by two random vectors.

W_ij (1 + a_i) (1 + b_j) for a matrix, the same by channels for a convolution; W is a point, and the
posterior is one of a and b, after M. Dusenberry et al. 2020, arXiv:2005.07186, with one component.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from pocketbayes.models import build_network
from pocketbayes.models.registry import network

RANDOM = ["*.outputs", "*.inputs"]  # for `bayesianize_(include=)`


class RankOne(nn.Module):
    """Scales of a weight's outputs and inputs, less 1."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.outputs = nn.Parameter(torch.zeros(weight.shape[0]))
        self.inputs = nn.Parameter(torch.zeros(weight.shape[1]))

    def forward(self, weight: Tensor) -> Tensor:
        """The weight times (1 + a) (1 + b)^T."""
        positions = (1,) * (weight.dim() - 2)
        outputs = 1 + self.outputs.view(-1, 1, *positions)
        return weight * outputs * (1 + self.inputs.view(1, -1, *positions))


@network("rank-one")
def rank_one(base: str = "mlp", options: dict[str, Any] | None = None) -> nn.Module:
    """The network `base` with these options, every layer's weight being scaled."""
    net = build_network(base, **(options or {}))
    for layer in list(net.modules()):
        if isinstance(layer, nn.Linear | nn.Conv2d):
            parametrize.register_parametrization(layer, "weight", RankOne(layer.weight))
    return net
