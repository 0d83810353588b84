"""Fully connected networks."""

import math
from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from pocketbayes.models.checks import (
    require_dropout,
    require_outputs,
    require_shape,
    require_widths,
    scaled,
)
from pocketbayes.models.registry import network

MOST_HIDDEN = 64


@network("mlp")
def mlp(
    *,
    input_shape: Sequence[int],
    num_outputs: int = 10,
    hidden: Sequence[int] = (128, 128),
    dropout: float = 0.0,
    width: float = 1.0,
) -> nn.Sequential:
    """A fully connected ReLU network on the flattened input, dropout after each activation.

    Args:
        input_shape: shape of one input, any number of dimensions.
        num_outputs: number of classes or regression targets.
        hidden: widths of the hidden layers; none makes it a linear model.
        dropout: rate of dropout; 0 for none.
        width: factor on the numbers of hidden units and channels, each rounded.
    """
    inner = scaled(require_widths(hidden, "hidden", MOST_HIDDEN), width)
    widths = (math.prod(require_shape(input_shape)), *inner)
    final, rate = require_outputs(num_outputs), require_dropout(dropout)
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    for number, (inputs, outputs) in enumerate(pairwise(widths), start=1):
        layers[f"hidden{number}"] = nn.Linear(inputs, outputs)
        layers[f"relu{number}"] = nn.ReLU()
        layers[f"dropout{number}"] = nn.Dropout(rate)
    layers["output"] = nn.Linear(widths[-1], final)
    return nn.Sequential(layers)
