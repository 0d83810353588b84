"""Smaller networks: the same mean, the same noise, and layers that are really narrower."""

import copy
import time

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pocketbayes as pb
from pocketbayes import estimators
from pocketbayes.convert import named_posteriors, replace_posterior
from pocketbayes.errors import PocketBayesError
from pocketbayes.layers import drawing_by
from pocketbayes.models import build_network
from pocketbayes.models.residual import BasicBlock, padded_shortcut, projected_shortcut
from pocketbayes.models.wide_resnet import WideBlock
from pocketbayes.posteriors import Gaussian, Point, Sparse, SparsePoint
from pocketbayes.posteriors.conversions import as_packed, as_point


def conv(inputs, outputs, **options):
    return nn.Conv2d(inputs, outputs, 3, padding=1, **options)


class Concatenation(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.first, self.second = conv(3, 8), conv(8, 6), conv(14, 6)
        self.norm, self.head = nn.BatchNorm2d(20), nn.Linear(20, 4)

    def forward(self, x):
        x = F.gelu(self.stem(x))
        x = torch.cat([x, self.first(x).relu()], dim=1)
        x = torch.cat([x, torch.tanh(self.second(x))], 1)
        x = F.adaptive_avg_pool2d(self.norm(x), 1)
        return self.head(x.view(x.size(0), -1))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.a, self.b, self.c = conv(3, 8), conv(8, 8), conv(8, 8), conv(8, 12)
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(3))
        self.pool, self.drop = nn.AvgPool2d(2, padding=1), nn.Dropout(0.5)
        self.head = nn.Linear(12 * 25, 4)

    def forward(self, x):
        x = F.relu(self.norms[0](self.stem(x)), inplace=True)
        y = self.norms[1](self.a(x))
        y += x
        y = F.leaky_relu(self.norms[2](y + self.b(F.max_pool2d(y, 3, 1, 1))))
        y = self.drop(self.pool(y))
        return self.head(torch.flatten(F.silu(self.c(y)), 1))


class Mobile(nn.Module):
    """Depthwise, with two outputs for each input, gated channels, groups, a transposed layer."""

    def __init__(self):
        super().__init__()
        self.stem, self.depth = conv(3, 8), conv(8, 16, groups=8)
        self.squeeze, self.excite = nn.Linear(16, 6), nn.Linear(6, 16)
        self.point, self.grouped = nn.Conv2d(16, 8, 1), conv(8, 8, groups=2)
        self.up = nn.ConvTranspose2d(8, 6, 2, stride=2)
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        x = F.relu(self.depth(self.stem(x).relu_()))
        b, c, _, _ = x.size()
        gate = self.excite(F.relu(self.squeeze(x.mean((2, 3))))).sigmoid().view(b, c, 1, 1)
        x = self.grouped(F.hardswish(self.point(x * gate)))
        return self.head(self.up(F.relu(x)).amax(dim=(-1, -2)))


class Stages(nn.Module):
    """Both shortcuts of the residual networks, and a block that normalises first."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(conv(3, 8, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.one = BasicBlock(8, 12, 2, padded_shortcut, 0.0)
        self.two = BasicBlock(12, 16, 2, projected_shortcut, 0.0)
        self.three = WideBlock(16, 16, 1, 0.0)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.three(self.two(self.one(self.stem(x)))).mean((2, 3)))


class Strange(nn.Module):
    """Norms over channels, attention, a recurrent layer, a fixed view: all is kept, all is right."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = conv(3, 8), nn.GroupNorm(2, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.line, self.layer_norm = nn.Linear(8, 8), nn.LayerNorm(8)
        self.memory, self.head = nn.LSTM(8, 6, batch_first=True), nn.Linear(6, 4)
        self.scale = nn.Parameter(torch.rand(8, 1, 1))

    def forward(self, x):
        x = self.norm(self.stem(x)) * self.scale
        x = x.view(-1, 8, 64).transpose(1, 2)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        x = self.layer_norm(F.relu(self.line(x)))
        return self.head(self.memory(x)[0][:, -1])


def vgg():
    return nn.Sequential(
        conv(3, 8), nn.BatchNorm2d(8), nn.ReLU(inplace=True), conv(8, 12), nn.ReLU(),
        nn.MaxPool2d(3, 2, 1), conv(12, 12, padding_mode="circular"), nn.BatchNorm2d(12), nn.ELU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.3), nn.Linear(48, 16),
        nn.BatchNorm1d(16), nn.Sigmoid(), nn.Linear(16, 4),
    )  # fmt: skip


def signal():
    return nn.Sequential(
        nn.Conv1d(3, 8, 3, padding=2), nn.Softplus(), nn.AvgPool1d(2), nn.ConvTranspose1d(8, 6, 2),
        nn.PReLU(), nn.Upsample(scale_factor=2, mode="linear"), nn.Conv1d(6, 6, 3), nn.Tanh(),
        nn.Flatten(2), nn.AdaptiveMaxPool1d(2), nn.Flatten(), nn.Linear(12, 4),
    )  # fmt: skip


def mlp():
    return build_network("mlp", input_shape=(3, 8, 8), num_outputs=4, hidden=(24, 16, 12))


def resnet20():
    return build_network("resnet20", input_shape=(3, 8, 8), num_outputs=4)


NETS = {
    "mlp": mlp, "vgg": vgg, "concatenation": Concatenation, "residual": Residual, "mobile": Mobile,
    "stages": Stages, "strange": Strange, "resnet20": resnet20, "signal": signal,
    "lenet5": lambda: build_network("lenet5", input_shape=(3, 12, 12), num_outputs=4),
}  # fmt: skip
every_net = pytest.mark.parametrize("name", NETS)


def inputs_of(name, batch=3):
    shape = {"signal": (3, 12), "lenet5": (3, 12, 12)}.get(name, (3, 8, 8))
    return torch.randn(batch, *shape)


def lively(net):
    """Norms and biases as after training, not as they start."""
    for module in net.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.normal_(module.weight, 1, 0.3)
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
        if getattr(module, "bias", None) is not None and isinstance(module.bias, nn.Parameter):
            nn.init.normal_(module.bias)
    return net


def bayesian(net, **options):
    model = pb.bayesianize_(lively(net), prior_std=0.3, std_init=0.2, **options)
    for _, posterior in named_posteriors(model):
        posterior.log_std.data.add_(torch.randn(posterior.shape) / 3)
    return model


def drop_(model, share=0.5, sides=("output", "input"), structure="none", names=None):
    """Takes whole outputs and inputs, at random, out of every posterior."""
    for name, q in list(named_posteriors(model)):
        if not isinstance(q, Gaussian) or (names is not None and name not in names):
            continue
        there = torch.ones(q.shape, dtype=torch.bool)
        for axis, side in enumerate(("output", "input")[: there.dim()]):
            if side in sides:
                gone = torch.rand(there.shape[axis]) < share
                gone[0] = False
                there.transpose(0, axis)[gone] = False
        if not there.all():
            index = there.flatten().nonzero().flatten()
            replace_posterior(model, name, as_packed(q, index, structure))
    return model


@torch.no_grad()
def means(model, x):
    with drawing_by(model, "mean"):
        return copy.deepcopy(model).eval()(x)


@torch.no_grad()
def plus_one_std(model, x, monkeypatch):
    """The output when every noise of local reparameterisation is 1: shows all variances."""
    with monkeypatch.context() as patch:
        patch.setattr(estimators, "normal_like", torch.ones_like)
        with drawing_by(model, "lrt"):
            return copy.deepcopy(model).eval()(x)


def size(model):
    return sum(p.numel() for p in model.parameters())


def width(model):
    return sum(q.shape.numel() for _, q in named_posteriors(model))


def assert_same(small, model, x, monkeypatch):
    torch.testing.assert_close(means(small, x), means(model, x), rtol=1e-5, atol=1e-5)
    noisy = (plus_one_std(m, x, monkeypatch) for m in (small, model))
    torch.testing.assert_close(*noisy, rtol=1e-4, atol=1e-4)


@every_net
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("sides", [("output",), ("input",), ("output", "input")])
def test_the_distribution_of_outputs_stays(name, seed, sides, monkeypatch):
    torch.manual_seed(seed)
    model = drop_(bayesian(NETS[name](), exclude=(nn.LSTM, nn.MultiheadAttention)), 0.5, sides)
    small = pb.shrink(model, inputs_of(name))
    assert_same(small, model, inputs_of(name, 5), monkeypatch)
    if name not in ("strange", "mobile"):
        assert width(small) < 0.8 * width(model)
