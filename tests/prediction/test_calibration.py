"""The mathematics of temperatures and of conformal thresholds, by simulation and known answers."""

import math

import pytest
import torch

import pocketbayes as pb
from pocketbayes.likelihoods.distributions import Normal, Poisson, StudentT
from pocketbayes.prediction.calibration import (
    Conformal,
    best_temperature,
    class_losses,
    class_scores,
    conformal_rank,
    conformal_threshold,
    examples_needed,
    temperatures,
    value_losses,
    value_scores,
)


def seeded(number=0):
    return torch.Generator().manual_seed(number)


def sampled_labels(probs, seed=1):
    return torch.multinomial(probs, 1, generator=seeded(seed)).flatten()


@pytest.mark.parametrize("true", [0.5, 1.0, 2.5])
def test_the_temperature_of_simulated_labels_is_found(true):
    """Within 5 standard errors, of the curvature of the loss: a false alarm in 2 million."""
    logits = 3 * torch.randn(1, 5000, 6, generator=seeded())
    labels = sampled_labels((logits[0] / true).softmax(1))
    losses = class_losses(logits, labels)
    step = float(temperatures()[1].log() - temperatures()[0].log())
    bend = (losses[2:] - 2 * losses[1:-1] + losses[:-2]) / step**2
    error = float(bend[losses.argmin() - 1] ** -0.5)
    assert abs(math.log(best_temperature(losses) / true)) < 5 * error < 0.2


def test_the_loss_is_that_of_the_mean_of_the_probabilities():
    logits = torch.randn(7, 20, 4, generator=seeded())
    labels = torch.randint(4, (20,), generator=seeded())
    losses = class_losses(logits, labels)
    for place in (0, 40, 63):
        probs = (logits.double() / temperatures()[place]).softmax(2).mean(0)
        expected = -probs[torch.arange(20), labels].log().sum()
        torch.testing.assert_close(losses[place], expected)
    assert float(temperatures()[40]) == pytest.approx(1.0)


def test_logits_that_underflow_as_probabilities_still_count():
    logits = torch.tensor([[[500.0, 0.0], [500.0, 0.0]]])
    losses = class_losses(logits, torch.tensor([1, 0]))
    assert losses.isfinite().all()
    assert best_temperature(losses) == pytest.approx(20.0)


@pytest.mark.parametrize("true", [0.3, 1.0, 4.0])
def test_the_factor_on_the_spread_of_simulated_values_is_found(true):
    """One Gaussian: the factor is the root mean square of the errors, 5 standard errors wide."""
    samples = torch.randn(1, 4000, 2, generator=seeded())
    noise = torch.tensor([0.25, 4.0]).expand(4000, 2)
    target = samples[0] + true * noise.sqrt() * torch.randn(4000, 2, generator=seeded(1))
    found = best_temperature(
        value_losses(Normal(samples, noise.log().expand_as(samples) / 2), target)
    )
    assert abs(math.log(found / true)) < 5 / math.sqrt(2 * 8000)
    exact = float(((target - samples[0]) / noise.sqrt()).square().mean().sqrt())
    assert found == pytest.approx(exact, rel=2e-3)


def test_draws_and_noise_are_widened_alike():
    """A mixture at 3 times the distance from its mean has the same probability below."""
    samples, other = (torch.randn(9, 5, 2, generator=seeded(s)) for s in (0, 1))
    y = torch.randn(5, 2, generator=seeded(2))
    for parts in (Normal(samples, other), StudentT(samples, other, other + 1)):
        wide = parts.widened(3.0)
        mean = samples.mean(0)
        torch.testing.assert_close(wide.location.mean(0), mean)
        torch.testing.assert_close(wide.location.var(0), 9 * samples.var(0))
        torch.testing.assert_close(wide.variance, 9 * parts.variance)
        torch.testing.assert_close(wide.cdf(mean + 3 * (y - mean)), parts.cdf(y))


def test_counts_cannot_be_widened():
    with pytest.raises(pb.PocketBayesError, match="no temperature"):
        Poisson(torch.zeros(2, 3)).widened(2.0)


def test_a_few_right_answers_do_not_ask_for_certainty():
    logits = torch.tensor([[[3.0, 0.0], [0.0, 3.0]]])
    assert 0.2 < best_temperature(class_losses(logits, torch.tensor([0, 1]))) < 1
    assert best_temperature(torch.zeros(81, dtype=torch.float64)) == pytest.approx(1.0)


def test_a_loss_that_is_never_finite_is_refused_and_some_are_passed_over():
    with pytest.raises(pb.DataError, match="no temperature fits"):
        best_temperature(torch.full((81,), math.nan, dtype=torch.float64))
    losses = temperatures().log().square() * 100
    losses[:30] = math.inf
    assert best_temperature(losses) == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize(
    ("examples", "level", "rank"),
    [(9, 0.9, 9), (19, 0.95, 19), (99, 0.55, 55), (10, 0.9, 10), (1, 0.5, 1), (1000, 0.99, 991)],
)
def test_ranks_go_by_the_level_as_it_is_written(examples, level, rank):
    """In floating point 100 * 0.55 is above 55."""
    assert conformal_rank(examples, level) == rank


@pytest.mark.parametrize("level", [0.1, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999])
def test_as_many_examples_are_needed_as_the_error_says(level):
    least = examples_needed(level)
    scores = torch.rand(least, generator=seeded())
    assert conformal_threshold(scores, level) <= scores.max()
    if least > 1:
        with pytest.raises(pb.DataError, match=rf"at least {least}$"):
            conformal_threshold(scores[1:], level)


@pytest.mark.parametrize("level", [0, 1, 1.0, -0.1, 2.0, math.nan, True, "0.9", None])
def test_levels_that_are_none_are_refused(level):
    with pytest.raises(pb.PocketBayesError, match="level"):
        conformal_threshold(torch.rand(50), level)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_scores_that_are_not_finite_are_refused(wrong):
    scores = torch.rand(50)
    scores[7] = wrong
    with pytest.raises(pb.DataError, match="NaN or infinite"):
        conformal_threshold(scores, 0.5)


def assert_covers(covered, level, examples):
    """Both bounds of the theorem at 4.5 standard errors: a false alarm in 100,000."""
    rate, error = float(covered.double().mean()), math.sqrt(level * (1 - level) / covered.numel())
    assert rate > level - 4.5 * error
    assert rate < level + 1 / (examples + 1) + 4.5 * error


@pytest.mark.parametrize(("examples", "level"), [(9, 0.9), (40, 0.8), (200, 0.95)])
def test_sets_of_a_wrong_model_cover_labels_as_promised(examples, level):
    """10,000 calibration sets, one new example each; the model's probabilities are nonsense."""
    runs, classes = 10_000, 5
    truth = torch.randn(runs, examples + 1, classes, generator=seeded()).softmax(2)
    labels = sampled_labels(truth.flatten(0, 1)).view(runs, examples + 1)
    wrong = (6 * truth.roll(1, 2)).softmax(2)
    scores = class_scores(wrong.flatten(0, 1), labels.flatten()).view(runs, examples + 1)
    threshold = conformal_threshold(scores[:, :-1].T, level)
    assert_covers(scores[:, -1] <= threshold, level, examples)


@pytest.mark.parametrize(("examples", "level"), [(9, 0.9), (40, 0.8), (200, 0.95)])
def test_intervals_of_a_wrong_model_cover_values_as_promised(examples, level):
    """20,000 calibration sets; heavy tails, a biased mean, stds that are too small, two outputs."""
    x = torch.randn(examples + 1, 20_000, 2, generator=seeded())
    noise = torch.randn(x.shape, generator=seeded(1)) / torch.rand(x.shape, generator=seeded(2))
    y = x + noise * torch.tensor([1.0, 10.0])
    scores = value_scores(0.5 * x + 1, 0.01 * (1 + x.abs()), y)
    threshold = conformal_threshold(scores[:-1], level)
    assert threshold.shape == (20_000, 2)
    for output in range(2):
        assert_covers((scores[-1] <= threshold)[:, output], level, examples)


def test_ties_only_cover_more():
    scores = torch.tensor([0.2] * 50 + [0.5] * 50)
    assert conformal_threshold(scores, 0.3) == pytest.approx(0.2)
    assert conformal_threshold(scores, 0.9) == pytest.approx(0.5)


def test_what_was_found_survives_as_facts():
    for threshold in (torch.tensor(0.25), torch.rand(2, 3)):
        found = Conformal(0.9, threshold.double(), 100, 30)
        again = Conformal.from_facts(found.to_facts())
        assert torch.equal(again.threshold, found.threshold)
        assert (again.level, again.examples, again.num_samples) == (0.9, 100, 30)
