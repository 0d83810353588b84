"""Whole networks beside draws of them: stds within a stated part, means within a part of a std.

Numbers inside a network are not independent, so this is no identity. Each tolerance is about twice
what was measured; with 2,000 draws chance is 2% of a std at most.
"""

import pytest
import torch
import torch.nn.functional as F
from layer_kinds import CASES
from torch import nn

import pocketbayes as pb
from pocketbayes.layers import BayesianModule, LinearLayer
from pocketbayes.models import lenet5, resnet20
from pocketbayes.moments import Moments, carrying
from pocketbayes.posteriors import SpikeSlab


def moments_and_draws(model, x, number):
    model.eval()
    with torch.no_grad():
        with carrying():
            found = first(model(x))
        torch.manual_seed(1)
        draws = draws_of(model, x, number)
    assert isinstance(found, Moments)
    return found, draws


def draws_of(model, x, number):
    """(number, ...) outputs; where examples are drawn independently, all in one batch."""
    layers = [m for m in model.modules() if isinstance(m, BayesianModule)]
    alone = isinstance(model, nn.Conv2d) and x.dim() == 3
    if alone or any(
        not isinstance(m, LinearLayer) or m._posteriors.estimator != "lrt" for m in layers
    ):
        return torch.stack([first(model(x)) for _ in range(number)])
    return model(x.repeat(number, *(1 for _ in x.shape[1:]))).unflatten(0, (number, -1))


def first(output):
    return output[0] if isinstance(output, tuple) else output


def assert_near(model, x, number=2000, std=0.1, mean=0.1):
    found, draws = moments_and_draws(model, x, number)
    spread = draws.std(0)
    ratio = (found.variance.sum() / draws.var(0).sum()).sqrt()
    assert 1 - std < ratio < 1 + std, ratio
    assert ((found.expected - draws.mean(0)).abs().mean() / spread.mean()) < mean


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x):
        return F.relu(x + self.second(F.relu(self.norm(self.first(x)), inplace=True)))


def tiny_resnet():
    return nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1), nn.ReLU(), Block(8), nn.MaxPool2d(2), Block(8),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3),
    )  # fmt: skip


def seeded(make, seed=0, **options):
    torch.manual_seed(seed)
    return pb.bayesianize_(make(), **options)


@pytest.mark.parametrize("estimator", ["lrt", "weight"])
@pytest.mark.parametrize("activation", [nn.ReLU, nn.GELU, nn.Tanh])
def test_fully_connected(estimator, activation):
    def make():
        return nn.Sequential(
            nn.Linear(10, 40), activation(), nn.Linear(40, 40), activation(), nn.Linear(40, 3)
        )

    assert_near(seeded(make, estimator=estimator), torch.randn(20, 10))


def test_biases_too():
    net = nn.Sequential(nn.Linear(10, 20), nn.LayerNorm(20), nn.SiLU(), nn.Linear(20, 3))
    assert_near(seeded(lambda: net, bias=True), torch.randn(20, 10))


@pytest.mark.parametrize("estimator", ["lrt", "weight"])
def test_lenet(estimator):
    assert_near(seeded(lenet5, estimator=estimator), torch.randn(2, 1, 28, 28), 300)


@pytest.mark.parametrize(("estimator", "std"), [("lrt", 0.25), ("weight", 0.4)])
def test_residual_network(estimator, std):
    """Positions are neither independent nor the same: the most that moments lose is here."""
    x = F.interpolate(torch.randn(4, 2, 4, 4), 12, mode="bilinear")
    assert_near(seeded(tiny_resnet, estimator=estimator), x, 800, std=std)


def test_transformer():
    def make():
        layer = nn.TransformerEncoderLayer(16, 4, 32, 0.0, batch_first=True)
        return nn.Sequential(nn.Linear(6, 16), layer, nn.Linear(16, 3))

    assert_near(seeded(make), torch.randn(4, 5, 6), std=0.25)


@pytest.mark.parametrize(("kind", "std"), [(nn.LSTM, 0.1), (nn.GRU, 0.35)])
def test_recurrent(kind, std):
    """One draw of the weights serves all steps, which moments take for independent."""
    assert_near(seeded(lambda: kind(6, 12, batch_first=True)), torch.randn(4, 7, 6), std=std)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_of_certain_weights_are_torchs(kind):
    """Both ways, two layers, with and without biases, projections and a first state."""
    torch.manual_seed(0)
    x = torch.randn(7, 4, 6)
    for options in ({"bidirectional": True}, {"bias": False}, {"batch_first": True}):
        layer = kind(6, 5, num_layers=2, **options)
        check_certain(layer, x)
    if kind is nn.LSTM:
        check_certain(kind(6, 5, proj_size=3), x)


def check_certain(layer, x):
    with torch.no_grad():
        wanted, state = layer(x)
        found, ends = layer(Moments(x, torch.zeros_like(x)))
    torch.testing.assert_close(found.expected, wanted)
    assert (found.variance == 0).all()
    ends, state = (s if isinstance(s, tuple) else (s,) for s in (ends, state))
    for end, true in zip(ends, state, strict=True):
        torch.testing.assert_close(end.expected, true)


ATTENTION = (
    {}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"kdim": 5, "vdim": 3}, {"bias": False},
)  # fmt: skip


@pytest.mark.parametrize("options", ATTENTION)
@pytest.mark.parametrize("batched", [True, False])
def test_attention_of_certain_inputs_is_torchs(options, batched):
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, **options).eval()
    shape = (3,) if batched else ()
    q, k, v = (torch.randn(4, *shape, options.get(n, 8)) for n in ("none", "kdim", "vdim"))
    mask = torch.ones(4, 4).tril().log()
    with torch.no_grad():
        wanted, weights = layer(q, k, v, attn_mask=mask)
        found, shown = layer(q, k, Moments(v, torch.zeros_like(v)), attn_mask=mask)
        assert layer(q, k, Moments(v, v.square()), need_weights=False)[1] is None
    torch.testing.assert_close(found.expected, wanted, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(shown, weights)
    assert (found.variance == 0).all()


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}])
def test_scaled_dot_product_attention(options):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 4, 5) for _ in range(3))
    found = F.scaled_dot_product_attention(q, k, Moments(v, torch.zeros_like(v)), **options)
    torch.testing.assert_close(found.expected, F.scaled_dot_product_attention(q, k, v, **options))
    mask = torch.ones(4, 4).tril().bool()
    found = F.scaled_dot_product_attention(q, k, Moments(v, torch.zeros_like(v)), mask)
    torch.testing.assert_close(found.expected, F.scaled_dot_product_attention(q, k, v, mask))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_kind_of_layer(case):
    """Exact for one layer that is linear in its weight."""
    x = case.input()
    model = pb.bayesianize_(case.net(), bias=True)
    single = isinstance(model, LinearLayer)
    found, draws = moments_and_draws(model, x, 200)
    ratio = (found.variance.sum() / draws.var(0).sum()).sqrt()
    off = 0.1 if single else 0.45
    assert 1 - off < ratio < 1 + off, ratio


@pytest.mark.parametrize("granularity", ["weight", "input", "output"])
@pytest.mark.parametrize("make", [lambda: nn.Linear(6, 4), lambda: nn.Conv2d(3, 4, 3, padding=1)])
def test_gates(granularity, make):
    model = seeded(make, bias=True)
    gaussian = dict(pb.named_posteriors(model))["weight"]
    axis = {"weight": 0, "input": 1, "output": 0}[granularity]
    count = gaussian.shape if granularity == "weight" else gaussian.shape[axis : axis + 1]
    gated = SpikeSlab(
        gaussian.mean.detach(), gaussian.log_std.detach(),
        torch.linspace(-2, 2, count.numel()).view(count), 1.0, torch.tensor(0.0), granularity, axis,
    )  # fmt: skip
    pb.replace_posterior(model, "weight", gated)
    x = torch.randn(5, 6) if isinstance(model, nn.Linear) else torch.randn(2, 3, 6, 6)
    exact = isinstance(model, nn.Linear) or granularity != "input"
    assert_near(model, x, 4000, std=0.05 if exact else 0.3, mean=0.1)


def test_a_deep_network_of_the_library():
    model = seeded(lambda: resnet20(input_shape=(3, 8, 8)))
    assert_near(model, torch.randn(2, 3, 8, 8), 100, std=0.2, mean=0.2)
