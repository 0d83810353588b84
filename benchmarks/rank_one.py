"""Rank-1 BNN: a network every weight of which is scaled by two random vectors.

W_ij (1 + a_i) (1 + b_j) for a matrix, the same by channels for a convolution; W is a point, and the
posterior is one of a and b, after M. Dusenberry et al. 2020, arXiv:2005.07186, with one component.
"""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn.utils import parametrize

RANDOM = ["*.outputs", "*.inputs"]  # for `bayesianize_(include=)`


class RankOne(nn.Module):
    """Scales of a weight's outputs and inputs, less 1."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.outputs = nn.Parameter(weight.new_zeros(weight.shape[0]))
        self.inputs = nn.Parameter(weight.new_zeros(weight.shape[1]))

    def forward(self, weight: Tensor) -> Tensor:
        """The weight times (1 + a) (1 + b)^T."""
        return times(weight, 1 + self.outputs, 1 + self.inputs)


def times(weight: Tensor, outputs: Tensor, inputs: Tensor) -> Tensor:
    """A weight whose outputs and inputs are scaled by these; of a convolution by channels."""
    positions = (1,) * (weight.dim() - 2)
    return weight * outputs.view(-1, 1, *positions) * inputs.view(1, -1, *positions)


def scaled_(net: nn.Module, scales: Callable[[Tensor], nn.Module] = RankOne) -> nn.Module:
    """The network with such scales in every layer: no longer one of the table."""
    for layer in list(net.modules()):
        if isinstance(layer, nn.Linear | nn.Conv2d):
            parametrize.register_parametrization(layer, "weight", scales(layer.weight))
    if hasattr(net, "pocketbayes_network"):
        del net.pocketbayes_network
    return net
