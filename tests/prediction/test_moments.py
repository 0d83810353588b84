"""Predictions by moments: draws of Gaussian outputs, one pass, and one factor."""

import math

import pytest
import torch
from small_models import classifier, regressor
from torch import nn

import pocketbayes as pb
from pocketbayes.layers import Ensemble, describe
from pocketbayes.layers.description import update_description
from pocketbayes.prediction.gaussian_outputs import draws_of_gaussian, spread_normals
from pocketbayes.prediction.moment_calibration import fisher_weights, spread_of_draws


def pairs(number=200):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(number, 4, generator=generator)
    return [(x, torch.randint(3, (number,), generator=generator))]


@pytest.mark.parametrize(("number", "dimensions"), [(30, 10), (31, 3), (2, 1), (30, 40), (200, 5)])
def test_normals_have_the_moments_of_normals(number, dimensions):
    z = spread_normals(number, dimensions)
    assert z.shape == (number, dimensions)
    torch.testing.assert_close(z.mean(0), torch.zeros_like(z[0]), atol=1e-9, rtol=0)
    torch.testing.assert_close(z.var(0), torch.ones_like(z[0]))
    if number // 2 > dimensions:
        torch.testing.assert_close(
            z.T.cov(), torch.eye(dimensions, dtype=z.dtype), atol=1e-9, rtol=0
        )
    assert torch.equal(z, spread_normals.__wrapped__(number, dimensions))


def test_normals_integrate_better_than_random_ones():
    """E relu(z) is 0.399, 30 random draws are off by 0.107; P(z < 1) is 0.8413, 200 by 0.026."""
    half = spread_normals(30, 10).relu().mean(0)
    assert (half - 1 / math.sqrt(2 * math.pi)).abs().max() < 0.05
    below = (spread_normals(200, 3) < 1).double().mean(0)
    assert (below - 0.8413).abs().max() < 0.015


def test_normals_of_very_many_outputs():
    z = spread_normals(4, 30_000)
    torch.testing.assert_close(z.var(0), torch.ones_like(z[0]))


def test_one_draw_is_the_mean_and_maps_are_drawn_position_by_position():
    mean, variance = torch.randn(5, 3, 2, 2), torch.rand(5, 3, 2, 2)
    assert torch.equal(draws_of_gaussian(mean, variance, 1)[0], mean)
    draws = draws_of_gaussian(mean, variance, 30)
    assert draws.shape == (30, 5, 3, 2, 2)
    torch.testing.assert_close(draws.var(0), variance)
    assert draws_of_gaussian(mean[:, 0, 0, 0], variance[:, 0, 0, 0], 7).shape == (7, 5)


def test_prediction_of_classes_is_near_to_many_draws_and_always_the_same():
    model, (x, _) = classifier(), pairs()[0]
    state = torch.get_rng_state()
    pred = pb.predict(model, x, estimator="moments")
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(pred.probs, pb.predict(model, x, estimator="moments").probs)
    assert (pred.estimator, pred.num_samples) == ("moments", 30)
    truth = pb.predict(model, x, 4000, generator=torch.Generator().manual_seed(0))
    assert truth.estimator == "lrt"
    few = pb.predict(model, x, 30, generator=torch.Generator().manual_seed(0))
    off, off_few = ((p.probs - truth.probs).abs().mean() for p in (pred, few))
    assert off < off_few / 2
    assert (pred.epistemic / truth.epistemic).mean().sub(1).abs() < 0.15


def test_batches_and_single_examples_are_predicted_alike():
    model, (x, _) = classifier(), pairs()[0]
    whole = pb.predict(model, x, estimator="moments")
    parts = pb.predict(model, x, estimator="moments", batch_size=7)
    torch.testing.assert_close(whole.probs, parts.probs)
    torch.testing.assert_close(pb.predict(model, x[3], estimator="moments").probs, whole.probs[3])


def test_the_model_is_left_as_it_was():
    model, (x, _) = classifier(estimator="weight").train(), pairs()[0]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    pb.predict(model, x, estimator="moments")
    assert model.training
    assert model[0]._posteriors.estimator == "weight"
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with pytest.raises(pb.DataError, match="cannot run on an input of shape"):
        pb.predict(model, torch.randn(3, 9), estimator="moments")
    assert not torch.equal(*(pb.predict(model, x, 1).probs for _ in range(2)))


def test_intervals_of_a_linear_regression_are_exact():
    """One Bayesian layer: y ~ N(m, v + noise^2), whose quantiles are known."""
    model, x = regressor(), torch.randn(50, 4)
    pred = pb.predict(model, x, 400, estimator="moments")
    posterior = dict(pb.named_posteriors(model))["weight"]
    mean, variance = posterior.moments()
    with torch.no_grad():
        expected, spread = x @ mean.T + model.bias, x.square() @ variance.T
    torch.testing.assert_close(pred.mean, expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(pred.epistemic, spread, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(pred.std, (spread + 0.25).sqrt(), atol=1e-5, rtol=1e-4)
    low, high = pred.interval(0.9)
    reach = 1.6448536 * pred.std
    assert ((high - expected) / reach - 1).abs().max() < 0.02
    assert ((expected - low) / reach - 1).abs().max() < 0.02


@pytest.mark.parametrize("likelihood", ["bernoulli", "heteroscedastic", "poisson"])
def test_other_likelihoods(likelihood):
    torch.manual_seed(0)
    model = pb.bayesianize_(nn.Linear(4, 4))
    pred = pb.predict(model, torch.randn(9, 4), estimator="moments", likelihood=likelihood)
    assert (pred.epistemic > 0).all()


def test_evaluation_says_how_it_was_made():
    record = pb.evaluate(classifier(), pairs(), estimator="moments", ood_loader=pairs())
    assert record.estimator == "moments"
    assert record.num_samples == 30
    assert record.auroc_entropy == pytest.approx(0.5)


def test_the_factor_is_that_of_draws():
    """One layer has the exact variance: the factor is 1 but for chance.

    With 19 degrees of freedom for each of 400 outputs 5 stds are 5 sqrt(2 / 19 / 400) = 0.08.
    """
    x = pairs()[0][0]
    for model in (regressor(), pb.bayesianize_(nn.Linear(4, 3), std_init=0.3)):
        pb.calibrate_moments_(model, x, 200, generator=torch.Generator().manual_seed(0))
        assert abs(describe(model).moments_factor - 1) < 0.08


def test_classes_count_by_their_fisher_information():
    """tr(F Cov) of draws is what their covariance matrices give; a common shift counts nothing."""
    torch.manual_seed(0)
    draws = torch.randn(9, 5, 4, dtype=torch.float64)
    probs = draws.softmax(2).mean(0)
    wanted = 0.0
    for n in range(5):
        fisher = probs[n].diag() - probs[n].outer(probs[n])
        wanted += (fisher * draws[:, n].T.cov()).sum()
    torch.testing.assert_close(spread_of_draws(draws, "classes"), wanted)
    shifts = torch.randn(9, 5, 1, dtype=torch.float64)
    torch.testing.assert_close(spread_of_draws(draws + shifts, "classes"), wanted)
    torch.testing.assert_close(fisher_weights(draws, "classes"), probs * (1 - probs))


def test_the_factor_widens_what_is_predicted_is_stored_and_forgotten(tmp_path):
    model, (x, _) = classifier(), pairs()[0]
    narrow = pb.predict(model, x, estimator="moments").epistemic
    update_description(model, moments_factor=4.0)
    wide = pb.predict(model, x, estimator="moments").epistemic
    assert (wide > 2 * narrow).float().mean() > 0.9
    pb.save(model, tmp_path / "a.pocket", lossless=True)
    assert "moments factor   4" in str(pb.inspect(tmp_path / "a.pocket"))
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 3))
    loaded = pb.load(tmp_path / "a.pocket", net)
    torch.testing.assert_close(pb.predict(loaded, x, estimator="moments").epistemic, wide)
    with pytest.warns(UserWarning, match="moments_factor calibration was dropped"):
        pb.prune_(model, 0.5)
    assert describe(model).moments_factor is None


def test_the_factor_mends_a_network_that_shares_noise_over_positions():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, 3),
    )  # fmt: skip
    model, x = pb.bayesianize_(net, std_init=0.2, estimator="weight"), torch.randn(60, 1, 8, 8)
    truth = pb.predict(model, x, 2000, generator=torch.Generator().manual_seed(0))

    def off():
        return (pb.predict(model, x, estimator="moments").epistemic / truth.epistemic).log().mean()

    before = off().abs()
    pb.calibrate_moments_(model, [(x, None)], 60, generator=torch.Generator().manual_seed(1))
    assert off().abs() < max(0.2, before / 2)


def test_temperature_and_conformal_by_moments():
    model, data = classifier(), pairs()
    pb.temperature_(model, data, estimator="moments")
    pb.conformal(model, data, estimator="moments")
    pred = pb.predict(model, data[0][0], estimator="moments")
    covered = pred.prediction_set.gather(1, data[0][1].unsqueeze(1)).float().mean()
    assert covered >= 0.9


def test_members_of_an_ensemble_have_draws_each():
    members = [classifier() for _ in range(3)]
    members[1][3].bias.data += 2
    ensemble, (x, _) = Ensemble(members), pairs()[0]
    pred = pb.predict(ensemble, x, 31, estimator="moments", keep_samples=True)
    assert pred.num_samples == 33
    each = torch.stack([pb.predict(m, x, 11, estimator="moments").probs for m in members])
    torch.testing.assert_close(pred.probs, each.mean(0))


def test_a_network_without_random_weights_is_run_once():
    model = classifier()
    pb.fit(model, pairs(), method=pb.Deterministic(), epochs=1, progress=False)
    pred = pb.predict(model, pairs()[0][0], estimator="moments")
    assert pred.num_samples == 1
    torch.testing.assert_close(pred.probs, pb.predict(model, pairs()[0][0], estimator="mean").probs)


def test_dropout_that_stays_on_is_part_of_the_moments():
    model = classifier()
    update_description(model, keeps_dropout=True)
    x = pairs()[0][0]
    pred = pb.predict(model, x, estimator="moments")
    truth = pb.predict(model, x, 2000, generator=torch.Generator().manual_seed(0))
    assert (pred.epistemic.mean() / truth.epistemic.mean() - 1).abs() < 0.3
    assert pred.epistemic.mean() > 1.5 * pb.predict(classifier(), x).epistemic.mean()


@pytest.mark.parametrize(
    "method",
    [
        pb.Subspace(density=0.5), pb.Sharing(), pb.SpikeSlab(), pb.SpikeSlab(granularity="input"),
        pb.VariationalDropout(), pb.Laplace(),
    ],
    ids=lambda method: type(method).__name__,
)  # fmt: skip
def test_every_family_of_posteriors(method):
    model = classifier()
    pb.fit(model, pairs(), method=method, epochs=2, val_loader=pairs(50), progress=False)
    x = pairs()[0][0]
    pred = pb.predict(model, x, estimator="moments")
    truth = pb.predict(model, x, 1000, generator=torch.Generator().manual_seed(0))
    assert (pred.probs - truth.probs).abs().mean() < 0.03
    assert pred.probs.isfinite().all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"examples": 0}, "examples must be"), ({"num_samples": 1}, "at least 2"),
        ({"estimator": "moments"}, "must be one of lrt"), ({"estimator": "mean"}, "no factor"),
        ({"data": []}, "no factor"), ({"data": torch.full((3, 4), math.nan)}, "not finite"),
        ({"model": nn.Linear(4, 3)}, "bayesianize_"), ({"model": 3}, "Module"),
    ],
)  # fmt: skip
def test_hostile_calibration(arguments, words):
    arguments = {"model": classifier(), "data": pairs()} | arguments
    with pytest.raises(pb.PocketBayesError, match=words):
        pb.calibrate_moments_(**arguments)


def test_compiled_networks_run_as_they_are_written():
    model, (x, _) = classifier(), pairs()[0]
    wanted = pb.predict(model, x, estimator="moments").probs
    torch.testing.assert_close(
        pb.predict(torch.compile(model, backend="eager"), x, estimator="moments").probs, wanted
    )


def test_half_precision():
    model, (x, _) = classifier(), pairs()[0]
    wanted = pb.predict(model, x, estimator="moments").probs
    found = pb.predict(model.bfloat16(), x.bfloat16(), estimator="moments").probs
    torch.testing.assert_close(found, wanted, atol=0.02, rtol=0)
