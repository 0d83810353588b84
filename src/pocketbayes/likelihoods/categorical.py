"""Classes: the cross-entropy of labels, or of probabilities, under logits."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from pocketbayes.likelihoods.base import Learned, Likelihood, at_least_float32
from pocketbayes.likelihoods.labels import (
    MASKED,
    are_distributions,
    are_probabilities,
    require_labels,
    wrong_label,
    wrong_probabilities,
)

_MOST_CLASSES = 1 << 20


class Categorical(Likelihood):
    """p(label) = softmax(output); classes are dim 1. Labels of -100 do not count.

    A target may also be a probability of each class, in the shape of the output: of a teacher, say.
    """

    name = "categorical"
    kind = "classes"
    score = "accuracy"

    def nll(self, output: Tensor, target: Tensor, learned: Learned) -> tuple[Tensor, Tensor]:
        """Cross-entropy per example, summed over its positions, and accuracy."""
        if are_probabilities(output, target):
            return _nll_of_probabilities(at_least_float32(output), target)
        require_labels(output, target)
        labels, logits = target.long(), at_least_float32(output)
        counts = labels != MASKED
        valid = (~counts | _is_class(labels, logits)).all()
        within = labels.clamp(0, logits.shape[1] - 1).where(counts, MASKED)
        loss = F.cross_entropy(logits, within, reduction="sum", ignore_index=MASKED) / len(logits)
        right = (logits.argmax(1) == labels).to(loss.dtype).sum()
        return torch.where(valid, loss, math.nan), right / counts.sum().clamp_min(1)

    def constant(self, output: Tensor, target: Tensor) -> Tensor:
        """The log of each class's frequency."""
        if are_probabilities(output, target):
            sums = target.float().transpose(0, 1).flatten(1).sum(1)
            shares = (sums / sums.sum().clamp_min(1e-6)).clamp_min(1e-6)
            return shares.log().view(1, -1, *(1 for _ in output.shape[2:]))
        labels = target[(target >= 0) & (target < output.shape[1])].long()
        counts = torch.bincount(labels.flatten(), minlength=output.shape[1]).clamp_min(1e-6)
        return counts.log().view(1, -1, *(1 for _ in output.shape[2:]))

    def sums(self, target: Tensor) -> Tensor:
        """How often each class is there, up to the last that is."""
        if target.is_floating_point():
            return target.double().transpose(0, 1).flatten(1).sum(1)
        labels = target.flatten().long().clamp_min(-1)
        labels = labels.where(labels < _MOST_CLASSES, -1)  # the loss tells what is no class
        return torch.bincount(labels + 1).double()[1:]

    def constant_nll(self, sums: Tensor, best_for: Tensor) -> Tensor:
        """By the frequencies."""
        known = F.pad(best_for, (0, max(0, len(sums) - len(best_for)))).clamp_min(1e-6)
        return (sums * (known.sum().log() - known.log())[: len(sums)]).sum()

    def num_targets(self, target: Tensor) -> int:
        """Without those of -100."""
        if target.is_floating_point():
            return max(1, int((target.sum(1) > 0).sum()))
        return max(1, int((target != MASKED).sum()))

    def complaint(self, output: Tensor, target: Tensor) -> str | None:
        """The first label that is no class, or the first row that is no distribution."""
        if are_probabilities(output, target):
            return wrong_probabilities(target)
        return wrong_label(target, output.shape[1])


def _nll_of_probabilities(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """-sum_c p_c log softmax(logits)_c per example, and how often the likeliest classes agree."""
    shares = target.to(logits.dtype)
    loss = -(shares * logits.log_softmax(1)).sum() / len(logits)
    counts = shares.sum(1) > 0
    agree = ((logits.argmax(1) == shares.argmax(1)) & counts).to(loss.dtype).sum()
    valid = are_distributions(target).all()
    return torch.where(valid, loss, math.nan), agree / counts.sum().clamp_min(1)


def _is_class(labels: Tensor, logits: Tensor) -> Tensor:
    return (labels >= 0) & (labels < logits.shape[1])
