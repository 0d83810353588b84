"""What is wrong with data, in words: where a number is not finite, which label is no class."""

from collections.abc import Iterable

from torch import Tensor

from pocketbayes.errors import DataError

Named = Iterable[tuple[str, Tensor]]
MASKED = -100  # the label of what is not to be predicted, as elsewhere in torch


def require_finite(named: Named, where: str, rows_before: int = 0) -> None:
    """An error that names the first row that is NaN or infinite; costs a sum of all numbers."""
    found = fault_in_numbers(named, rows_before)
    if found is not None:
        raise DataError(
            f"{where}: {found}. Rows count from 0. Fill in what is missing, or leave the row out"
        )


def fault_in_numbers(named: Named, rows_before: int = 0) -> str | None:
    """Which row of which tensor is NaN or infinite; a mask may hold minus infinity."""
    for name, tensor in named:
        if not tensor.is_floating_point() or bool(tensor.detach().sum().isfinite()):
            continue
        bad = tensor.isnan() if "mask" in name else ~tensor.isfinite()
        if bad.any():
            row, *place = bad.nonzero()[0].tolist()
            at = f", at {place[0] if len(place) == 1 else tuple(place)} in it" if place else ""
            value = float(tensor[row, *place])
            return f"row {rows_before + row} of {name} is not finite: it holds {value}{at}"
    return None


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
        else "leave out examples without a label" if label < 0
        else "for more classes the network needs as many outputs"
    )  # fmt: skip
    return (
        f"label {label} is out of range: the model has {classes} outputs, so labels must be 0 to "
        f"{classes - 1} (row {place[0]}). Labels count from 0; {advice}"
    )
