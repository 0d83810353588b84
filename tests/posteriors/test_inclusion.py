"""Inclusion variables: known answers, stationarity by autograd, and what a Gaussian spike means."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Bernoulli, kl_divergence

from pocketbayes.posteriors.inclusion import (
    MOST_LOG_ODDS,
    bernoulli_kl,
    included_moments,
    log_odds_of,
    stationary_log_odds,
)

odds = st.floats(-12, 12)


def number(value):
    return torch.tensor(value, dtype=torch.float64)


@given(odds, odds)
def test_kl_of_inclusion_variables_is_that_of_torch_and_never_negative(a, b):
    one, other = (torch.tensor(v, dtype=torch.float64) for v in (a, b))
    want = kl_divergence(Bernoulli(logits=one), Bernoulli(logits=other))
    assert bernoulli_kl(one, other).item() == pytest.approx(want.item(), abs=1e-9)
    assert bernoulli_kl(one.float(), other.float()) >= 0
    assert bernoulli_kl(one, one).item() == pytest.approx(0, abs=1e-12)


def test_moments_of_a_spike_and_slab_gaussian():
    """200,000 draws; each z-score beyond 5.2 is a false alarm of 2e-7."""
    n = 200_000
    mean, std, p = torch.tensor([0.7, -1.2]), torch.tensor([0.5, 0.1]), torch.tensor([0.3, 0.9])
    draws = (torch.rand(n, 2) < p) * (mean + std * torch.randn(n, 2))
    first, second = included_moments(mean, std.square(), p)
    assert ((draws.mean(0) - first).abs() / (second / n).sqrt()).max() < 5.2
    fourth = (draws - first).pow(4).mean(0)
    assert ((draws.var(0) - second).abs() / ((fourth - second**2) / n).sqrt()).max() < 5.2


@given(st.floats(0.01, 10), st.floats(-30, 30), st.floats(0, 20), odds, odds)
def test_the_update_goes_where_the_elbo_is_stationary(beta, gain, divergence, prior, now):
    """From anywhere to b - KL + gain / beta, where p gain - beta (p KL + KL(p || q)) is flat."""
    prior = number(prior)

    def loss(log_odds):
        inclusion = torch.sigmoid(log_odds)
        costs = inclusion * divergence + bernoulli_kl(log_odds, prior)
        return costs - inclusion * gain / beta

    def slope(log_odds):
        log_odds = log_odds.detach().requires_grad_()
        return torch.autograd.grad(loss(log_odds), log_odds)[0]

    now = number(now)
    found = stationary_log_odds(now, slope(now))
    want = prior.item() - divergence + gain / beta
    assert found.item() == pytest.approx(want, rel=1e-6, abs=1e-6)
    if abs(want) < MOST_LOG_ODDS:
        assert abs(slope(found).item()) < 1e-6 * (1 + abs(gain) / beta + divergence)


def test_log_odds_of_probabilities_are_bounded():
    assert log_odds_of(0.5) == 0
    assert log_odds_of(0.1) == pytest.approx(math.log(1 / 9))
    assert log_odds_of(1e-30) == -MOST_LOG_ODDS == -log_odds_of(1 - 1e-16)


def test_the_fixed_point_finds_the_exact_model_of_an_orthogonal_regression():
    """With orthogonal inputs mean-field is exact: p equals the sum over all 2^5 models."""
    torch.manual_seed(0)
    n, d, noise, slab, prior = 64, 5, 0.7, 0.9, 0.3
    x = torch.linalg.qr(torch.randn(n, d, dtype=torch.float64))[0] * math.sqrt(n)
    truth = torch.tensor([0.3, 0, -0.25, 0, 0.1], dtype=torch.float64)
    y = x @ truth + noise * torch.randn(n, dtype=torch.float64)
    weights, inside = [], []
    for model in itertools.product((0, 1), repeat=d):
        keep = torch.tensor(model, dtype=torch.bool)
        covariance = (
            noise**2 * torch.eye(n, dtype=torch.float64) + slab**2 * x[:, keep] @ x[:, keep].T
        )
        density = torch.distributions.MultivariateNormal(
            torch.zeros(n, dtype=torch.float64), covariance
        )
        chance = sum(math.log(prior if k else 1 - prior) for k in model)
        weights.append(density.log_prob(y).item() + chance)
        inside.append(keep.double())
    exact = torch.softmax(torch.tensor(weights, dtype=torch.float64), 0) @ torch.stack(inside)
    variance = 1 / (n / noise**2 + 1 / slab**2)
    mean = variance * (x.T @ y) / noise**2
    divergence = (variance / slab**2 - 1 - math.log(variance / slab**2) + mean**2 / slab**2) / 2
    gain = ((x.T @ y) * mean - n * (mean**2 + variance) / 2) / noise**2
    known = number(log_odds_of(prior))
    at_rest = torch.zeros(d, dtype=torch.float64)
    log_odds = stationary_log_odds(at_rest, (divergence - known - gain) / 4)
    torch.testing.assert_close(torch.sigmoid(log_odds), exact, rtol=1e-9, atol=1e-9)
