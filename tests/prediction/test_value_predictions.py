"""Predictions of values, counts and labels: calibration by simulation, intervals, draws, scores."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import Normal

import pocketbayes as pb
from pocketbayes.layers.description import update_description
from pocketbayes.likelihoods import LIKELIHOODS, set_learned_
from pocketbayes.prediction import scores

VALUES = ("gaussian", "heteroscedastic", "student-t", "poisson", "negative-binomial")
COUNTS = ("poisson", "negative-binomial")
LEARNED = {
    "noise_log_std": -0.5,
    "noise_log_scale": -0.5,
    "noise_log_freedom": 0.3,
    "noise_log_dispersion": -1.0,
}


def seeded(number=0):
    return torch.Generator().manual_seed(number)


def model_of(name, targets=2, std=0.2):
    """A linear network with random weights and known parameters of its likelihood."""
    torch.manual_seed(1)
    likelihood = LIKELIHOODS[name]
    net = nn.Linear(3, targets * likelihood.outputs_per_target)
    model = pb.bayesianize_(net, std_init=std)
    with torch.no_grad():
        model.bias += 1.0
    set_learned_(model, {n: torch.full((targets,), LEARNED[n]) for n in likelihood.learned})
    update_description(model, likelihood=name)
    return model


def simulated(model, count, seed=5):
    """Inputs, and targets of as many networks; outputs of one layer are independent draws."""
    torch.manual_seed(seed)
    x = torch.randn(count, 3)
    pred = pb.predict(model, x, num_samples=1)
    return x, pred.draw(1)[0]


@pytest.mark.parametrize("name", VALUES)
def test_targets_of_the_model_itself_are_calibrated(name):
    """5 standard errors, and 0.01 for the 40 draws that stand for all: 1 in 10,000 in all.

    Ranks are uniform: their mean and mean square are 1/2 and 1/3. Those of counts are those of a
    point drawn inside of the step.
    """
    model = model_of(name)
    x, y = simulated(model, 800)
    record = pb.evaluate(model, [(x, y)], num_samples=40, generator=seeded())
    for share in (50, 90, 95):
        p, got = share / 100, getattr(record, f"coverage_{share}")
        slack = 5 * math.sqrt(p * (1 - p) / 800) + 0.01
        assert got > p - slack
        assert name in COUNTS or got < p + slack
    pred = pb.predict(model, x, 40, generator=seeded())
    step = pred.cdf(y) - pred.cdf(y - 1) if name in COUNTS else torch.zeros_like(y)
    rank = pred.cdf(y) - step * torch.rand(y.shape, generator=seeded(1))
    assert abs(rank.mean() - 1 / 2) < 5 * math.sqrt(1 / 12 / 800) + 0.01
    assert abs(rank.square().mean() - 1 / 3) < 5 * math.sqrt(4 / 45 / 800) + 0.01
    assert record.likelihood == name
    assert 0 < record.crps < record.interval_score_90


def test_labels_of_the_model_itself_are_calibrated():
    """Mean of y - p is 0; 5 standard errors: 1 false alarm in a million."""
    model = model_of("bernoulli", targets=3)
    x, _ = simulated(model, 2000)
    y = pb.predict(model, x, num_samples=1, generator=seeded(7)).draw(1, seeded(8))[0]
    pred = pb.predict(model, x, 100)
    assert isinstance(pred, pb.LabelPrediction)
    assert abs((y - pred.probs).mean()) < 5 * pred.std.mean() / math.sqrt(y.numel()) + 0.003
    record = pb.evaluate(model, [(x, y)], 100)
    assert record.ece < 0.03
    picked = torch.where(y == 1, pred.probs, 1 - pred.probs)
    assert record.nll == pytest.approx(float(-picked.log().mean()), abs=0.01)
    assert record.accuracy == pytest.approx(float((pred.label == y).float().mean()), abs=0.01)
    assert record.brier == pytest.approx(float(2 * (y - pred.probs).square().mean()), abs=0.01)


@pytest.mark.parametrize("name", COUNTS)
def test_intervals_of_counts_are_whole_and_hold_enough_but_no_more(name):
    model = model_of(name)
    pred = pb.predict(model, torch.randn(40, 3), 20, generator=seeded())
    for coverage in (0.5, 0.9, 0.99):
        low, high = pred.interval(coverage)
        assert torch.equal(low, low.round())
        assert torch.equal(high, high.round())
        assert (low >= 0).all()
        held = pred.cdf(high) - pred.cdf(low - 1)
        assert (held >= coverage - 1e-6).all()
        tail = (1 - coverage) / 2
        assert (pred.cdf(high - 1) < 1 - tail).all()
        assert (pred.cdf(low - 1) < tail).all()


def test_a_rate_of_nearly_nothing_has_the_interval_of_zero():
    model = model_of("poisson", std=1e-6)
    with torch.no_grad():
        model.bias.fill_(-50.0)
    low, high = pb.predict(model, torch.zeros(2, 3)).interval(0.9)
    assert (low == 0).all()
    assert (high == 0).all()


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("bias", [1e4, -1e4])
def test_intervals_of_absurd_counts_end(name, bias):
    model = model_of(name)
    with torch.no_grad():
        model.bias.fill_(bias)
        for noise in (n for n in model.parameters() if n.shape == (2,) and n is not model.bias):
            noise.fill_(1e4)
    low, high = pb.predict(model, torch.zeros(2, 3), 3).interval(0.9)
    assert ((low >= 0) & (low <= high)).all()


@pytest.mark.parametrize("name", ["gaussian", "heteroscedastic", "student-t", "categorical"])
@pytest.mark.parametrize("estimator", ["moments", "lrt"])
def test_answers_that_are_not_finite_name_their_row(name, estimator):
    model, x = model_of(name), torch.zeros(7, 3)
    x[5] = 1e30
    with pytest.raises(pb.DataError, match=r"a prediction is not finite: row 5 of .*as in train"):
        pb.predict(model, x, estimator=estimator, batch_size=3)
    with pytest.raises(pb.DataError, match="row 0 of"):
        pb.predict(model, x[5], estimator=estimator)
    assert pb.predict(model, x[:5], estimator=estimator).epistemic.isfinite().all()


@pytest.mark.parametrize("name", [*VALUES, "bernoulli", "categorical"])
def test_draws_repeat_leave_the_global_generator_and_have_the_moments(name):
    """Means of 4,000 draws within 5 standard errors of the mixture's, or 0.1 of its std."""
    model = model_of(name)
    pred = pb.predict(model, torch.randn(5, 3), 40, generator=seeded(), keep_samples=True)
    state = torch.get_rng_state()
    draws = pred.draw(4000, seeded(2))
    assert torch.equal(draws, pred.draw(4000, seeded(2)))
    assert torch.equal(state, torch.get_rng_state())
    if name == "categorical":
        assert draws.shape == (4000, 5)
        shares = nn.functional.one_hot(draws, 2).float().mean(0)
        torch.testing.assert_close(shares, pred.probs, atol=5 * 0.5 / math.sqrt(4000), rtol=0)
        assert pb.predict(model, torch.randn(3), single=True).draw(7).shape == (7,)
        return
    assert draws.shape == (4000, 5, 2)
    assert ((draws.float().mean(0) - pred.mean).abs() < 0.1 * pred.std).all()
    if name in VALUES and name != "student-t":
        assert ((draws.std(0) / pred.std - 1).abs() < 0.15).all()
    with pytest.raises(pb.PocketBayesError, match="number"):
        pred.draw(0)


def test_outputs_of_one_draw_are_of_one_network():
    """Two outputs that are the same in every network are nearly so in every draw."""
    model = model_of("gaussian", std=2.0)
    with torch.no_grad():
        model.noise_log_std.fill_(-6)
    pred = pb.predict(model, torch.randn(8, 3), 30)
    parts = pred.parts.mapped(lambda t: t[..., :1].expand_as(t).contiguous())
    same = pb.ValuePrediction(30, pred.samples, pred.mean, pred.std, pred.aleatoric,
                              pred.epistemic, parts)  # fmt: skip
    draws = same.draw(50)
    assert (draws[..., 0] - draws[..., 1]).abs().max() < 0.05 < draws[..., 0].std(0).min()


@pytest.mark.parametrize("name", [*VALUES, "bernoulli"])
def test_a_single_example_is_that_row_of_a_batch(name):
    model = model_of(name)
    update_description(model, input_dims=2)
    x = torch.randn(1, 3)
    batch = pb.predict(model, x, 5, generator=seeded(), keep_samples=True)
    single = pb.predict(model, x[0], 5, generator=seeded(), keep_samples=True)
    torch.testing.assert_close(single.mean, batch.mean[0])
    assert single.draw(3).shape == (3, 2)
    if name in VALUES:
        torch.testing.assert_close(single.interval(0.9)[1], batch.interval(0.9)[1][0])
        torch.testing.assert_close(single.cdf(torch.ones(2)), batch.cdf(torch.ones(2))[0])


@pytest.mark.parametrize("name", VALUES)
def test_batches_are_joined_and_the_law_of_total_variance_holds(name):
    model, x = model_of(name), torch.randn(9, 3)
    pred = pb.predict(model, x, 20, batch_size=4)
    assert pred.interval()[0].shape == pred.mean.shape == (9, 2)
    torch.testing.assert_close(pred.variance, pred.aleatoric + pred.epistemic)
    torch.testing.assert_close(pred.aleatoric, pred.parts.variance.mean(0))
    torch.testing.assert_close(pred.epistemic, pred.samples.var(0))
    one = pb.predict(model, x, 1)
    assert (one.epistemic == 0).all()


def test_the_epistemic_variance_of_two_draws_is_right_on_average():
    """Of w x it is std^2 |x|^2; 4,000 predictions of 2 draws, each chi^2_1: 5 standard errors."""
    model = model_of("gaussian", targets=1, std=0.3)
    x = torch.ones(4000, 3)
    found = pb.predict(model, x, 2, generator=seeded()).epistemic.mean() / (0.3**2 * 3)
    assert abs(found - 1) < 5 * math.sqrt(2 / 4000)


def test_the_mutual_information_of_few_draws_is_nearer_with_its_correction():
    """That of 4 draws is low by a quarter; corrected, by less than a tenth."""
    model = pb.bayesianize_(nn.Linear(3, 3), std_init=0.3)
    x = torch.randn(4000, 3, generator=seeded())
    exact = pb.predict(model, x, 400, generator=seeded(1)).epistemic.mean()
    few = pb.predict(model, x, 4, generator=seeded(2))
    plain = (few.entropy - few.aleatoric).mean()
    assert plain / exact < 0.8
    assert 0.9 < few.epistemic.mean() / exact < 1.1
    assert (pb.predict(model, x, 1).epistemic == 0).all()


def test_the_crps_of_a_mixture_is_the_integral_of_squared_differences():
    torch.manual_seed(0)
    mean, std, y = torch.randn(7, 3).double(), torch.rand(7, 3).double() + 0.1, torch.randn(3)
    grid = torch.linspace(-15, 15, 60_001, dtype=torch.float64)
    cdf = Normal(mean[..., None], std[..., None]).cdf(grid).mean(0)
    wanted = torch.trapezoid((cdf - (grid >= y[:, None]).double()).square(), grid)
    found = scores.gaussian_mixture_crps(mean, std, y.double())
    torch.testing.assert_close(found, wanted, atol=3e-4, rtol=0)
    alone = scores.gaussian_mixture_crps(mean[:1], 1e-12 * std[:1], y.double())
    torch.testing.assert_close(alone, (mean[0] - y).abs())


def test_the_crps_of_draws_is_unbiased():
    """2,000 times 5 draws of N(0, 1) against the exact value; 5 standard errors."""
    draws, y = torch.randn(5, 2000, generator=seeded()).double(), torch.full((2000,), 0.7)
    found = scores.crps_of_draws(draws, y.double())
    exact = scores.gaussian_mixture_crps(torch.zeros(1, 1), torch.ones(1, 1), torch.tensor([0.7]))
    assert abs(found.mean() - exact) < 5 * found.std() / math.sqrt(2000)
    pairs = (draws[:, None] - draws[None]).abs().sum((0, 1)) / 20
    torch.testing.assert_close(found, (draws - 0.7).abs().mean(0) - pairs / 2)


def test_the_interval_score_charges_width_and_distance():
    low, high = torch.zeros(3), torch.ones(3)
    found = scores.interval_score(low, high, torch.tensor([0.5, -0.1, 1.2]), 0.9)
    torch.testing.assert_close(found, torch.tensor([1.0, 3.0, 5.0]))


def test_the_density_of_a_mixture_is_the_mean_of_its_parts():
    each = torch.randn(7, 5, 2)
    wanted = each.sum(2).exp().mean(0).log()
    torch.testing.assert_close(scores.mixture_log_density(each), wanted)
    assert scores.mixture_log_density(torch.zeros(3, 4)).shape == (4,)


def test_a_model_without_a_noise_warns_and_has_no_nan():
    model = pb.bayesianize_(nn.Linear(3, 1), std_init=0.3)
    data = [(torch.randn(20, 3), torch.randn(20))]
    for name in ("gaussian", "student-t"):
        with pytest.warns(UserWarning, match="refresh_noise_"):
            record = pb.evaluate(model, data, likelihood=name)
        numbers = [v for v in record.to_dict().values() if isinstance(v, float)]
        assert all(map(math.isfinite, numbers))
    counts = [(data[0][0], torch.arange(20))]
    with pytest.warns(UserWarning, match="refresh_noise_"):
        record = pb.evaluate(model, counts, likelihood="negative-binomial", generator=seeded())
    poisson = pb.evaluate(model, counts, likelihood="poisson", generator=seeded())
    assert record.nll == pytest.approx(poisson.nll, rel=1e-3)


def test_masked_labels_are_in_no_metric():
    model = pb.bayesianize_(nn.Linear(3, 4), std_init=0.3)
    x, y = torch.randn(30, 3), torch.randint(4, (30,))
    y[10:] = -100
    found = pb.evaluate(model, [(x[:10], y[:10]), (x[10:], y[10:])], estimator="mean")
    wanted = pb.evaluate(model, [(x[:10], y[:10])], estimator="mean")
    skipped = {"num_examples", "seconds"}
    assert {k: v for k, v in found.to_dict().items() if k not in skipped} == {
        k: v for k, v in wanted.to_dict().items() if k not in skipped
    }
    with pytest.raises(pb.DataError, match="every label is -100"):
        pb.evaluate(model, [(x, torch.full((30,), -100))])


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        ("poisson", torch.full((4, 2), 0.5), "is no count"),
        ("bernoulli", torch.full((4, 2), 2), "neither 0 nor 1"),
        ("gaussian", torch.zeros(4, 3), "target is"),
    ],
)
def test_impossible_targets_are_refused(name, target, message):
    with pytest.raises(pb.DataError, match=message):
        pb.evaluate(model_of(name), [(torch.randn(4, 3), target)])


def test_a_printed_record_shows_what_applies():
    model = model_of("poisson")
    text = str(pb.evaluate(model, [simulated(model, 20)], 5))
    assert "crps" in text
    assert "None" not in text
    assert "accuracy" not in text
