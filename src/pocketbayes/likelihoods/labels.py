"""What is wrong with class labels, in words."""

from torch import Tensor

MASKED = -100  # a label that does not count, as in torch


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
