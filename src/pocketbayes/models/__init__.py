"""Networks for the command line and the benchmarks: a closed table of factories."""

from pocketbayes.models.cifar_resnet import resnet20, resnet32, resnet44, resnet56, resnet110
from pocketbayes.models.convolutional import lenet5, vgg_like
from pocketbayes.models.foreign import (
    LIBRARIES,
    build_foreign,
    foreign_network,
    is_foreign,
    split_name,
)
from pocketbayes.models.fully_connected import mlp
from pocketbayes.models.registry import MODELS, build_network, options_of
from pocketbayes.models.residual import PaddedShortcut
from pocketbayes.models.resnet import resnet18, resnet34, resnet50, resnet101
from pocketbayes.models.scaled import ScaledMLP, scaled_mlp
from pocketbayes.models.vit import vit_b16, vit_small, vit_tiny
from pocketbayes.models.wide_resnet import wrn_28_10

__all__ = [
    "LIBRARIES",
    "MODELS",
    "PaddedShortcut",
    "ScaledMLP",
    "build_foreign",
    "build_network",
    "foreign_network",
    "is_foreign",
    "lenet5",
    "mlp",
    "options_of",
    "resnet18",
    "resnet20",
    "resnet32",
    "resnet34",
    "resnet44",
    "resnet50",
    "resnet56",
    "resnet101",
    "resnet110",
    "scaled_mlp",
    "split_name",
    "vgg_like",
    "vit_b16",
    "vit_small",
    "vit_tiny",
    "wrn_28_10",
]
