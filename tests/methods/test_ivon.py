"""IVON: its steps are the paper's, and end where the mean-field posterior is known."""

import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.posteriors import Gaussian, Sparse
from pocketbayes.training.natural_gradient import curvature_growth
from pocketbayes.training.optimizers import NaturalGradient

X = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] + 0.5 * torch.randn(64, generator=torch.Generator().manual_seed(1)) > 0).long()


def net(**options):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    return pb.bayesianize_(plain, **options)


def fit(model, method=None, epochs=30):
    loader = DataLoader(TensorDataset(X, Y), 16, shuffle=True)
    options = {"epochs": epochs, "progress": False, "device": "cpu"}
    return pb.fit(model, loader, method or pb.IVON(), **options)


def pairs(means, std, **options):
    mean = nn.Parameter(torch.tensor(means))
    log_std = nn.Parameter(torch.full_like(mean.detach(), math.log(std)))
    options = {"step_size": 0.5, "curvature_rate": 0.1, "momentum": 0.0} | options
    optimizer = NaturalGradient([mean], [log_std], **options)
    for group in optimizer.param_groups:
        group["lr"] = group["peak_lr"]
    return mean, log_std, optimizer


def test_the_factor_of_the_curvature_is_that_of_the_paper():
    """h + rate (h' - h) + rate^2 (h' - h)^2 / (2 (h + delta)), plus delta."""
    h, seen, delta, rate = (torch.rand(50, dtype=torch.float64) for _ in range(4))
    paper = h + rate * (seen - h) + (rate * (seen - h)).square() / (2 * (h + delta))
    ours = (h + delta) * curvature_growth(rate * (seen - h) / (h + delta)).exp()
    torch.testing.assert_close(ours, paper + delta)


def test_it_ends_at_the_posterior_of_a_quadratic_loss():
    """nll = sum a (w - t)^2 / 2: precision lambda a + 1 / p^2, mean a t / (a + delta)."""
    a, t = torch.tensor([4.0, 0.3, 0.0]), torch.tensor([1.0, -2.0, 3.0])
    prior, strength = 0.7, 200
    mean, log_std, optimizer = pairs([0.0, 0.0, 2.0], 0.05)
    for _ in range(3000):
        nll = (a * ((mean - t).square() + (2 * log_std).exp())).sum() / 2
        q = torch.distributions.Normal(mean, log_std.exp())
        kl = torch.distributions.kl_divergence(q, torch.distributions.Normal(0.0, prior)).sum()
        optimizer.zero_grad()
        (nll + kl / strength).backward()
        for group in optimizer.param_groups:
            group["kl_weight"] = 1 / strength
        optimizer.step()
    delta = 1 / (strength * prior**2)
    torch.testing.assert_close(mean.detach(), a * t / (a + delta), rtol=1e-3, atol=1e-4)
    wanted = (strength * (a + delta)).rsqrt()
    torch.testing.assert_close(log_std.exp().detach(), wanted, rtol=1e-3, atol=1e-6)


def test_no_step_is_longer_than_its_share_of_a_std():
    mean, log_std, optimizer = pairs([0.0, 0.0], 0.2, step_size=0.25)
    mean.grad, log_std.grad = torch.tensor([1e6, -1e6]), torch.zeros(2)
    optimizer.param_groups[0]["kl_weight"] = 1e-3
    optimizer.step()
    torch.testing.assert_close(mean.detach(), torch.tensor([-0.05, 0.05]))


def test_momentum_is_without_the_pull_of_its_beginning():
    """Equal gradients have that running mean from the first step on."""
    mean, log_std, optimizer = pairs([0.0], 1.0, step_size=1.0, momentum=0.9)
    optimizer.param_groups[0]["kl_weight"] = 1.0
    for number in range(1, 6):
        mean.grad, log_std.grad = torch.tensor([0.1]), torch.zeros(1)
        optimizer.step()
        assert mean.item() == pytest.approx(-0.1 * number, rel=1e-5)


@pytest.mark.parametrize("kind", ["dense", "pruned"])
def test_it_learns_means_and_stds(kind):
    model = net()
    if kind == "pruned":
        fit(model, pb.MeanField(), epochs=5)
        pb.prune_(model, density=0.5)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    losses = [row["nll"] for row in fit(model, epochs=60).history]
    assert losses[-1] < 0.8 * losses[0]
    moved = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    assert moved == before.keys()
    kinds = {type(q) for _, q in pb.named_posteriors(model)}
    assert kinds == {Gaussian if kind == "dense" else Sparse}


def test_the_prior_is_its_own_or_the_models():
    for asked, wanted in ((0.25, 0.25), (None, 0.7)):
        model = fit(net(prior_std=0.7), pb.IVON(prior_std=asked), epochs=1).model
        for _, q in pb.named_posteriors(model):
            assert float(q.prior_std) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"beta": 0.0}, "beta"),
        ({"beta": 1.0, "least_beta": 0.0}, "least_beta"),
        ({"warmup": 0.5}, "warmup"),
        ({"step_size": 0.0}, "step_size"),
        ({"curvature_rate": 1.5}, "curvature_rate"),
        ({"prior_std": -1.0}, "prior_std"),
    ],
)
def test_settings_that_cannot_be(wrong, named):
    with pytest.raises(pb.PocketBayesError, match=rf"IVON\.{named}"):
        pb.IVON(**wrong)


def test_inclusion_variables_are_refused():
    model = fit(net(), pb.SpikeSlab(), epochs=1).model
    with pytest.raises(pb.PocketBayesError, match="inclusion variables"):
        fit(model)
