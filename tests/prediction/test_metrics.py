"""Every metric against torchmetrics or scikit-learn, or a case worked by hand."""

import itertools
import math

import pytest
import torch
import torchmetrics.functional as tm
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sk
from torch.testing import assert_close

from pocketbayes.prediction import metrics


def random_case(seed: int, n: int = 400, classes: int = 5):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, classes, generator=generator)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    return (1.5 * logits).softmax(1), labels


seeds = st.integers(0, 10_000)


@given(seeds)
def test_classification_metrics(seed):
    probs, labels = random_case(seed)
    accuracy = tm.accuracy(probs, labels, "multiclass", num_classes=5)
    assert metrics.accuracy(probs, labels) == pytest.approx(float(accuracy))
    exact = probs.double() / probs.double().sum(1, keepdim=True)
    assert metrics.negative_log_likelihood(probs, labels) == pytest.approx(
        sk.log_loss(labels, exact, labels=range(5)), rel=1e-5
    )
    truth = torch.nn.functional.one_hot(labels, 5)
    assert metrics.brier_score(probs, labels) == pytest.approx(
        float((probs - truth).square().sum(1).mean()), rel=1e-5
    )
    assert metrics.expected_calibration_error(probs, labels) == pytest.approx(
        float(tm.calibration_error(probs, labels, "multiclass", num_classes=5, n_bins=15)), abs=1e-6
    )


@given(seeds, st.booleans())
def test_ranking_metrics_with_and_without_ties(seed, ties):
    generator = torch.Generator().manual_seed(seed)
    negatives = torch.randn(150, generator=generator)
    positives = torch.randn(90, generator=generator) + 0.7
    if ties:
        negatives, positives = negatives.round(decimals=0), positives.round(decimals=0)
    truth = torch.cat([torch.zeros(150), torch.ones(90)])
    scores = torch.cat([negatives, positives])
    assert metrics.auroc(negatives, positives) == pytest.approx(sk.roc_auc_score(truth, scores))
    assert metrics.average_precision(negatives, positives) == pytest.approx(
        sk.average_precision_score(truth, scores)
    )
    false, true, _ = sk.roc_curve(truth, scores, drop_intermediate=False)
    for recall in (0.85, 0.95):
        assert metrics.false_positive_rate(negatives, positives, recall) == pytest.approx(
            false[(true >= recall).argmax()]
        )


def test_separated_scores():
    low, high = torch.arange(5.0), torch.arange(10.0, 13.0)
    assert metrics.auroc(low, high) == 1
    assert metrics.auroc(high, low) == 0
    assert metrics.average_precision(low, high) == 1
    assert metrics.false_positive_rate(low, high, 0.95) == 0
    assert metrics.auroc(torch.ones(4), torch.ones(3)) == 0.5


def test_risk_coverage_by_hand():
    probs = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.6, 0.4]])
    labels = torch.tensor([0, 0, 0, 1])
    assert metrics.risk_coverage_area(probs, labels) == pytest.approx(
        (0 + 1 / 2 + 1 / 3 + 2 / 4) / 4
    )


def test_risk_coverage_of_ties_is_the_mean_over_all_their_orders():
    confidence = torch.tensor([0.5, 0.9, 0.5, 0.5, 0.2])
    wrong = torch.tensor([True, False, False, True, True])
    tied, curves = [0, 2, 3], []
    for order in itertools.permutations(tied):
        errors = wrong[[1, *order, 4]].double()
        curves.append(errors.cumsum(0) / torch.arange(1, 6))
    expected = torch.stack(curves).mean(0)
    assert_close(metrics.risk_coverage(confidence, wrong), expected)
    everything_alike = metrics.risk_coverage(torch.ones(5), wrong)
    assert_close(everything_alike, torch.full((5,), 0.6, dtype=torch.float64))


def test_marginal_calibration_error_against_the_reference_implementation():
    """Values of `calibration.get_calibration_error` of uncertainty-calibration 0.1.4."""
    for seed, reference in REFERENCE.items():
        probs, labels = random_case(seed)
        got = metrics.marginal_calibration_error(probs, labels)
        assert got == pytest.approx(reference, abs=1e-6)


REFERENCE = {1: 0.053169731596910685, 2: 0.06404812580683976, 3: 0.04758528192163695}


def test_marginal_calibration_error_vanishes_for_a_calibrated_model():
    generator = torch.Generator().manual_seed(1)
    probs = torch.randn(200_000, 4, generator=generator).softmax(1)
    labels = torch.multinomial(probs, 1, generator=generator).squeeze(1)
    assert metrics.marginal_calibration_error(probs, labels) < 0.004
    overconfident = probs.pow(2) / probs.pow(2).sum(1, keepdim=True)
    assert metrics.marginal_calibration_error(overconfident, labels) > 0.05


def test_tiny_inputs_do_not_break():
    probs, labels = torch.tensor([[1.0, 0.0]]), torch.tensor([1])
    assert metrics.negative_log_likelihood(probs, labels) == pytest.approx(87.3, abs=0.1)
    assert metrics.expected_calibration_error(probs, labels) == 1
    assert math.isfinite(metrics.marginal_calibration_error(probs, labels))
