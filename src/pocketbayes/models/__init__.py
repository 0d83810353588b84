"""Networks for the command line and the benchmarks: a closed table of factories."""

from collections.abc import Callable

from torch import nn

from pocketbayes.models.resnet import (
    resnet18,
    resnet20,
    resnet32,
    resnet34,
    resnet44,
    resnet56,
    resnet110,
)

MODELS: dict[str, Callable[..., nn.Module]] = {
    "resnet18": resnet18,
    "resnet20": resnet20,
    "resnet32": resnet32,
    "resnet34": resnet34,
    "resnet44": resnet44,
    "resnet56": resnet56,
    "resnet110": resnet110,
}

__all__ = ["MODELS"]
