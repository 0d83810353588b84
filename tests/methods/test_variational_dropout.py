"""Variational dropout: the KL of its prior, what it trains, and what is left of it."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats
from torch import nn

import pocketbayes as pb
from pocketbayes.posteriors import Gaussian, LogUniform, Point, Sparse
from pocketbayes.posteriors.log_uniform import log_alpha, log_uniform_kls

OPTIONS = {"progress": False, "device": "cpu", "dataset_size": 8}
DATA = [(torch.randn(8, 6), torch.randint(3, (8,)))]


def net(**options):
    torch.manual_seed(0)
    return pb.bayesianize_(nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 3)), **options)


def started(model=None, method=None):
    model = model or net()
    return pb.fit(model, DATA, method or pb.VariationalDropout(), epochs=0, **OPTIONS).model


def exact_kl(ratio):
    """KL(N(m, s^2) || 1 / |w|), less its value at m = 0: E log|z + r| - E log|z|, r = m / s."""

    def integrand(w, centre):
        return stats.norm.pdf(w, centre) * np.log(abs(w))

    def expected_log(centre):
        borders = sorted({-20.0, 0.0, centre, centre + 10})
        return sum(integrate.quad(integrand, a, b, (centre,))[0] for a, b in pairwise(borders))

    return expected_log(ratio) - expected_log(0.0)


@pytest.mark.parametrize("noise", [-8.0, -5.0, -3.5, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 5.0, 8.0])
def test_kl_is_that_of_quadrature(noise):
    """The formula is a fit: off by at most 0.0094 nats, at log alpha = -3.5."""
    mean, std = torch.tensor([0.3]).double(), 0.3 * math.exp(noise / 2)
    found = log_uniform_kls(mean, torch.full_like(mean, math.log(std)))
    assert found.item() == pytest.approx(exact_kl(0.3 / std), abs=0.01)
    assert found.item() > 0


means = st.floats(-1e3, 1e3) | st.sampled_from([0.0, 1e-45, 1e-38, 1e-30, -1e-20])


@given(means, st.floats(-300, 80), st.sampled_from([torch.float32, torch.float64]))
def test_kl_and_its_gradient_are_finite_also_at_zero(mean, log_std, dtype):
    q = LogUniform(torch.tensor([mean], dtype=dtype), torch.tensor([log_std], dtype=dtype), 0.1)
    q.kl().backward()
    assert q.kl() >= 0
    assert q.kl().isfinite()
    assert q.log_std.grad.isfinite().all()
    if log_std > -60:  # below, the slope is one over a number that single precision lacks
        assert q.mean.grad.isfinite().all()


def test_kl_knows_no_scale_and_falls_with_the_noise():
    mean, log_std = torch.randn(20).double(), torch.linspace(-6, 4, 20).double()
    there = log_uniform_kls(mean, log_std)
    torch.testing.assert_close(log_uniform_kls(-7 * mean, log_std + math.log(7)), there)
    assert (log_uniform_kls(mean, log_std + 0.1) < there).all()
    assert log_uniform_kls(mean, torch.full_like(mean, 50.0)).max() < 1e-12
    q = LogUniform(mean, log_std, 0.1)
    assert torch.equal(q.kl(3.0), q.kl())
    low = LogUniform(mean.bfloat16(), log_std.bfloat16(), 0.1)
    assert low.kl().dtype == torch.float32


def test_gradients_are_exact():
    mean, log_std = (torch.randn(5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(log_uniform_kls, (mean, log_std))


def test_matrices_that_learn_get_the_prior_and_give_it_back():
    model = net(prior_std=0.3, bias=True)
    model[2]._posteriors["weight"].mean.requires_grad_(False)
    model[2]._posteriors["weight"].log_std.requires_grad_(False)
    started(model)
    kinds = {name: type(q) for name, q in pb.named_posteriors(model)}
    wanted = {"0.weight": LogUniform, "0.bias": Gaussian, "2.weight": Gaussian, "2.bias": Gaussian}
    assert kinds == wanted
    before = {name: q.std.detach().clone() for name, q in pb.named_posteriors(model)}
    started(model, pb.MeanField())
    for name, q in pb.named_posteriors(model):
        assert type(q) is Gaussian
        assert q.prior_std.item() == pytest.approx(0.3)
        assert torch.equal(q.std, before[name])
    started(started(model), pb.Deterministic())
    assert all(type(q) is Point for _, q in pb.named_posteriors(model))


@pytest.mark.parametrize("method", [pb.Subspace(density=1.0), pb.SpikeSlab(), pb.Sharing()])
def test_other_methods_put_their_own_prior_back(method):
    model = started(started(), method)
    assert not any(isinstance(q, LogUniform) for _, q in pb.named_posteriors(model))


def test_what_is_sparse_or_gated_is_refused():
    with pytest.raises(pb.PocketBayesError, match=r"0\.weight is sparse already"):
        started(pb.prune_(net(), 0.5))
    with pytest.raises(pb.PocketBayesError, match=r"Deterministic\(\)"):
        started(started(net(), pb.SpikeSlab()))


def test_pruning_drops_what_is_mostly_noise(tmp_path):
    model = started()
    q = model[0]._posteriors["weight"]
    with torch.no_grad():
        q.log_std.copy_(q.mean.abs().log() + torch.linspace(1.3, 1.7, 54).view(9, 6))
    keep = log_alpha(q.mean, q.log_std) < 3
    assert keep.sum() == 27
    assert pb.save(model, tmp_path / "m.pocket").families == {"log_uniform": 54 + 27}
    pb.prune_(model)
    left = model[0]._posteriors["weight"]
    assert isinstance(left, Sparse)
    assert torch.equal(left.moments()[1] > 0, keep)
    torch.testing.assert_close(left.expectation()[keep], q.mean[keep])
    assert (
        type(model[2]._posteriors["weight"]) is Gaussian
    )  # kept whole, and its prior is one again
    assert pb.save(model, tmp_path / "m.pocket").active_weights == 27 + 27


def test_training_keeps_the_inputs_that_matter():
    """A regression on 3 of 12 inputs: these stay, most others go, and fine-tuning keeps them 0."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 12, generator=generator)
    truth = torch.zeros(12)
    truth[[1, 5, 8]] = torch.tensor([1.0, -0.7, 0.5])
    y = (x @ truth + 0.3 * torch.randn(200, generator=generator))[:, None]
    torch.manual_seed(0)
    model = pb.bayesianize_(nn.Linear(12, 1, bias=False), std_init=0.01, prior_std=1.0)
    options = {"likelihood": "gaussian", "progress": False, "device": "cpu", "dataset_size": 200}
    method = pb.VariationalDropout(beta=1.0, lr=1e-2, std_lr=2e-2)
    pb.fit(model, [(x, y)], method, epochs=600, **options)
    kept = pb.prune_(model)._posteriors["weight"].index.tolist()
    assert {1, 5, 8} <= set(kept)
    assert len(kept) <= 3 + 3
    pb.fit(model, [(x, y)], pb.MeanField(beta=1.0), epochs=50, **options)
    weight = model._posteriors["weight"]
    assert weight.index.tolist() == kept
    torch.testing.assert_close(weight.expectation()[0], truth, atol=0.08, rtol=0)


def test_an_interrupted_run_goes_on_bit_for_bit(tmp_path):
    class Stopping(list):
        passes = 0

        def __iter__(self):
            self.passes += 1
            if self.passes == 4:
                raise KeyboardInterrupt
            return super().__iter__()

    options = OPTIONS | {"method": pb.VariationalDropout(), "epochs": 4}
    whole = pb.fit(net(), DATA, **options).model
    with pytest.raises(KeyboardInterrupt):
        pb.fit(net(), Stopping(DATA), out=tmp_path, checkpoint_minutes=1e-9, **options)
    again = pb.fit(net(), DATA, out=tmp_path, resume=True, **options).model
    for (_, one), (_, other) in zip(*map(pb.named_posteriors, (whole, again)), strict=True):
        assert type(other) is LogUniform
        assert torch.equal(one.mean, other.mean)
        assert torch.equal(one.log_std, other.log_std)
