"""Scores of weights, against quadrature and against the laws they must obey."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import integrate

from pocketbayes.sparsity.criteria import CRITERIA, expected_exp, snr_exp, snr_magnitude

RATIOS = [0.0, 1e-3, 0.03, 0.3, 1.0, 2.5, 6.0, 30.0, 500.0, 3000.0, 1e4]


def normal_density(z):
    return math.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def expectation(function, mean, std):
    """E f(w) by Gauss-Hermite-free adaptive quadrature in units of std, split at w = 0."""
    place = -mean / std
    points = sorted({-12.0, min(max(place, -12.0), 12.0), 12.0})
    total = 0.0
    for low, high in pairwise(points):
        value, _ = integrate.quad(
            lambda z: function(mean + std * z) * normal_density(z), low, high,
            epsabs=1e-15, epsrel=1e-12, limit=200,
        )  # fmt: skip
        total += value
    return total


def by_quadrature(name, mean, std):
    if name == "magnitude":
        return abs(mean)
    if name == "snr":
        return abs(mean) / std
    if name == "expected_magnitude":
        return expectation(abs, mean, std)
    if name == "expected_exp":
        return expectation(lambda w: math.exp(abs(w)), mean, std)
    # The variance as that of a shifted variable, so that quadrature does not cancel either.
    shift = abs(mean)
    if name == "snr_magnitude":
        centre = expectation(lambda w: abs(w) - shift, mean, std)
        variance = expectation(lambda w: (abs(w) - shift - centre) ** 2, mean, std)
        return (shift + centre) / math.sqrt(variance)
    centre = expectation(lambda w: math.expm1(abs(w) - shift), mean, std)
    variance = expectation(lambda w: (math.expm1(abs(w) - shift) - centre) ** 2, mean, std)
    return (1 + centre) / math.sqrt(variance)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("std", [1e-5, 1e-3, 0.05])
@pytest.mark.parametrize("name", CRITERIA)
def test_scores_are_those_of_quadrature(name, std, dtype):
    for ratio in RATIOS:
        mean = torch.tensor(-ratio * std, dtype=dtype)
        if abs(float(mean)) > 80:  # exp(80) is near the largest float32
            continue
        spread = torch.tensor(std, dtype=dtype)
        got = CRITERIA[name](mean, spread)
        assert got.dtype == dtype
        want = by_quadrature(name, float(mean), float(spread))
        tolerance = 1e-6 if name != "snr_exp" else 2e-6
        assert float(got) == pytest.approx(want, rel=tolerance, abs=1e-300), (ratio, std)


def test_the_snr_of_the_magnitude_ranks_as_the_plain_snr():
    ratio = torch.linspace(0, 12, 4001, dtype=torch.float64)
    score = snr_magnitude(ratio, torch.ones_like(ratio))
    assert (score.diff() > 0).all()
    assert score[0] == pytest.approx(1.3236, abs=1e-4)
    small = torch.linspace(0.1, 0.25, 50, dtype=torch.float64)
    near = snr_magnitude(small, torch.ones_like(small)) / score[0] - 1
    np.testing.assert_allclose(near / small**4, 0.229, rtol=0.08)


def test_the_snr_of_the_exponential_falls_with_the_mean():
    mean = torch.linspace(0.05, 2, 100, dtype=torch.float64)
    std = torch.full_like(mean, 0.02)
    score = snr_exp(mean, std)
    assert (score.diff() <= 1e-6).all()
    assert score[-1] == pytest.approx(1 / math.sqrt(math.expm1(0.02**2)), rel=1e-6)


@pytest.mark.parametrize("name", CRITERIA)
def test_scores_are_finite_and_even_in_the_mean(name):
    mean = torch.logspace(-12, 1, 200)
    for std in (1e-8, 1e-4, 0.1):
        spread = torch.full_like(mean, std)
        score = CRITERIA[name](mean, spread)
        assert score.isfinite().all()
        assert torch.equal(score, CRITERIA[name](-mean, spread))


def test_the_exponential_has_a_scale():
    mean, std = torch.tensor(0.2, dtype=torch.float64), torch.tensor(0.1, dtype=torch.float64)
    want = expectation(lambda w: math.exp(3 * abs(w)), 0.2, 0.1)
    assert float(expected_exp(mean, std, scale=3.0)) == pytest.approx(want, rel=1e-9)
