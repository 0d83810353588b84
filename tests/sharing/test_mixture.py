"""The mixture in the plane: known answers, laws, and twins by brute force."""

import itertools

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketbayes.sharing import histogram as cells_module
from pocketbayes.sharing import mixture as mixture_module
from pocketbayes.sharing.histogram import bin_numbers, filled_bins, made_grid
from pocketbayes.sharing.merging import merged, squared_w2, taken
from pocketbayes.sharing.mixture import (
    Mixture,
    assigned,
    blends,
    fitted_mixture,
    from_shares,
    improved,
    log_densities,
    nearest_components,
    small_components,
    split_bins,
    squared_mahalanobis,
)


def cloud(n=20_000, seed=0):
    """Means and stds as a trained network has them: long tails, two very different scales."""
    generator = torch.Generator().manual_seed(seed)
    scale = torch.exp(0.7 * torch.randn(n, generator=generator) - 4.3)
    mean = torch.randn(n, generator=generator) * scale
    std = torch.exp(0.35 * torch.randn(n, generator=generator) - 7 - 5 * mean.abs().clamp(max=0.1))
    return mean, std


def matrices(covariance):
    xx, xy, yy = covariance.T
    return np.stack([np.stack([xx, xy], 1), np.stack([xy, yy], 1)], 1)


def random_mixture(number, seed):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(number, 2, 2))
    full = root @ root.transpose(0, 2, 1) + 0.01 * np.eye(2)
    covariance = np.stack([full[:, 0, 0], full[:, 0, 1], full[:, 1, 1]], 1)
    return Mixture(rng.dirichlet(np.ones(number)), rng.normal(size=(number, 2)), covariance)


def every(points, mixture):
    return np.broadcast_to(np.arange(len(mixture.weight)), (len(points), len(mixture.weight)))


def test_bins_hold_every_point_with_exact_moments():
    x, y = cloud(5000)
    grid = made_grid(x, y, 16)
    bins = filled_bins(x, y, grid)
    number = bin_numbers(x, y, grid).numpy()
    assert bins.size.sum() == 5000
    assert number.min() >= 0
    assert number.max() < 256
    for row in range(len(bins.number)):
        inside = np.stack([x.double().numpy(), y.double().numpy()], 1)[number == bins.number[row]]
        assert len(inside) == bins.size[row]
        assert bins.mean[row] == pytest.approx(inside.mean(0), rel=1e-9, abs=1e-12)
        wanted = np.cov(inside.T, bias=True) if len(inside) > 1 else np.zeros((2, 2))
        assert matrices(bins.covariance[[row]])[0] == pytest.approx(wanted, rel=1e-6, abs=1e-14)


def test_chunks_change_nothing(monkeypatch):
    x, y = cloud(5000)
    whole = fitted_mixture(x, y, 20, side=32)
    labels = assigned(x, y, *whole)
    monkeypatch.setattr(cells_module.chunks, "__defaults__", (800,))
    monkeypatch.setattr(mixture_module, "CHUNK", 800)
    parts = fitted_mixture(x, y, 20, side=32)
    for a, b in zip(whole[0], parts[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8)
    assert torch.equal(labels, assigned(x, y, *parts))


@pytest.mark.parametrize("points", [(0.5, 0.25), (0.0, 0.0)])
def test_points_that_are_all_the_same(points):
    x, y = (torch.full((100,), value) for value in points)
    found = fitted_mixture(x, y, 5)
    assert len(found[0].weight) == 1
    assert found[0].mean[0] == pytest.approx(points)
    assert np.isfinite(found[0].covariance).all()
    assert not assigned(x, y, *found).any()


def test_one_component_has_the_moments_of_the_cloud():
    x, y = cloud()
    found, _, _ = fitted_mixture(x, y, 1)
    points = torch.stack([x, y], 1).double()
    assert found.mean[0] == pytest.approx(points.mean(0).numpy(), rel=1e-8)
    wanted = torch.cov(points.T, correction=0).numpy()
    assert matrices(found.covariance)[0] == pytest.approx(wanted, rel=1e-4)


def test_log_densities_are_those_of_torch_distributions():
    mixture = random_mixture(4, 1)
    points = np.random.default_rng(2).normal(size=(7, 2))
    normal = torch.distributions.MultivariateNormal(
        torch.tensor(mixture.mean), torch.tensor(matrices(mixture.covariance))
    )
    wanted = normal.log_prob(torch.tensor(points)[:, None]) + torch.tensor(mixture.weight).log()
    got = log_densities(points, mixture, every(points, mixture))
    np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-9)


def test_expected_log_densities_average_over_the_points_of_a_bin():
    x, y = cloud(3000)
    grid = made_grid(x, y, 4)
    bins, number = filled_bins(x, y, grid), bin_numbers(x, y, grid).numpy()
    mixture = fitted_mixture(x, y, 3, side=32)[0]
    points = torch.stack([x, y], 1).double().numpy()
    got = log_densities(bins.mean, mixture, every(bins.mean, mixture), bins.covariance)
    each = log_densities(points, mixture, every(points, mixture))
    for row, one in enumerate(bins.number):
        np.testing.assert_allclose(got[row], each[number == one].mean(0), rtol=1e-6)


def likelihood(x, y, mixture):
    points = torch.stack([x, y], 1).double().numpy()
    return np.logaddexp.reduce(log_densities(points, mixture, every(points, mixture)), 1).mean()


def test_every_step_raises_the_likelihood_and_splitting_is_a_good_start():
    x, y = cloud()
    grid = made_grid(x, y, 256)
    bins = filled_bins(x, y, grid)
    bins = bins._replace(
        mean=bins.mean / grid.width,
        covariance=bins.covariance / np.outer(grid.width, grid.width)[[0, 0, 1], [0, 1, 1]],
    )
    mixture = split_bins(bins, 12)
    assert len(mixture.weight) == 12
    assert mixture.weight.sum() == pytest.approx(1)
    x, y = x / grid.width[0], y / grid.width[1]
    values = [likelihood(x.double(), y.double(), mixture)]
    for _ in range(6):
        near = nearest_components(bins.mean, mixture.mean, 12)
        mixture = improved(bins, mixture, near)
        values.append(likelihood(x.double(), y.double(), mixture))
    assert all(b > a - 1e-4 for a, b in itertools.pairwise(values))
    alone = likelihood(x.double(), y.double(), split_bins(bins, 1))
    assert values[0] > alone + 0.1
    assert values[-1] > values[0]


def test_it_finds_clusters_that_are_there():
    generator = torch.Generator().manual_seed(0)
    centers = torch.tensor([[-3.0, 0.001], [0.0, 0.002], [3.0, 0.001], [0.0, 0.006]])
    label = torch.randint(0, 4, (40_000,), generator=generator)
    noise = torch.randn(40_000, 2, generator=generator) * torch.tensor([0.3, 0.0002])
    points = centers[label] + noise
    found = fitted_mixture(points[:, 0], points[:, 1], 4)
    labels = assigned(points[:, 0], points[:, 1], *found)
    for number in range(4):
        mine = labels[label == number]
        common = mine.mode().values
        assert (mine == common).float().mean() > 0.999
        np.testing.assert_allclose(found[0].mean[common], centers[number], atol=0.02)
        sigma = matrices(found[0].covariance)[common]
        np.testing.assert_allclose(np.sqrt(np.diag(sigma)), [0.3, 0.0002], rtol=0.03)


@pytest.mark.parametrize("components", [1, 7, 200])
def test_every_point_gets_its_likeliest_component(components):
    x, y = cloud(30_000)
    found = fitted_mixture(x, y, components)
    labels = assigned(x, y, *found).numpy()
    points = torch.stack([x, y], 1).double().numpy()
    values = log_densities(points, found[0], every(points, found[0]))
    lost = values.max(1) - values[np.arange(len(points)), labels]
    assert (lost > 1e-3).mean() < 1e-4
    assert lost.mean() < 1e-4


def test_empty_components_are_dropped():
    x, y = cloud(1000)
    bins = filled_bins(x, y, made_grid(x, y, 8))
    label = np.zeros((len(bins.size), 1), dtype=np.int64)
    label[:3] = 4
    found = from_shares(bins, label, np.ones_like(label, dtype=float), 6)
    assert len(found.weight) == 2


@given(st.integers(0, 10**6))
def test_w2_is_that_of_matrix_square_roots(seed):
    one, other = random_mixture(1, seed), random_mixture(1, seed + 1)
    a, b = matrices(one.covariance)[0], matrices(other.covariance)[0]
    root = scipy.linalg.sqrtm(a)
    cross = np.trace(scipy.linalg.sqrtm(root @ b @ root)).real
    wanted = ((one.mean - other.mean) ** 2).sum() + np.trace(a + b) - 2 * cross
    assert squared_w2(one, other)[0] == pytest.approx(wanted, rel=1e-6, abs=1e-6)
    assert squared_w2(one, one)[0] == pytest.approx(0, abs=1e-6)
    assert squared_w2(one, other)[0] == pytest.approx(squared_w2(other, one)[0])
    assert squared_w2(one, other)[0] >= ((one.mean - other.mean) ** 2).sum() - 1e-9


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.1, 3))
def test_merging_leaves_no_close_pair_and_keeps_the_moments(seed, threshold):
    mixture = random_mixture(15, seed)
    smaller, label = merged(mixture, threshold)
    number = len(smaller.weight)
    assert sorted(set(label.tolist())) == list(range(number))
    one, other = np.triu_indices(number, 1)
    if number > 1:
        left = squared_w2(taken(smaller, one), taken(smaller, other))
        assert left.min() >= threshold
    assert smaller.weight.sum() == pytest.approx(1)
    np.testing.assert_allclose(
        smaller.weight @ smaller.mean, mixture.weight @ mixture.mean, atol=1e-9
    )
    np.testing.assert_allclose(second_moments(smaller), second_moments(mixture), atol=1e-9)
    for k in range(number):
        mine = taken(mixture, np.flatnonzero(label == k))
        assert smaller.weight[k] == pytest.approx(mine.weight.sum())
        np.testing.assert_allclose(
            smaller.mean[k], mine.weight @ mine.mean / mine.weight.sum(), atol=1e-9
        )


def second_moments(mixture):
    outer = mixture.mean[:, :, None] * mixture.mean[:, None]
    return np.einsum("k,kij->ij", mixture.weight, matrices(mixture.covariance) + outer)


def test_merging_by_the_papers_equations_inflates():
    one = random_mixture(1, 3)
    twins = Mixture(np.array([0.5, 0.5]), one.mean.repeat(2, 0), one.covariance.repeat(2, 0))
    exact, _ = merged(twins, 1e-3)
    paper, _ = merged(twins, 1e-3, how="paper")
    np.testing.assert_allclose(exact.covariance, one.covariance, rtol=1e-9)
    np.testing.assert_allclose(paper.covariance, 1.5 * one.covariance, rtol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_merging_by_the_papers_equations(seed):
    """Means halfway, covariance (S1 + S2) / 2 + d d^T / 8 + (S1^(1/2) S2 S1^(1/2))^(1/2) / 2."""
    mixture = random_mixture(2, seed)
    paper, _ = merged(mixture, 1e9, how="paper")
    first, second = matrices(mixture.covariance)
    apart = mixture.mean[0] - mixture.mean[1]
    half = scipy.linalg.sqrtm(first)
    root = scipy.linalg.sqrtm(half @ second @ half).real
    wanted = (first + second) / 2 + np.outer(apart, apart) / 8 + root / 2
    np.testing.assert_allclose(paper.mean[0], mixture.mean.mean(0), rtol=1e-9)
    np.testing.assert_allclose(matrices(paper.covariance)[0], wanted, rtol=1e-6)
    assert np.abs(np.outer(apart, apart) / 8).max() > 0.01 * np.abs(wanted).max()


def test_pairs_may_be_kept_apart():
    mixture = random_mixture(10, 5)
    alone, label = merged(mixture, 1e9, may_merge=lambda a, b: np.zeros(len(a), dtype=bool))
    assert len(alone.weight) == 10
    assert label.tolist() == list(range(10))
    halves, label = merged(mixture, 1e9, may_merge=lambda a, b: (a < 5) == (b < 5))
    assert len(halves.weight) == 2
    assert len(set(label[:5])) == len(set(label[5:])) == 1


def test_mahalanobis_distances_follow_their_law():
    """For points of one Gaussian they are chi-squared of 2: 5% above 5.991. 40,000 points, 5 sd."""
    x, y = torch.randn(2, 40_000, generator=torch.Generator().manual_seed(0))
    y = 0.001 * (y + 0.5 * x)
    found, *_ = fitted_mixture(x, y, 1)
    distance = squared_mahalanobis(x, y, torch.zeros(40_000, dtype=torch.int32), found)
    assert distance.mean() == pytest.approx(2, rel=1e-3)
    outside = (distance > 5.991).double().mean()
    assert abs(float(outside) - 0.05) < 5 * (0.05 * 0.95 / 40_000) ** 0.5


def test_blends_take_the_likeliest_two_of_the_nearest_five():
    mixture = random_mixture(30, 4)
    x, y = 2 * torch.randn(2, 50, generator=torch.Generator().manual_seed(1))
    scale = np.array([1.0, 0.5])
    index, share = blends(x, y, mixture, scale)
    assert index.shape == share.shape == (50, 2)
    np.testing.assert_allclose(share.sum(1), 1)
    assert (share[:, 0] >= share[:, 1]).all()
    points = torch.stack([x, y], 1).double().numpy()
    for point, chosen, parts in zip(points, index, share, strict=True):
        apart = (((point - mixture.mean) / scale) ** 2).sum(1)
        five = np.argsort(apart)[:5]
        normal = torch.distributions.MultivariateNormal(
            torch.tensor(mixture.mean[five]), torch.tensor(matrices(mixture.covariance[five]))
        )
        density = normal.log_prob(torch.tensor(point)).exp().numpy()
        best = five[np.argsort(-density)[:2]]
        assert chosen.tolist() == best.tolist()
        wanted = np.sort(density)[::-1][:2]
        np.testing.assert_allclose(parts, wanted / wanted.sum(), rtol=1e-6)
    assert blends(x, y, taken(mixture, np.array([3])), scale)[1].tolist() == [[1.0]] * 50


def test_small_components_are_found():
    labels = torch.tensor([0, 0, 0, 2, 2, 4], dtype=torch.int32)
    assert small_components(labels, 5, 3).tolist() == [False, True, True, True, True]
