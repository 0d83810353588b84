"""The judge of other libraries' networks: what it calls right, refused and wrong."""

import copy
import os
import sys
import time
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import zoo  # noqa: E402
from zoo_networks import Network, normal  # noqa: E402


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Fused(nn.Linear):
    """Reads its weight where it lies, past every draw."""

    def forward(self, x):
        posterior = self._modules.get("_posteriors")
        weight = self.weight if posterior is None else posterior["weight"].mean
        return nn.functional.linear(x, weight, self.bias)


class Halved(nn.Linear):
    """Is another function once it is Bayesian."""

    def forward(self, x):
        return super().forward(x) / (2 if "_posteriors" in self._modules else 1)


class Cut(nn.Module):
    """A branch that gives no gradients in draws."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        hidden = self.first(x)
        return self.second(hidden.detach() if "_posteriors" in self.first._modules else hidden)


class Bare(nn.Module):
    def __init__(self):
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(3, 2))

    def forward(self, x):
        return x @ self.matrix


def judged(make):
    net = make()
    names = [name for name, p in net.named_parameters() if zoo.counts(p)]
    return zoo.verdict_on(Network("n", make, normal(5, 3)), names)


def test_a_plain_network_is_right():
    row = judged(lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    assert row == {"verdict": "right", "error": "", "bayesian": 20 / 26}


class Beside(nn.Module):
    """A layer, and a larger matrix that is none."""

    def __init__(self):
        super().__init__()
        self.layer, self.matrix = nn.Linear(3, 2), nn.Parameter(torch.randn(3, 2))

    def forward(self, x):
        return self.layer(x) + x @ self.matrix


def test_what_is_right_with_a_warning_tells_it():
    row = judged(Beside)
    assert (row["verdict"], row["bayesian"]) == ("right", 6 / 14)
    assert row["warned"].startswith("50% of the weights stay deterministic: matrix")
    assert row["bayesian_by_name"] == 1


def test_what_is_refused_and_comes_by_name_tells_both():
    row = judged(Bare)
    assert row["verdict"] == "refused"
    assert "matrix" in row["error"]
    assert row["bayesian_by_name"] == 1


@pytest.mark.parametrize(
    ("layers", "why"),
    [
        ([Fused(3, 4)], "two draws are equal"),
        ([nn.Linear(3, 4), Halved(4, 2)], "the mean network is off"),
        ([Cut()], "the loss does not reach the mean of 0.first.weight"),
    ],
)
def test_what_is_wrong_is_seen(layers, why):
    row = judged(lambda: nn.Sequential(*copy.deepcopy(layers)))
    assert row["verdict"] == "wrong"
    assert row["error"].startswith(why)


def broken():
    raise ValueError("no such thing\nat all")


def missing():
    raise ImportError("No module named 'x'")


@pytest.mark.parametrize(
    ("make", "row"),
    [
        (broken, {"verdict": "cannot be built", "error": "no such thing"}),
        (missing, {"verdict": "not installed", "error": "No module named 'x'"}),
        (lambda: os._exit(3), {"verdict": "wrong", "error": "the process ended with 3"}),
        (lambda: time.sleep(60), {"verdict": "wrong", "error": "no answer in 1 s"}),
    ],
)
def test_whatever_befalls_a_network_has_its_row(make, row):
    found = zoo.by_itself(Network("n", make, normal(5, 3)), 1)
    assert found.pop("seconds") < 30
    assert found == row
