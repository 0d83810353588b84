"""Mean and variance of outputs in closed form, as the library carries them."""

import copy

import numpy as np
import pytest
import torch
from built import EngineError, engine_of, engine_of_program
from program_models import Attentive, Residual, Sequential1d, example
from torch import nn
from torch.nn import functional as F
from traced import traced

import pocketbayes as pb
from pocketbayes.layers import set_estimator
from pocketbayes.layers.description import update_description
from pocketbayes.models import build_network
from pocketbayes.prediction.draws import drawing
from pocketbayes.prediction.moment_outputs import output_moments_of
from pocketbayes.programs import Buffer, Input, Operation, Program, encoded


class Every(nn.Module):
    """Two layers around a function."""

    def __init__(self, between, inputs=6, outputs=10):
        super().__init__()
        self.first, self.between, self.last = nn.Linear(inputs, 10), between, nn.Linear(outputs, 3)

    def forward(self, x):
        return self.last(self.between(self.first(x)))


class Image(nn.Module):
    """A convolution, a function of its positions, and a linear layer."""

    def __init__(self, between, outputs):
        super().__init__()
        self.conv, self.between, self.last = (
            nn.Conv2d(2, 6, 3, 2, 1),
            between,
            nn.Linear(outputs, 3),
        )

    def forward(self, x):
        return self.last(self.between(self.conv(x)).flatten(1))


class Product(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 12), nn.Linear(6, 12)

    def forward(self, x):
        a, b = self.a(x), self.b(x)
        c = torch.maximum(a, b) * torch.minimum(a, b + 1) - a / (b * b + 3)
        c = torch.cat([c[:, ::2], F.pad(a, (1, 2))], 1).reshape(-1, 3, 7)
        return (c @ c.transpose(1, 2).exp().clamp(max=2)).sum(2) + c.amax(2)


class Tokens(nn.Module):
    """Noise that is common to positions, through views, products and attention."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        x = self.first(x.view(len(x), 3, 4))
        heads = x.view(len(x), 3, 2, 4).permute(0, 2, 1, 3)
        mixed = F.scaled_dot_product_attention(heads, heads, heads)
        x = x + mixed.permute(0, 2, 1, 3).reshape(len(x), 3, 8)
        wide = x[:, :1].expand(-1, 3, -1) + x.softmax(1)
        return self.last(wide.mean(1)) + x.amax(1)[:, :3] + wide.sum((1, 2))[:, None]


def functions():
    return [
        nn.ReLU(), nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.Tanh(), nn.Sigmoid(), nn.Softplus(),
        nn.ELU(0.7), nn.LeakyReLU(0.2), nn.PReLU(10), nn.Hardswish(), nn.Hardsigmoid(),
        nn.ReLU6(), nn.Hardtanh(), nn.LayerNorm(10), nn.Softmax(1), nn.LogSoftmax(1),
        nn.BatchNorm1d(10),
    ]  # fmt: skip


def poolings():
    return [
        (nn.MaxPool2d(2), 24), (nn.MaxPool2d(3, 2, 1), 24), (nn.AvgPool2d(2), 24),
        (nn.AvgPool2d(3, 2, 1, count_include_pad=False), 24),
        (nn.AvgPool2d(3, 2, ceil_mode=True), 24),
        (nn.AdaptiveAvgPool2d((3, 1)), 18), (nn.AdaptiveAvgPool2d(1), 6), (nn.GroupNorm(2, 6), 96),
        (nn.Upsample(scale_factor=2), 384), (nn.Sequential(nn.Conv2d(6, 6, 3, padding=1, groups=2),
         nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 6, 3, groups=6)), 24),
    ]  # fmt: skip


def bayesian(net, std=0.2):
    """Statistics of norms and slopes that are not as they begin."""
    made = torch.Generator().manual_seed(2)
    for module in net.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.running_mean.normal_(generator=made)
            module.running_var.uniform_(0.5, 2, generator=made)
            nn.init.uniform_(module.weight, 0.5, 2, generator=made)
    return pb.bayesianize_(net, std_init=std).eval()


def assert_same_moments(library, model, x, rtol=2e-4):
    engine = engine_of(library, model, encoded(traced(model, x)), "categorical")
    with drawing(model, "moments", None):
        mean, variance = output_moments_of(model, x)
    for rows in (1, len(x)):
        found = engine.predict(x[:rows].float().numpy(), estimator="moments", draws=4)
        for name, wanted in (("outputs", mean), ("variances", variance)):
            expected = wanted[:rows].double().numpy()
            atol = rtol * max(1e-3, np.abs(expected).max())
            np.testing.assert_allclose(found[name], expected, rtol=rtol, atol=atol, err_msg=name)


@pytest.mark.parametrize("between", functions(), ids=lambda f: type(f).__name__)
def test_functions(library, between):
    torch.manual_seed(0)
    assert_same_moments(library, bayesian(Every(copy.deepcopy(between))), torch.randn(20, 6))


@pytest.mark.parametrize("estimator", ["lrt", "weight"])
@pytest.mark.parametrize(("between", "outputs"), poolings(), ids=lambda f: type(f).__name__)
def test_images(library, between, outputs, estimator):
    torch.manual_seed(0)
    model = bayesian(Image(copy.deepcopy(between), outputs))
    set_estimator(model, estimator)
    assert_same_moments(library, model, torch.randn(18, 2, 8, 8))


@pytest.mark.parametrize("estimator", ["lrt", "weight"])
@pytest.mark.parametrize(
    ("net", "x"),
    [(Residual, "residual"), (Attentive, "attentive"), (Sequential1d, "sequential"),
     (Product, "plain"), (Tokens, "tokens")],
)  # fmt: skip
def test_networks(library, net, x, estimator):
    torch.manual_seed(1)
    model = bayesian(net(), 0.1)
    set_estimator(model, estimator)
    given = torch.randn(18, 12) if x == "tokens" else example(x)
    assert_same_moments(library, model, given, 5e-4)


def test_dropout_that_stays_on(library):
    torch.manual_seed(0)
    net = build_network("mlp", input_shape=(6,), num_outputs=3, hidden=(12, 8), dropout=0.3)
    model = bayesian(net)
    update_description(model, keeps_dropout=True)
    assert_same_moments(library, model, torch.randn(5, 6))


def test_what_has_no_rule_is_named(library):
    class Squared(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(9, 9)

        def forward(self, x):
            x = self.first(x).view(-1, 3, 3)
            return torch.matmul(x, x).flatten(1)

    model = bayesian(Squared())
    x = torch.randn(2, 9)
    engine = engine_of(library, model, encoded(traced(model, x)), "categorical")
    with pytest.raises(EngineError, match="matmul"):
        engine.predict(x.numpy(), estimator="moments", draws=2)


def test_a_model_without_noise_has_no_variance(library):
    program = Program((Input(0, (3,)),), (Operation("relu", (Buffer(0),)),), Buffer(1))
    engine = engine_of_program(library, encoded(program), {})
    found = engine.predict(np.ones((2, 3), np.float32), estimator="moments", draws=4)
    assert not found["variances"].any()
