"""Predictions of values from Gaussian outputs."""

import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.layers import Ensemble
from pocketbayes.likelihoods import LIKELIHOODS
from pocketbayes.prediction.gaussian_outputs import draws_of_gaussian, spread_normals
from pocketbayes.prediction.scores import mixture_log_density
from pocketbayes.prediction.summaries import summarised


def test_gaussian_noise_around_gaussian_outputs_is_gaussian():
    """The predictive is N(mean, variance + noise^2), in its tails too, not 30 points and noise."""
    mean, variance = torch.tensor([[0.3], [-1.0]]), torch.tensor([[4.0], [0.01]])
    learned = {"noise_log_std": torch.tensor([0.1]).log()}
    draws = draws_of_gaussian(mean, variance, 30)
    found = summarised(LIKELIHOODS["gaussian"], draws, learned, None, "probs", False, True)
    exact = torch.distributions.Normal(mean, (variance + 0.01).sqrt())
    y = mean + torch.linspace(-6, 6, 41) * exact.stddev
    for column in y.T[..., None]:
        log_density = mixture_log_density(found.parts.log_prob(column))
        torch.testing.assert_close(log_density, exact.log_prob(column)[:, 0], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(found.cdf(column), exact.cdf(column), rtol=1e-4, atol=1e-6)
    _, high = found.central_interval(0.99)
    torch.testing.assert_close(high, exact.icdf(torch.tensor(0.995)), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.epistemic, variance, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(found.aleatoric, torch.full((2, 1), 0.01), rtol=1e-4, atol=1e-6)
    assert found.samples.std(0).gt(0).all()


def test_a_temperature_widens_noise_and_outputs_alike():
    learned = {"noise_log_std": torch.tensor([0.5]).log()}
    draws = draws_of_gaussian(torch.zeros(1, 1), torch.ones(1, 1), 30)
    found = summarised(LIKELIHOODS["gaussian"], draws, learned, 2.0, "probs", False, True)
    torch.testing.assert_close(found.parts.variance[0], torch.tensor([[4 * 1.25]]))


def test_members_of_an_ensemble_stay_apart():
    """Networks that say 5 and -5: by moments, too, nothing lies between."""
    members = []
    for level in (5.0, -5.0):
        layer = nn.Linear(1, 1)
        nn.init.zeros_(layer.weight)
        nn.init.constant_(layer.bias, level)
        members.append(pb.bayesianize_(layer, std_init=0.01))
    x, y = torch.zeros(64, 1), 5 + 0.1 * torch.randn(64, 1, generator=torch.Generator())
    for member in members:
        pb.refresh_noise_(
            member, [(x, y if member is members[0] else y - 10)], likelihood="gaussian"
        )
    model = Ensemble(members)
    found = pb.predict(model, x[:4], estimator="moments", likelihood="gaussian")
    inside = found.cdf(torch.full((4, 1), 2.0)) - found.cdf(torch.full((4, 1), -2.0))
    assert inside.max() < 1e-3


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4, 7, 10])
def test_draws_have_the_moments_of_the_gaussian(dimensions):
    """For every number of draws: mean 0, variance 1, and no number far out; 8 lie in a plane."""
    for number in range(2, 65):
        z = spread_normals(number, dimensions)
        torch.testing.assert_close(z.mean(0), z.new_zeros(dimensions), rtol=0, atol=1e-12)
        torch.testing.assert_close(z.var(0), z.new_ones(dimensions), rtol=1e-9, atol=0)
        assert z.abs().max() < 5
