"""Numbers from predictions: pure functions of probabilities, labels and scores.

Classification takes probs (N, classes) and labels (N,); all results are Python floats.
"""

import math
from itertools import pairwise

import torch
from torch import Tensor


def accuracy(probs: Tensor, labels: Tensor) -> float:
    """Share of examples whose most probable class is the label."""
    return float((probs.argmax(1) == labels).double().mean())


def negative_log_likelihood(probs: Tensor, labels: Tensor) -> float:
    """Mean of -log p(label), in nats; a probability that underflowed counts as the smallest."""
    chosen = probs.gather(1, labels.unsqueeze(1)).clamp_min(torch.finfo(probs.dtype).tiny)
    return float(-chosen.double().log().mean())


def brier_score(probs: Tensor, labels: Tensor) -> float:
    """Mean over examples of sum_c (p_c - [c = label])^2."""
    truth = torch.nn.functional.one_hot(labels, probs.shape[1])
    return float((probs.double() - truth).square().sum(1).mean())


def expected_calibration_error(probs: Tensor, labels: Tensor, bins: int = 15) -> float:
    """Top-label ECE: sum over equal-width bins of n_b / N |accuracy_b - confidence_b|."""
    confidence, predicted = probs.double().max(1)
    edges = torch.linspace(0, 1, bins + 1, dtype=torch.float64, device=probs.device)
    index = (torch.bucketize(confidence, edges, right=True) - 1).clamp(0, bins - 1)
    gap = (predicted == labels).double() - confidence
    sums = torch.zeros(bins, dtype=torch.float64, device=probs.device).index_add(0, index, gap)
    return float(sums.abs().sum() / len(labels))


def marginal_calibration_error(probs: Tensor, labels: Tensor, bins: int = 15) -> float:
    """Root mean square over classes of the debiased L2 calibration error (Kumar et al. 2019).

    Per class, probabilities fall into bins of equal mass; a bin of n >= 2 examples adds
    n / N [(mean p - mean y)^2 - mean y (1 - mean y) / (n - 1)]. A negative sum counts as 0.
    """
    truth = torch.nn.functional.one_hot(labels, probs.shape[1]).double()
    columns = zip(probs.double().T.contiguous(), truth.T.contiguous(), strict=True)
    errors = [_debiased_square(p, y, bins) for p, y in columns]
    return math.sqrt(sum(errors) / len(errors))


def _debiased_square(p: Tensor, y: Tensor, bins: int) -> float:
    ordered = p.sort().values
    parts = torch.tensor_split(ordered, min(bins, len(ordered)))
    middles = {float(a[-1] + b[0]) / 2 for a, b in pairwise(parts)}
    index = torch.bucketize(p, p.new_tensor(sorted(middles)))
    zeros = p.new_zeros(len(parts))
    count = zeros.index_add(0, index, torch.ones_like(p))
    mean_p = zeros.index_add(0, index, p) / count.clamp_min(1)
    mean_y = zeros.index_add(0, index, y) / count.clamp_min(1)
    terms = (mean_p - mean_y).square() - mean_y * (1 - mean_y) / (count - 1).clamp_min(1)
    return max(0.0, float((count * terms)[count >= 2].sum() / len(p)))


def risk_coverage(confidence: Tensor, wrong: Tensor) -> Tensor:
    """Error rates among the k most confident examples, for every k.

    Of examples with the same confidence none comes first: each counts as their mean, which is what
    all their orders give on average.
    """
    order = confidence.argsort(descending=True)
    sizes: Tensor = torch.unique_consecutive(confidence[order], return_counts=True)[1]
    ties = torch.arange(len(sizes), device=wrong.device).repeat_interleave(sizes)
    errors = sizes.new_zeros(len(sizes), dtype=torch.float64)
    errors = errors.index_add(0, ties, wrong[order].double()) / sizes
    kept = torch.arange(1, len(wrong) + 1, dtype=torch.float64, device=wrong.device)
    return errors[ties].cumsum(0) / kept


def risk_coverage_area(probs: Tensor, labels: Tensor) -> float:
    """Mean over k of the error rate among the k most confident examples (AURC)."""
    confidence, predicted = probs.max(1)
    return float(risk_coverage(confidence, predicted != labels).mean())


def _curve(negatives: Tensor, positives: Tensor) -> tuple[Tensor, Tensor]:
    """False and true positives at every distinct threshold, from the highest score down."""
    scores = torch.cat([negatives, positives]).double()
    truth = torch.cat([torch.zeros(len(negatives)), torch.ones(len(positives))]).to(scores)
    order = scores.argsort(descending=True)
    scores, truth = scores[order], truth[order]
    last_of_tie = torch.cat([scores.diff() != 0, scores.new_ones(1, dtype=torch.bool)])
    return (1 - truth).cumsum(0)[last_of_tie], truth.cumsum(0)[last_of_tie]


def auroc(negatives: Tensor, positives: Tensor) -> float:
    """P(positive scores higher than negative), ties counting half."""
    false, true = _curve(negatives, positives)
    zero = false.new_zeros(1)
    area = torch.trapezoid(torch.cat([zero, true]), torch.cat([zero, false]))
    return float(area / (len(negatives) * len(positives)))


def average_precision(negatives: Tensor, positives: Tensor) -> float:
    """Area under the precision-recall curve as a step function (AUPR)."""
    false, true = _curve(negatives, positives)
    gained = true.diff(prepend=true.new_zeros(1)) / len(positives)
    return float((gained * true / (true + false)).sum())


def false_positive_rate(negatives: Tensor, positives: Tensor, recall: float) -> float:
    """The share of negatives above the highest threshold that finds `recall` of the positives."""
    false, true = _curve(negatives, positives)
    first = int((true / len(positives) >= recall).double().argmax())
    return float(false[first] / len(negatives))
