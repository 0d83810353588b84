"""From predictions and targets to the numbers of a record."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pocketbayes.errors import DataError
from pocketbayes.likelihoods import MASKED, Likelihood, Normal, ValueLikelihood, matched_target
from pocketbayes.prediction import metrics, scores
from pocketbayes.prediction.predictions import ValuePrediction

_CRPS_DRAWS = 200


def scored(
    predictions: Sequence[Any], targets: Sequence[Tensor], likelihood: Likelihood
) -> dict[str, float]:
    """The numbers of these predictions, one for each batch."""
    if isinstance(likelihood, ValueLikelihood):
        return _values(predictions, targets, likelihood)
    probs, labels = (
        _labels(predictions, targets, likelihood)
        if likelihood.kind == "labels"
        else _classes(predictions, targets, likelihood)
    )
    if not probs.isfinite().all():
        raise DataError("a prediction is not finite: look for NaN in the inputs or the model")
    return _of_probabilities(probs, labels)


def _classes(
    predictions: Sequence[Any], targets: Sequence[Tensor], likelihood: Likelihood
) -> tuple[Tensor, Tensor]:
    """(rows, classes) and (rows,), without what is masked."""
    probs = torch.cat([p.probs.movedim(1, -1).flatten(0, -2) for p in predictions])
    labels = torch.cat([t.flatten() for t in targets])
    counts = countable(probs, labels, likelihood)
    if not counts.any():
        raise DataError(f"every label is {MASKED}: there is nothing to measure")
    return probs[counts], labels[counts].long()


def countable(probs: Tensor, labels: Tensor, likelihood: Likelihood) -> Tensor:
    """Which labels count, (rows,) of (rows, classes); an error if one is no class."""
    likelihood.require_possible(probs, labels)
    return labels != MASKED


def _labels(
    predictions: Sequence[Any], targets: Sequence[Tensor], likelihood: Likelihood
) -> tuple[Tensor, Tensor]:
    """Every label as a choice of two classes: (rows, 2) and (rows,)."""
    pairs = [
        (p.probs, matched_target(p.probs, t)) for p, t in zip(predictions, targets, strict=True)
    ]
    for probs, target in pairs:
        likelihood.require_possible(probs, target)
    one = torch.cat([probs.flatten() for probs, _ in pairs])
    return torch.stack([1 - one, one], 1), torch.cat([t.flatten() for _, t in pairs]).long()


def _of_probabilities(probs: Tensor, labels: Tensor) -> dict[str, float]:
    return {
        "accuracy": metrics.accuracy(probs, labels),
        "nll": metrics.negative_log_likelihood(probs, labels),
        "brier": metrics.brier_score(probs, labels),
        "ece": metrics.expected_calibration_error(probs, labels),
        "marginal_ce": metrics.marginal_calibration_error(probs, labels),
        "confidence": float(probs.amax(1).double().mean()),
        "aurc": metrics.risk_coverage_area(probs, labels),
    }


def _values(
    predictions: Sequence[ValuePrediction], targets: Sequence[Tensor], likelihood: ValueLikelihood
) -> dict[str, float]:
    parts = [
        _of_batch(p, matched_target(p.mean, t), likelihood)
        for p, t in zip(predictions, targets, strict=True)
    ]
    means = {
        name: float(torch.cat([part[name].flatten() for part in parts]).double().mean())
        for name in parts[0]
    }
    return {"rmse": means.pop("squared_error") ** 0.5, **means}


def _of_batch(
    prediction: ValuePrediction, target: Tensor, likelihood: ValueLikelihood
) -> dict[str, Tensor]:
    """Each number for each example or target, of which the record has the mean."""
    likelihood.require_possible(prediction.mean, target)
    y = target.to(prediction.mean.dtype)
    low, high = prediction.central_interval(0.9)
    found = {
        "squared_error": (y - prediction.mean).square(),
        "nll": -scores.mixture_log_density(prediction.parts.log_prob(y)),
        "crps": _crps(prediction, y),
        "interval_score_90": scores.interval_score(low, high, y, 0.9),
    }
    return found | {f"coverage_{s}": _inside(prediction, y, s).double() for s in (50, 90, 95)}


def _crps(prediction: ValuePrediction, target: Tensor) -> Tensor:
    parts = prediction.parts
    if isinstance(parts, Normal):
        return scores.gaussian_mixture_crps(parts.mean, parts.std, target)
    draws = prediction.draw(_CRPS_DRAWS, torch.Generator().manual_seed(0))
    return scores.crps_of_draws(draws, target)


def _inside(prediction: ValuePrediction, target: Tensor, share: int) -> Tensor:
    """Whether each target lies in the central interval of this probability, in percent."""
    if prediction.parts.is_whole:
        low, high = prediction.interval(share / 100)
        return (low <= target) & (target <= high)
    return (prediction.cdf(target) - 0.5).abs() <= share / 200
