"""Codebooks of Gaussians for bytes and nats: laws, and twins by brute force."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Normal, kl_divergence

from pocketbayes.sharing.histogram import bin_numbers, filled_bins, made_grid
from pocketbayes.sharing.rate_distortion import (
    CodebookEntries,
    Statistics,
    TensorCodebooks,
    assigned_entries,
    chosen,
    fitted_codebook,
    refitted,
    statistics_of,
)


def posterior(n=40_000, seed=0):
    """Most weights are their prior N(0, 0.05^2); the others know something."""
    generator = torch.Generator().manual_seed(seed)
    known = torch.rand(n, generator=generator) < 0.2
    mean = 0.02 * torch.randn(n, generator=generator)
    std = 0.01 * torch.exp(0.3 * torch.randn(n, generator=generator))
    near = 0.001 * torch.randn(n, generator=generator)
    return torch.where(known, mean, near), torch.where(known, std, 0.05 * (1 + near))


def fitted(mean, std, entries=64, rate=1.0, side=256):
    grid = made_grid(mean, std.log(), side)
    bins = filled_bins(mean, std.log(), grid)
    codebook = fitted_codebook(bins, entries, rate).codebook
    labels = assigned_entries(mean, std.log(), codebook, rate, grid, bins)
    return codebook, labels, (grid, bins)


def divergences(mean, std, codebook):
    """KL(N_k || q_i) for all i and k."""
    q = Normal(mean.double()[:, None], std.double()[:, None])
    entry = Normal(torch.tensor(codebook.mean), torch.tensor(codebook.variance).sqrt())
    return kl_divergence(entry, q)


def test_the_cost_of_a_point_is_its_divergence_and_its_index():
    mean, std = posterior(50)
    codebook = CodebookEntries(
        np.array([0.0, 0.02]), np.array([0.0025, 0.0004]), np.array([0.9, 0.1])
    )
    mu, precision = mean.double().numpy(), std.double().numpy() ** -2
    rest = (precision * mu**2 - np.log(precision) - 1) / 2
    data = Statistics(np.ones(50), precision, precision * mu, rest)
    choice, value = chosen(data, codebook, rate=0.7)
    full = divergences(mean, std, codebook) - 0.7 * torch.tensor(codebook.share).log()
    assert choice.tolist() == full.argmin(1).tolist()
    np.testing.assert_allclose(value, full.min(1).values.numpy(), rtol=1e-9, atol=1e-9)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.floats(0, 3))
def test_each_alternation_lowers_the_cost(seed, rate):
    mean, std = posterior(3000, seed)
    bins = filled_bins(mean, std.log(), made_grid(mean, std.log(), 64))
    data = statistics_of(bins)
    rng = np.random.default_rng(seed)
    codebook = refitted(data, rng.integers(0, 8, len(bins.size)), 8)
    costs = []
    for _ in range(8):
        choice, value = chosen(data, codebook, rate)
        costs.append(data.size @ value)
        codebook = refitted(data, choice, len(codebook.share))
        mine = refitted(data, choice, 8)
        assert mine.share.sum() == pytest.approx(1)
    assert all(b <= a + 1e-9 * abs(a) + 1e-9 for a, b in itertools.pairwise(costs))


def test_statistics_of_bins_are_those_of_their_points():
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 40_000, generator=generator).double()
    mean, log_std = 0.3 + 0.05 * a, -4 + 0.05 * b + 0.05 * a
    grid = made_grid(mean, log_std, 4)
    bins = filled_bins(mean, log_std, grid)
    row = np.searchsorted(bins.number, bin_numbers(mean, log_std, grid).long().numpy())
    p, mu = (-2 * log_std).exp().numpy(), mean.numpy()
    wanted = (p, p * mu, (p * mu**2 - np.log(p) - 1) / 2)
    for got, values in zip(statistics_of(bins)[1:], wanted, strict=True):
        np.testing.assert_allclose(got, np.bincount(row, values) / np.bincount(row), rtol=1e-3)


def test_outliers_do_not_shape_the_codebook():
    mean, std = posterior()
    mean[:2000], std[:2000] = torch.linspace(-0.5, 0.5, 2000), 1e-6
    grid = made_grid(mean, std.log(), 256)
    bins = filled_bins(mean, std.log(), grid)
    data = statistics_of(bins)
    books = [fitted_codebook(bins, 32, 0.1, limit=most).codebook for most in (5.0, np.inf)]
    costs = [data.size @ np.minimum(chosen(data, book, 0.1)[1], 5.0) for book in books]
    assert costs[0] < 0.9 * costs[1]


def test_every_weight_gets_its_cheapest_entry():
    mean, std = posterior()
    for rate in (0.0, 0.5, 5.0):
        codebook, labels, _ = fitted(mean, std, rate=rate)
        full = divergences(mean, std, codebook) - rate * torch.tensor(codebook.share).log()
        lost = full.gather(1, labels.long()[:, None])[:, 0] - full.min(1).values
        assert (lost > 1e-6).double().mean() < 2e-3
        assert lost.mean() < 1e-5


def tradeoff(mean, std, labels, codebook):
    """Mean KL(N_k || q_i), and bits of the entropy of the labels."""
    nats = divergences(mean, std, codebook).gather(1, labels.long()[:, None]).mean()
    share = labels.bincount().double() / len(labels)
    return float(nats), -float(torch.special.xlogy(share, share).sum()) / math.log(2)


def test_a_higher_rate_gives_fewer_bits_and_more_nats():
    mean, std = posterior()
    curve = [
        tradeoff(mean, std, fitted(mean, std, rate=rate)[1], fitted(mean, std, rate=rate)[0])
        for rate in (0.0, 0.1, 1.0, 10.0, 1000.0)
    ]
    nats, bits = zip(*curve, strict=True)
    assert list(bits) == sorted(bits, reverse=True)
    assert list(nats) == sorted(nats)
    assert bits[0] > 3
    assert bits[-1] == 0  # all share one Gaussian


def test_one_entry_is_the_closest_gaussian_to_all():
    """It is the product of all q_i, to the power of 1 / n."""
    mean, std = posterior(2000)
    codebook, labels, _ = fitted(mean, std, entries=1)
    precision = std.double() ** -2
    centre = float((precision * mean).sum() / precision.sum())
    assert codebook.mean[0] == pytest.approx(centre, abs=1e-4 * float(std.min()))
    assert codebook.variance[0] == pytest.approx(float(1 / precision.mean()), rel=1e-5)
    best, _ = tradeoff(mean, std, labels, codebook)
    for factor in (0.98, 1.02):
        wider = codebook._replace(variance=codebook.variance * factor)
        assert tradeoff(mean, std, labels, wider)[0] > best
        moved = codebook._replace(mean=codebook.mean + (factor - 1) * float(std.min()))
        assert tradeoff(mean, std, labels, moved)[0] > best


def test_what_is_lost_is_what_training_would_lose():
    """Loss sum h_i (w_i - a_i)^2 / 2: the objective rises by beta KL(N_k || q_i) from its best."""
    generator = torch.Generator().manual_seed(0)
    target = 0.1 * torch.randn(500, generator=generator, dtype=torch.float64)
    curvature = torch.exp(torch.randn(500, generator=generator, dtype=torch.float64) + 6)
    beta, prior = 0.03, Normal(0.0, 0.05)

    def objective(q):
        loss = curvature * ((q.loc - target) ** 2 + q.scale**2) / 2
        return float((loss + beta * kl_divergence(q, prior)).sum())

    precision = curvature / beta + 0.05**-2
    best = Normal(curvature / beta * target / precision, precision**-0.5)
    codebook, labels, _ = fitted(best.loc.float(), best.scale.float(), entries=8, rate=0.1)
    shared = Normal(
        torch.tensor(codebook.mean)[labels.long()],
        torch.tensor(codebook.variance).sqrt()[labels.long()],
    )
    lost = tradeoff(best.loc, best.scale, labels, codebook)[0] * 500
    assert len(codebook.share) > 1
    assert objective(shared) - objective(best) == pytest.approx(beta * lost, rel=1e-6)


def test_points_that_are_all_the_same_cost_nothing():
    mean, std = torch.full((100,), 0.3), torch.full((100,), 0.01)
    codebook, labels, _ = fitted(mean, std)
    nats, bits = tradeoff(mean, std, labels, codebook)
    assert len(codebook.share) == 1
    assert bits == 0
    assert nats == pytest.approx(0, abs=1e-4)
    assert math.sqrt(codebook.variance[0]) == pytest.approx(0.01, rel=1e-3)


def different_tensors(seed, number=6, n=3000):
    """Tensors of which different shares of weights know something."""
    generator, found = torch.Generator().manual_seed(seed), []
    for _ in range(number):
        share, size, spread = torch.rand(3, generator=generator).tolist()
        known = torch.rand(n, generator=generator) < share
        noise = torch.randn(2, n, generator=generator)
        mean = torch.where(known, 0.05 * size + 0.01, 0.002) * noise[0]
        std = torch.where(known, 0.01, 0.05) * torch.exp(0.3 * spread * noise[1])
        found.append((mean, std))
    return found


@pytest.mark.parametrize(("seed", "rate"), [(36, 1.5), (16, 1.0), (37, 1.0), (24, 0.6), (1, 0.05)])
def test_a_codebook_for_each_tensors_shares_is_no_worse_than_one_for_all(seed, rate):
    parts = different_tensors(seed)
    mean, std = (torch.cat(values) for values in zip(*parts, strict=True))
    grid = made_grid(mean, std.log(), 64)
    bins = filled_bins(mean, std.log(), grid)
    tensors = [filled_bins(mu, s.log(), grid) for mu, s in parts]
    own = fitted_codebook(bins, 64, rate, tensors, tolerance=2e-5)
    one = fitted_codebook(bins, 64, rate, tolerance=2e-5)
    data = [statistics_of(part) for part in tensors]
    costs = [
        sum(part.size @ chosen(part, codebooks.of(t), rate)[1] for t, part in enumerate(data))
        for codebooks in (own, TensorCodebooks(one.codebook, np.tile(one.share, (len(data), 1))))
    ]
    assert costs[0] <= costs[1] + 1e-9 * abs(costs[1])
