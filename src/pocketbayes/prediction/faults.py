"""What is wrong with data, in words: where a number is not finite."""

import math
from collections.abc import Iterable

from torch import Tensor

from pocketbayes.errors import DataError

Named = Iterable[tuple[str, Tensor]]


def require_finite(named: Named, where: str, rows_before: int = 0) -> None:
    """An error that names the first row that is NaN or infinite; costs a sum of all numbers."""
    found = fault_in_numbers(named, rows_before)
    if found is not None:
        raise DataError(
            f"{where}: {found}. Rows count from 0. Fill in what is missing, or leave the row out"
        )


def require_finite_answers(named: Named, rows_before: int = 0) -> None:
    """The same of what is told, where inputs were finite."""
    found = fault_in_numbers(named, rows_before)
    if found is not None:
        raise DataError(
            f"a prediction is not finite: {found}. Rows count from 0. Inputs too large for the "
            "model overflow: prepare them as in training; if all rows are so, look for NaN in the "
            "model"
        )


def fault_in_numbers(named: Named, rows_before: int = 0) -> str | None:
    """Which row of which tensor is NaN or infinite; a mask may hold minus infinity."""
    for name, tensor in named:
        if not tensor.is_floating_point() or math.isfinite(tensor.detach().sum()):
            continue
        bad = tensor.isnan() if "mask" in name else ~tensor.isfinite()
        if bad.any():
            row, *place = bad.nonzero()[0].tolist()
            at = f", at {place[0] if len(place) == 1 else tuple(place)} in it" if place else ""
            value = float(tensor[row, *place])
            return f"row {rows_before + row} of {name} is not finite: it holds {value}{at}"
    return None
