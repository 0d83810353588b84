"""A Gaussian spike: inclusion variables in the prior only, their optimum, their training."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.distributions import Bernoulli, Normal, kl_divergence

import pocketbayes as pb
from pocketbayes.errors import PocketBayesError
from pocketbayes.posteriors import Gaussian, NarrowSpike, Sparse
from pocketbayes.posteriors.inclusion import MOST_LOG_ODDS

every_granularity = pytest.mark.parametrize("granularity", ["weight", "input", "output"])


def posterior(granularity="weight"):
    generator = torch.Generator().manual_seed(1)
    mean, log_std = (torch.randn(3, 4, generator=generator).double() / 5 for _ in range(2))
    axis = int(granularity == "input")
    groups = (3, 4) if granularity == "weight" else (3, 4)[axis : axis + 1]
    log_odds = torch.randn(groups, generator=generator).double()
    prior = torch.tensor(-1.0, dtype=torch.float64)
    return NarrowSpike(mean, log_std - 2, log_odds, 0.5, prior, granularity, axis, spike_std=0.05)


def divergences(q):
    made = Normal(q.mean, q.std)
    return (q.of_groups(kl_divergence(made, Normal(0.0, s))) for s in (q.prior_std, q.spike_std))


@every_granularity
def test_the_kl_is_that_of_both_scales_and_the_inclusion_variables(granularity):
    q = posterior(granularity)
    slabs, spikes = divergences(q)
    inclusions = kl_divergence(Bernoulli(logits=q.log_odds), Bernoulli(logits=q.prior_log_odds))
    p = q.inclusion
    torch.testing.assert_close(q.kl(), (p * slabs + (1 - p) * spikes + inclusions).sum())


@every_granularity
def test_the_kl_has_no_slope_at_the_best_log_odds(granularity):
    q = posterior(granularity)
    with torch.no_grad():
        q.log_odds.copy_(q.best_log_odds())
    (slope,) = torch.autograd.grad(q.kl(), q.log_odds)
    inner = q.log_odds.abs() < MOST_LOG_ODDS
    assert inner.any()
    assert slope[inner].abs().max() < 1e-12


@given(
    st.floats(-1, 1), st.floats(0.01, 1), st.floats(0.01, 0.1), st.floats(0.2, 2), st.floats(-8, 8)
)
def test_the_best_log_odds_are_the_closed_form(mean, std, spike, slab, prior):
    """Logit q + ln(spike / slab) + (m^2 + v) / 2 (1 / spike^2 - 1 / slab^2)."""
    m, s, t, w, b = (torch.tensor(x, dtype=torch.float64) for x in (mean, std, spike, slab, prior))
    q = NarrowSpike(m.view(1), s.log().view(1), torch.zeros(1).double(), w, b, spike_std=t)
    want = b + (t / w).log() + (m.square() + s.square()) / 2 * (t**-2 - w**-2)
    assert q.best_log_odds().item() == pytest.approx(want.clamp(-12, 12).item(), abs=1e-9)


def test_weights_are_drawn_as_gaussians():
    q = posterior("input")
    plain = Gaussian(q.mean.detach(), q.log_std.detach(), 0.5)
    for got, want in zip(q.moments(), plain.moments(), strict=True):
        torch.testing.assert_close(got, want)
    one, other = (x.sample(torch.Generator().manual_seed(3)) for x in (q, plain))
    torch.testing.assert_close(one, other)
    assert q.is_independent
    assert q.gate is None


def regression(n=200):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 8, generator=generator)
    y = 1.5 * x[:, :1] - x[:, 3:4] + 0.3 * torch.randn(n, 1, generator=generator)
    return [(x, y)]


@every_granularity
def test_training_finds_what_matters_and_pruning_keeps_it(granularity):
    torch.manual_seed(0)
    model = pb.bayesianize_(nn.Linear(8, 1), prior_std=1.0)
    method = pb.SpikeSlab(
        spike="gaussian", granularity=granularity, spike_scale=0.05, beta=1.0, lr=4e-2, std_lr=4e-2
    )
    options = {"likelihood": "gaussian", "progress": False, "dataset_size": 200}
    pb.fit(model, regression(), method, epochs=300, **options)
    q = dict(pb.named_posteriors(model))["weight"]
    torch.testing.assert_close(q.log_odds, q.best_log_odds(), atol=0.2, rtol=0.02)
    on = q.each(q.inclusion >= 0.5).expand(q.shape).flatten().tolist()
    if granularity == "output":
        assert all(on)
        return
    assert on == [k in (0, 3) for k in range(8)]
    pb.prune_(model)
    pruned = dict(pb.named_posteriors(model))["weight"]
    assert isinstance(pruned, Sparse)
    assert pruned.index.tolist() == [0, 3]


def test_the_prior_is_learned_here_too():
    torch.manual_seed(0)
    model = pb.bayesianize_(nn.Linear(8, 1, bias=False), prior_std=1.0)
    method = pb.SpikeSlab(spike="gaussian", learn_inclusion=True, beta=1.0, lr=2e-2, std_lr=2e-2)
    options = {"likelihood": "gaussian", "progress": False, "dataset_size": 200}
    pb.fit(model, regression(), method, epochs=400, **options)
    q = dict(pb.named_posteriors(model))["weight"]
    share = q.inclusion.mean().item()
    assert torch.sigmoid(q.prior_log_odds).item() == pytest.approx(share, abs=0.02)


def test_only_the_first_layer_has_inclusion_variables_if_asked():
    model = pb.bayesianize_(nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 1)))
    options = {"likelihood": "gaussian", "progress": False, "dataset_size": 200, "epochs": 1}
    method = pb.SpikeSlab(layers="first", granularity="input")
    pb.fit(model, regression(), method, **options)
    kinds = {name: type(q).__name__ for name, q in pb.named_posteriors(model)}
    assert kinds["0.weight"] == "SpikeSlab"
    assert set(kinds.values()) == {"SpikeSlab", "Gaussian"}
    assert list(kinds.values()).count("SpikeSlab") == 1
    assert len(pb.feature_report(model).probabilities) == 8


@pytest.mark.parametrize("spike", [0.0, -1.0, float("nan"), float("inf"), [0.1, 0.2]])
def test_a_spike_without_a_width_is_refused(spike):
    arrays = posterior().arrays() | {"spike_std": torch.tensor(spike)}
    with pytest.raises(PocketBayesError, match="spike_std"):
        NarrowSpike.from_arrays(arrays)


def test_files_keep_both_scales(tmp_path):
    model = pb.bayesianize_(nn.Linear(4, 3))
    pb.replace_posterior(model, "weight", posterior("input").float())
    pb.save(model, tmp_path / "m.pocket", lossless=True)
    back = pb.load(tmp_path / "m.pocket", nn.Linear(4, 3))
    one, other = (dict(pb.named_posteriors(m))["weight"] for m in (model, back))
    assert type(other) is NarrowSpike
    for name, array in one.arrays().items():
        assert torch.equal(array, other.arrays()[name])


def test_useless_inputs_of_a_network_go_off():
    """With p near 1 at first their weights spread over the slab, and p would stay there."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 8, generator=generator)
    x[:, 6], x[:, 7] = 0, 1
    y = x[:, :2].sum(1, keepdim=True) + 0.3 * torch.randn(200, 1, generator=generator)
    torch.manual_seed(0)
    model = pb.bayesianize_(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)), 0.3)
    method = pb.SpikeSlab(granularity="input", spike="gaussian", layers="first", beta=1.0)
    options = {"likelihood": "gaussian", "progress": False, "dataset_size": 200}
    pb.fit(model, list(zip(x.split(50), y.split(50), strict=True)), method, epochs=150, **options)
    assert sorted(pb.feature_report(model).chosen()) == ["input 0", "input 1"]


@pytest.mark.parametrize(
    ("fields", "start"),
    [({}, 0.98), ({"spike": "gaussian"}, 0.5), ({"initial_inclusion": 0.3}, 0.3),
     ({"spike": "gaussian", "initial_inclusion": 0.9}, 0.9)],
)  # fmt: skip
def test_where_inclusion_variables_start(fields, start):
    model = pb.bayesianize_(nn.Linear(8, 1))
    options = {"likelihood": "gaussian", "progress": False, "dataset_size": 200}
    pb.fit(model, regression(), pb.SpikeSlab(**fields), epochs=0, **options)
    q = dict(pb.named_posteriors(model))["weight"]
    assert q.inclusion.flatten().tolist() == pytest.approx([start] * 8)
