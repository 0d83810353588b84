"""Classes: the cross-entropy of labels under logits."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from pocketbayes.errors import DataError
from pocketbayes.likelihoods.base import Learned, Likelihood, at_least_float32
from pocketbayes.likelihoods.labels import MASKED, wrong_label


class Categorical(Likelihood):
    """p(label) = softmax(output); classes are dim 1. Labels of -100 do not count."""

    name = "categorical"
    kind = "classes"
    score = "accuracy"

    def nll(self, output: Tensor, target: Tensor, learned: Learned) -> tuple[Tensor, Tensor]:
        """Cross-entropy per example, summed over its positions, and accuracy."""
        _require_labels(output, target)
        labels, logits = target.long(), at_least_float32(output)
        counts = labels != MASKED
        valid = (~counts | _is_class(labels, logits)).all()
        within = labels.clamp(0, logits.shape[1] - 1).where(counts, MASKED)
        loss = F.cross_entropy(logits, within, reduction="sum", ignore_index=MASKED) / len(logits)
        right = (logits.argmax(1) == labels).to(loss.dtype).sum()
        return torch.where(valid, loss, math.nan), right / counts.sum().clamp_min(1)

    def constant(self, output: Tensor, target: Tensor) -> Tensor:
        """The log of each class's frequency."""
        labels = target[(target >= 0) & (target < output.shape[1])].long()
        counts = torch.bincount(labels.flatten(), minlength=output.shape[1]).clamp_min(1e-6)
        return counts.log().view(1, -1, *(1 for _ in output.shape[2:]))

    def num_targets(self, target: Tensor) -> int:
        """Without those of -100."""
        return max(1, int((target != MASKED).sum()))

    def complaint(self, output: Tensor, target: Tensor) -> str | None:
        """The first label that is no class."""
        return wrong_label(target, output.shape[1])


def _is_class(labels: Tensor, logits: Tensor) -> Tensor:
    return (labels >= 0) & (labels < logits.shape[1])


def _require_labels(logits: Tensor, labels: Tensor) -> None:
    expected = logits.shape[:1] + logits.shape[2:]
    if logits.dim() < 2 or labels.shape != expected:
        raise DataError(
            f"the model's output is {tuple(logits.shape)}, the labels are {tuple(labels.shape)}; "
            "a categorical likelihood needs (batch, classes, ...) and (batch, ...)"
            + (
                '; for real-valued targets use likelihood="gaussian"'
                if labels.is_floating_point()
                else ""
            )
        )
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise DataError(
            f"class labels must be integers, not {labels.dtype}; "
            'for real-valued targets use likelihood="gaussian", for 0 or 1 "bernoulli"'
        )
