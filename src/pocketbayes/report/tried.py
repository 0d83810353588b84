"""What a compression tried, as its run's metrics tell it."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

_NUMBERS = ("bytes", "multiplications", "milliseconds", "nll")


class Tried(NamedTuple):
    """One candidate, measured on the validation part."""

    what: str
    bytes: float
    multiplications: float
    milliseconds: float
    nll: float
    score: str
    chosen: bool


def tried_in(metrics: Mapping[str, Any]) -> list[Tried]:
    """The candidates that a run's metrics tell of, the smallest first."""
    told = metrics.get("compression")
    rows = told.get("candidates") if isinstance(told, dict) else None
    found = [_tried(row) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return sorted((one for one in found if one is not None), key=lambda one: one.bytes)


def _tried(row: Mapping[str, Any]) -> Tried | None:
    size, cost, time, nll = (_number(row.get(name)) for name in _NUMBERS)
    if not (size > 0 and math.isfinite(nll)):
        return None
    accuracy, rmse = _number(row.get("accuracy")), _number(row.get("rmse"))
    score = f"RMSE {rmse:.4g}" if math.isnan(accuracy) else f"{accuracy:.2%}"
    return Tried(str(row.get("what")), size, cost, time, nll, score, row.get("chosen") is True)


def _number(value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else math.nan
