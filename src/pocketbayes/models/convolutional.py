"""Plain convolutional networks: LeNet-5 and a VGG-16 for small images."""

import math
from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from pocketbayes.models.checks import require_dropout, require_image, require_outputs, scaled
from pocketbayes.models.registry import network

VGG_WIDTHS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


@network("lenet5")
def lenet5(
    *,
    input_shape: Sequence[int] = (1, 28, 28),
    num_outputs: int = 10,
    dropout: float = 0.0,
    width: float = 1.0,
) -> nn.Sequential:
    """LeNet-5 with ReLU and max-pooling: 61,706 parameters on 28 x 28 grey images.

    Dropout follows each hidden activation of the fully connected layers.

    Images smaller than the 32 x 32 of the original are padded by two pixels on each side.

    Args:
        input_shape: (channels, height, width), sides of at least 12.
        num_outputs: number of classes or regression targets.
        dropout: rate of dropout; 0 for none.
        width: factor on the numbers of hidden units and channels, each rounded.
    """
    channels, *sides = require_image(input_shape, least_side=12)
    final, rate = require_outputs(num_outputs), require_dropout(dropout)
    first, second, third, fourth = scaled((6, 16, 120, 84), width)
    padding = 2 if min(sides) < 32 else 0
    area = math.prod(((side + 2 * padding - 4) // 2 - 4) // 2 for side in sides)
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, first, 5, padding=padding),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(first, second, 5),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            linear1=nn.Linear(second * area, third),
            relu3=nn.ReLU(),
            dropout1=nn.Dropout(rate),
            linear2=nn.Linear(third, fourth),
            relu4=nn.ReLU(),
            dropout2=nn.Dropout(rate),
            linear3=nn.Linear(fourth, final),
        )
    )


@network("vgg_like")
def vgg_like(
    *,
    input_shape: Sequence[int] = (3, 32, 32),
    num_outputs: int = 10,
    dropout: float = 0.0,
    width: float = 1.0,
) -> nn.Sequential:
    """VGG-16 for CIFAR, 13 normalised convolutions and two linear layers: 15.0M parameters.

    Dropout comes before each of the two linear layers.

    Args:
        input_shape: (channels, height, width), sides of at least 16.
        num_outputs: number of classes or regression targets.
        dropout: rate of dropout; 0 for none.
        width: factor on the numbers of hidden units and channels, each rounded.
    """
    channels, *sides = require_image(input_shape, least_side=16)
    final, rate = require_outputs(num_outputs), require_dropout(dropout)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for block, widths in enumerate(VGG_WIDTHS, start=1):
        for number, outputs in enumerate(scaled(widths, width), start=1):
            layers[f"conv{block}_{number}"] = nn.Conv2d(channels, outputs, 3, padding=1)
            layers[f"bn{block}_{number}"] = nn.BatchNorm2d(outputs)
            layers[f"relu{block}_{number}"] = nn.ReLU()
            channels = outputs
        # Rounding up lets images of less than 32 pixels survive five halvings.
        layers[f"pool{block}"] = nn.MaxPool2d(2, ceil_mode=True)
    features = channels * math.prod(-(-side // 32) for side in sides)
    (hidden,) = scaled((512,), width)
    layers |= OrderedDict(
        flatten=nn.Flatten(),
        dropout1=nn.Dropout(rate),
        linear1=nn.Linear(features, hidden),
        bn6=nn.BatchNorm1d(hidden),
        relu6=nn.ReLU(),
        dropout2=nn.Dropout(rate),
        linear2=nn.Linear(hidden, final),
    )
    return nn.Sequential(layers)
