"""Fully connected networks that take inputs and give outputs in their own units."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pocketbayes.models.fully_connected import mlp
from pocketbayes.models.registry import network


class ScaledMLP(nn.Module):
    """output_mean + output_std f((x - input_mean) / input_std), with f an `mlp`.

    The scales are float64 buffers, at first 0 and 1: in float32 a small spread around a large
    mean would be lost.
    """

    is_chain = True  # of the net, but for units
    input_mean: Tensor
    input_std: Tensor
    output_mean: Tensor
    output_std: Tensor

    def __init__(self, net: nn.Module, inputs: int, outputs: int) -> None:
        super().__init__()
        for name, size in (("input", inputs), ("output", outputs)):
            self.register_buffer(f"{name}_mean", torch.zeros(size, dtype=torch.float64))
            self.register_buffer(f"{name}_std", torch.ones(size, dtype=torch.float64))
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """Outputs in their own units, as float64."""
        standard = (x.flatten(1) - self.input_mean) / self.input_std
        outputs = self.net(standard.to(next(self.parameters()).dtype))
        return outputs * self.output_std + self.output_mean  # type: ignore[no-any-return]


@network("scaled_mlp")
def scaled_mlp(
    *,
    input_shape: Sequence[int],
    num_outputs: int = 10,
    hidden: Sequence[int] = (64, 64),
    dropout: float = 0.0,
    width: float = 1.0,
) -> ScaledMLP:
    """An `mlp` between fixed scales of its inputs and outputs; the scikit-learn estimators' net.

    Args:
        input_shape: shape of one input, any number of dimensions.
        num_outputs: number of classes or regression targets.
        hidden: widths of the hidden layers; none makes it a linear model.
        dropout: rate of dropout; 0 for none.
        width: factor on the numbers of hidden units and channels, each rounded.
    """
    net = mlp(
        input_shape=input_shape,
        num_outputs=num_outputs,
        hidden=hidden,
        dropout=dropout,
        width=width,
    )
    return ScaledMLP(net, math.prod(input_shape), num_outputs)
