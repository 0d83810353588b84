"""Switched weights: exact KL, switches that hold for whole inputs and outputs, and gradients."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import Bernoulli, Normal, kl_divergence

import pocketbayes as pb
from pocketbayes.errors import PocketBayesError
from pocketbayes.inclusion import log_odds_of
from pocketbayes.methods import MeanField
from pocketbayes.optimizers import make_optimizers
from pocketbayes.posteriors import SpikeSlab


def posterior(granularity="weight", shape=(3, 4), axis=None, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    axis = (1 if granularity == "input" else 0) if axis is None else axis
    mean, log_std = (torch.randn(shape, generator=generator, dtype=dtype) for _ in range(2))
    groups = shape if granularity == "weight" else (shape[axis],)
    log_odds = torch.randn(groups, generator=generator, dtype=dtype)
    prior = torch.tensor(log_odds_of(0.2), dtype=dtype)
    return SpikeSlab(mean, log_std - 1, log_odds, 0.5, prior, granularity, axis)


every_granularity = pytest.mark.parametrize("granularity", ["weight", "input", "output"])


@every_granularity
def test_kl_is_that_of_gaussians_and_switches(granularity):
    q = posterior(granularity)
    slabs = kl_divergence(Normal(q.mean, q.std), Normal(0.0, 0.5))
    switches = kl_divergence(Bernoulli(logits=q.log_odds), Bernoulli(logits=q.prior_log_odds))
    axis = {"weight": None, "input": 0, "output": 1}[granularity]
    slabs = slabs if axis is None else slabs.sum(axis)
    torch.testing.assert_close(q.kl(), (q.inclusion * slabs + switches).sum())
    parameters = [q.mean, q.log_std, q.log_odds]
    assert torch.autograd.gradcheck(lambda m, s, a: _kl(q, m, s, a), parameters)


def _kl(q, mean, log_std, log_odds):
    names = ("mean", "log_std", "log_odds")
    state = dict(zip(names, (mean, log_std, log_odds), strict=True))
    return torch.func.functional_call(Kl(q), {f"q.{k}": v for k, v in state.items()}, ())


class Kl(nn.Module):
    def __init__(self, q):
        super().__init__()
        self.q = q

    def forward(self):
        return self.q.kl()


@every_granularity
@pytest.mark.parametrize("smooth", [True, False])
def test_draws_have_the_moments_with_and_without_gradients(granularity, smooth):
    """20,000 draws of 12 weights, kurtosis as drawn; false alarm 48 * 2e-7 per case."""
    q, n = posterior(granularity), 20_000
    with torch.set_grad_enabled(smooth):
        draws = torch.stack([q.sample().detach() for _ in range(n)])
    mean, variance = (t.detach() for t in q.moments())
    assert ((draws.mean(0) - mean).abs() / (variance / n).sqrt()).max() < 5.2
    fourth = (draws - mean).pow(4).mean(0)
    error = ((fourth - variance**2) / n).sqrt()
    assert ((draws.var(0) - variance).abs() / error).max() < 5.2
    if not smooth:
        zero = draws == 0
        share = zero.double().mean(0)
        off = 1 - q._each(q.inclusion.detach()).expand(3, 4)
        assert ((share - off).abs() / (off * (1 - off) / n).sqrt()).max() < 5.2
        if granularity != "weight":  # all weights of a switch go together
            axis = 2 if granularity == "output" else 1
            assert torch.equal(zero.all(axis), zero.any(axis))


LAYERS = {
    "linear": (lambda: nn.Linear(4, 3), (4,)),
    "tokens": (lambda: nn.Linear(4, 3), (5, 4)),
    "conv": (lambda: nn.Conv2d(4, 6, 3, padding=1, stride=2), (4, 5, 5)),
    "grouped": (lambda: nn.Conv2d(4, 6, 3, groups=2), (4, 5, 5)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2), (4, 3, 3)),
}


def switched(kind, granularity):
    """A layer with switches, its example, and the axis that they lie along."""
    make, shape = LAYERS[kind]
    torch.manual_seed(3)
    layer = pb.bayesianize_(make().double())
    weight = dict(pb.named_posteriors(layer))["weight"]
    axis = int((granularity == "input") != (kind == "transposed"))
    generator = torch.Generator().manual_seed(4)
    log_odds = torch.randn(weight.shape[axis], generator=generator, dtype=torch.float64)
    q = SpikeSlab(
        weight.mean.detach(), torch.full_like(weight.mean.detach(), -2.0), log_odds, 0.5,
        torch.tensor(0.0, dtype=torch.float64), granularity, axis,
    )  # fmt: skip
    pb.replace_posterior(layer, "weight", q)
    return layer, torch.randn(shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("granularity", ["input", "output"])
@pytest.mark.parametrize("smooth", [True, False])
def test_gated_layers_have_the_moments_of_drawn_weights(kind, granularity, smooth):
    """Outputs of 2,000 examples by local reparameterisation, and of 2,000 drawn weights.

    Two-sample z-scores of mean and variance, up to 200 outputs; false alarm below 1e-3 in all.
    """
    layer, x = switched(kind, granularity)
    n = 2000
    with torch.set_grad_enabled(smooth):
        local = layer(x.expand(n, *x.shape)).detach()
    with torch.no_grad():
        layer.estimator = "weight"
        drawn = torch.cat([layer(x.unsqueeze(0)) for _ in range(n)])
    for one, other in (
        (local, drawn),
        ((local - local.mean(0)) ** 2, (drawn - drawn.mean(0)) ** 2),
    ):
        error = ((one.var(0) + other.var(0)) / n).sqrt()
        assert ((one.mean(0) - other.mean(0)).abs() / error).max() < 5.5


def test_an_input_that_is_off_is_off_for_every_output_and_position():
    layer, x = switched("conv", "input")
    with torch.no_grad():
        q = layer.posterior("weight")
        q.log_odds.copy_(torch.tensor([50.0, -50, -50, -50]))
        q.log_std.fill_(-30)
        alone = x.clone()
        alone[1:] = 0
        got, want = layer(x.unsqueeze(0)), layer(alone.unsqueeze(0))
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("granularity", ["input", "output"])
def test_the_gradient_of_a_switch_is_what_its_moments_say(granularity):
    """d E[y^2] / dp against its closed form, from 20,000 examples, to 12% of the largest."""
    layer, x = switched("linear", granularity)
    q = layer.posterior("weight")
    n = 20_000
    with torch.no_grad():
        layer.bias.zero_()
    value = layer(x.expand(n, 4)).square().sum(1).mean()
    (slope,) = torch.autograd.grad(value, q.log_odds)
    p = q.inclusion.detach()
    found = slope / (p * (1 - p))
    m, v = q.mean.detach(), q.std.detach().square()
    if granularity == "output":  # E[y_o^2] = p_o (E y^2)
        want = (v @ x.square()) + (m @ x).square()
    else:  # E[y_o^2] = sum_i p_i s_oi x_i^2 + p_i (1 - p_i) (m_oi x_i)^2 + (sum p m x)^2
        total = (m * p * x).sum(1, keepdim=True)
        want = (v * x**2 + (1 - 2 * p) * (m * x) ** 2 + 2 * total * m * x).sum(0)
    torch.testing.assert_close(found, want, rtol=0.12, atol=0.12 * want.abs().max().item())


def test_log_odds_have_no_optimiser():
    layer, _ = switched("linear", "output")
    groups = [g for o in make_optimizers(layer, MeanField()) for g in o.param_groups]
    moved = {id(p) for g in groups for p in g["params"]}
    q = layer.posterior("weight")
    assert id(q.log_odds) not in moved
    assert {id(q.mean), id(q.log_std)} <= moved


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("log_odds", lambda t: t[:1]),
        ("log_odds", lambda t: t.float()),
        ("layout", lambda t: t + 5),
        ("layout", lambda t: t[:1]),
        ("layout", lambda t: t.int()),
        ("layout", lambda t: torch.tensor([1, -1])),
        ("prior_log_odds", lambda t: t * math.nan),
        ("prior_log_odds", lambda t: t.repeat(2)),
        ("log_std", lambda t: t[:1]),
        ("prior_std", lambda t: -t),
    ],
)
def test_arrays_that_do_not_fit_are_refused(name, change):
    arrays = posterior("output").arrays()
    SpikeSlab.from_arrays(arrays)
    with pytest.raises(PocketBayesError):
        SpikeSlab.from_arrays(arrays | {name: change(arrays[name])})


def test_a_file_brings_switches_back(tmp_path):
    layer, _ = switched("conv", "input")
    pb.save(layer, tmp_path / "m.pocket")
    again = pb.load(tmp_path / "m.pocket", LAYERS["conv"][0]().double())
    one, two = (m.posterior("weight") for m in (layer, again))
    assert torch.equal(one.log_odds, two.log_odds)
    assert (one.granularity, one.axis) == (two.granularity, two.axis)
    torch.testing.assert_close(pb.kl(layer), pb.kl(again))
