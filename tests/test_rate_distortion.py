"""Tables of Gaussians for bytes and nats: laws, and twins by brute force."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Normal, kl_divergence

from pocketbayes.cells import filled_cells, made_grid
from pocketbayes.rate_distortion import (
    Codebook,
    Statistics,
    Tables,
    assigned_entries,
    chosen,
    fitted_codebook,
    refitted,
    statistics_of,
    tradeoff,
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
    grid = made_grid(mean, std, side)
    cells = filled_cells(mean, std, grid)
    codebook = fitted_codebook(cells, entries, rate).codebook
    labels = assigned_entries(mean, std, codebook, rate, grid, cells)
    return codebook, labels, (grid, cells)


def divergences(mean, std, codebook):
    """KL(q_i || N_k) for all i and k."""
    q = Normal(mean.double()[:, None], std.double()[:, None])
    p = Normal(torch.tensor(codebook.mean), torch.tensor(codebook.variance).sqrt())
    return kl_divergence(q, p)


def test_the_cost_of_a_point_is_its_divergence_and_its_index():
    mean, std = posterior(50)
    codebook = Codebook(np.array([0.0, 0.02]), np.array([0.0025, 0.0004]), np.array([0.9, 0.1]))
    data = Statistics(
        np.ones(50), mean.double().numpy(), (mean.double() ** 2 + std.double() ** 2).numpy()
    )
    choice, value = chosen(data, codebook, rate=0.7)
    full = divergences(mean, std, codebook) - 0.7 * torch.tensor(codebook.share).log()
    assert choice.tolist() == full.argmin(1).tolist()
    without_k = (1 + 2 * std.double().log()) / 2
    np.testing.assert_allclose(value, (full.min(1).values + without_k).numpy(), rtol=1e-9)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.floats(0, 3))
def test_each_alternation_lowers_the_cost(seed, rate):
    mean, std = posterior(3000, seed)
    cells = filled_cells(mean, std, made_grid(mean, std, 64))
    data = statistics_of(cells)
    rng = np.random.default_rng(seed)
    codebook = refitted(data, rng.integers(0, 8, len(cells.size)), 8)
    costs = []
    for _ in range(8):
        choice, value = chosen(data, codebook, rate)
        costs.append(data.size @ value)
        codebook = refitted(data, choice, len(codebook.share))
        mine = refitted(data, choice, 8)
        assert mine.share.sum() == pytest.approx(1)
    assert all(b <= a + 1e-9 * abs(a) for a, b in itertools.pairwise(costs))


def test_every_weight_gets_its_cheapest_entry():
    mean, std = posterior()
    for rate in (0.0, 0.5, 5.0):
        codebook, labels, _ = fitted(mean, std, rate=rate)
        full = divergences(mean, std, codebook) - rate * torch.tensor(codebook.share).log()
        lost = full.gather(1, labels.long()[:, None])[:, 0] - full.min(1).values
        assert (lost > 1e-6).double().mean() < 2e-3
        assert lost.mean() < 1e-5


def test_what_it_costs_is_what_the_points_cost():
    mean, std = posterior(5000)
    codebook, labels, _ = fitted(mean, std)
    found = tradeoff(mean, std, labels, codebook)
    each = divergences(mean, std, codebook).gather(1, labels.long()[:, None])
    assert found.distortion == pytest.approx(float(each.mean()), rel=1e-9)
    share = labels.bincount().double() / len(labels)
    share = share[share > 0]
    assert found.bits == pytest.approx(-float((share * share.log2()).sum()), rel=1e-9)


def test_a_higher_rate_gives_fewer_bits_and_more_nats():
    mean, std = posterior()
    curve = [
        tradeoff(mean, std, fitted(mean, std, rate=rate)[1], fitted(mean, std, rate=rate)[0])
        for rate in (0.0, 0.1, 1.0, 10.0, 1000.0)
    ]
    bits, nats = zip(*[(t.bits, t.distortion) for t in curve], strict=True)
    assert list(bits) == sorted(bits, reverse=True)
    assert list(nats) == sorted(nats)
    assert bits[0] > 3
    assert bits[-1] == 0  # all share one Gaussian


def test_one_entry_is_the_closest_gaussian_to_all():
    """Its moments are those of the mixture of all q_i, which minimises the mean divergence."""
    mean, std = posterior(2000)
    codebook, labels, _ = fitted(mean, std, entries=1)
    assert codebook.mean[0] == pytest.approx(float(mean.double().mean()), abs=1e-9)
    second = float((std.double() ** 2 + mean.double() ** 2).mean())
    assert codebook.variance[0] + codebook.mean[0] ** 2 == pytest.approx(second, rel=1e-6)
    best = tradeoff(mean, std, labels, codebook).distortion
    for factor in (0.98, 1.02):
        other = codebook._replace(variance=codebook.variance * factor)
        assert tradeoff(mean, std, labels, other).distortion > best


def test_points_that_are_all_the_same_cost_nothing():
    mean, std = torch.full((100,), 0.3), torch.full((100,), 0.01)
    codebook, labels, _ = fitted(mean, std)
    found = tradeoff(mean, std, labels, codebook)
    assert len(codebook.share) == 1
    assert found.bits == 0
    assert found.distortion == pytest.approx(0, abs=1e-4)
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
def test_a_table_for_each_tensors_shares_is_no_worse_than_one_for_all(seed, rate):
    parts = different_tensors(seed)
    mean, std = (torch.cat(values) for values in zip(*parts, strict=True))
    grid = made_grid(mean, std, 64)
    cells, tensors = filled_cells(mean, std, grid), [filled_cells(*part, grid) for part in parts]
    own = fitted_codebook(cells, 64, rate, tensors, tolerance=2e-5)
    one = fitted_codebook(cells, 64, rate, tolerance=2e-5)
    data = [statistics_of(part) for part in tensors]
    costs = [
        sum(part.size @ chosen(part, tables.of(t), rate)[1] for t, part in enumerate(data))
        for tables in (own, Tables(one.codebook, np.tile(one.share, (len(data), 1))))
    ]
    assert costs[0] <= costs[1] + 1e-9 * abs(costs[1])
