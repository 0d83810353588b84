"""What is wrong with class labels, or with probabilities in their place, in words."""

import torch
from torch import Tensor

from pocketbayes.errors import DataError, warn

MASKED = -100  # a label that does not count, as in torch
_ROUNDING = 1e-2  # of a sum of probabilities, in half precision


def are_probabilities(output: Tensor, target: Tensor) -> bool:
    """Whether the targets are a number for each class instead of a label."""
    return target.is_floating_point() and output.dim() >= 2 and target.shape == output.shape


def are_distributions(target: Tensor) -> Tensor:
    """For each position of (batch, classes, ...) whether they sum to 1, or all are 0: no label."""
    total = target.float().sum(1)
    return (target >= 0).all(1) & (((total - 1).abs() <= _ROUNDING) | (total == 0))


def wrong_probabilities(target: Tensor) -> str | None:
    """Which row holds no distribution over classes, and what to do."""
    wrong = ~are_distributions(target)
    if not wrong.any():
        return None
    row = int(wrong.nonzero()[0][0])
    return (
        f"targets in the shape of the model's output are probabilities of classes, and row {row} "
        'has a negative one or they do not sum to 1: apply softmax, or use likelihood="gaussian" '
        "for real-valued targets"
    )


def wrong_label(labels: Tensor, classes: int) -> str | None:
    """Which label is none of so many classes, and what to do."""
    wrong = ((labels < 0) | (labels >= classes)) & (labels != MASKED)
    if labels.is_floating_point() or not wrong.any():
        return None
    place = wrong.nonzero()[0].tolist()
    label = int(labels[*place])
    from_one = int(labels.amin()) == 1 and int(labels.amax()) == classes
    advice = (
        "these seem to count from 1: subtract 1" if from_one
        else f"{MASKED} marks what has no label" if label < 0
        else "for more classes the network needs as many outputs"
    )  # fmt: skip
    return (
        f"label {label} is out of range: the model has {classes} outputs, so labels must be 0 to "
        f"{classes - 1} (row {place[0]}). Labels count from 0; {advice}"
    )


def warn_of_probabilities(output: Tensor) -> None:
    """Says so if outputs (batch, classes, ...) have been through a softmax."""
    if output.dim() < 2 or output.shape[1] < 2 or not output.is_floating_point():
        return
    if output.numel() and output.detach().amin() < 0:  # logits; sums would take far longer
        return
    if bool((are_distributions(output).all() & (output.sum(1) > 0.5).all()).detach()):
        warn(
            "the model's outputs are probabilities, but a categorical likelihood takes logits and "
            "applies softmax itself, so what it makes of these is too flat: take the last Softmax "
            "out of the network (LogSoftmax may stay)"
        )


def require_labels(output: Tensor, labels: Tensor) -> None:
    """An error unless there is one whole number for each position of (batch, classes, ...)."""
    expected = output.shape[:1] + output.shape[2:]
    is_real = labels.is_floating_point()
    if output.dim() < 2 or labels.shape != expected:
        is_column = labels.shape == (*expected, 1)
        advice = f"; use labels.squeeze({labels.dim() - 1})" if is_column else ""
        if output.dim() > 2 and labels.shape == output.shape[:-1]:
            advice = "; classes seem to come last here: return output.movedim(-1, 1) from forward"
        advice = '; for real-valued targets use likelihood="gaussian"' if is_real else advice
        raise DataError(
            f"the model's output is {tuple(output.shape)}, the labels are {tuple(labels.shape)}; "
            f"a categorical likelihood needs (batch, classes, ...) and (batch, ...){advice}"
        )
    if is_real or labels.is_complex() or labels.dtype == torch.bool:
        raise DataError(
            f"class labels must be integers, not {labels.dtype}; "
            'for real-valued targets use likelihood="gaussian", for 0 or 1 "bernoulli"'
        )
