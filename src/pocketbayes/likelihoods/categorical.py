"""Classes: the cross-entropy of labels under logits."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from pocketbayes.likelihoods.base import Learned, Likelihood, at_least_float32
from pocketbayes.likelihoods.labels import MASKED, require_labels, wrong_label


class Categorical(Likelihood):
    """p(label) = softmax(output); classes are dim 1. Labels of -100 do not count."""

    name = "categorical"
    kind = "classes"
    score = "accuracy"

    def nll(self, output: Tensor, target: Tensor, learned: Learned) -> tuple[Tensor, Tensor]:
        """Cross-entropy per example, summed over its positions, and accuracy."""
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
