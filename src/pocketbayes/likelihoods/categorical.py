"""Classes: the cross-entropy of labels under logits."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from pocketbayes.errors import DataError


def categorical_nll(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy per example, summed over its positions, and accuracy; classes are dim 1.

    A label that is no class makes the result NaN, which needs no wait for the device; `fit`
    then says which label it was.
    """
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
            'for real-valued targets use likelihood="gaussian"'
        )
    classes = logits.shape[1]
    labels = labels.long()
    valid = ((labels >= 0) & (labels < classes)).all()
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    loss = F.cross_entropy(logits, labels.clamp(0, classes - 1), reduction="sum") / len(logits)
    accuracy = (logits.argmax(1) == labels).to(loss.dtype).mean()
    return torch.where(valid, loss, math.nan), accuracy
