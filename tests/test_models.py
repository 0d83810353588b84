import pytest
import torch

from pocketbayes.models import MODELS


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("resnet20", 269_722),
        ("resnet32", 464_154),
        ("resnet44", 658_586),
        ("resnet56", 853_018),
        ("resnet110", 1_727_962),
        ("resnet18", 11_173_962),
        ("resnet34", 21_282_122),
    ],
)
def test_parameter_counts_are_the_literatures(name, parameters):
    assert sum(p.numel() for p in MODELS[name]().parameters()) == parameters


@pytest.mark.parametrize("stem", ["cifar", "imagenet"])
def test_resnet18_takes_images_of_either_size(stem):
    net = MODELS["resnet18"](num_classes=7, stem=stem).eval()
    side = 32 if stem == "cifar" else 64
    assert net(torch.randn(1, 3, side, side)).shape == (1, 7)
    if stem == "imagenet":
        assert sum(p.numel() for p in MODELS["resnet18"](1000, stem).parameters()) == 11_689_512
