"""What a preprocess says of each column of a table, checked, and the features that it becomes."""

import math
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pocketbayes.data.dates import CIRCLE_NAMES
from pocketbayes.errors import DataError


class Feature(NamedTuple):
    """One input of a network: its name, what it tells about, its scale, and its value if empty."""

    name: str
    about: str
    mean: float = 0.0
    std: float = 1.0
    fill: float = 0.0


def checked_table_preprocess(preprocess: Any) -> dict[str, Any]:
    """The preprocess, if it is one of a table and every part is sound: it may come from a file."""
    if not isinstance(preprocess, dict) or preprocess.get("kind") != "table":
        kind = preprocess.get("kind") if isinstance(preprocess, dict) else preprocess
        raise DataError(f"tables need a preprocess of kind 'table'; this one is {kind!r}")
    columns, target = preprocess.get("columns"), preprocess.get("target")
    if not isinstance(columns, list) or not columns or not isinstance(target, dict):
        raise DataError("a table's preprocess needs a list of columns and a target")
    for column in columns:
        if not isinstance(column, dict) or not (_is_category(column) or _is_number(column)):
            raise DataError(
                f"the preprocess has the column {column!r}; it must have a name and either "
                "values, or a finite mean and a std above 0"
            )
    names = [column["name"] for column in columns]
    if len(set(names)) != len(names):
        raise DataError(f"the preprocess names a column twice: {names}")
    if not isinstance(target.get("name"), str) or ("mean" in target and not _is_number(target)):
        raise DataError(f"the preprocess has the target {target!r}; it must have a name")
    return preprocess


def _is_category(column: dict[str, Any]) -> bool:
    values = column.get("values")
    return (
        isinstance(column.get("name"), str)
        and isinstance(values, list)
        and 0 < len(values) == len({v for v in values if isinstance(v, str)})
        and all(type(column.get(name, False)) is bool for name in ("empty", "other"))
    )


def _is_number(column: dict[str, Any]) -> bool:
    scale: list[Any] = [column.get("mean"), column.get("std"), column.get("fill", 0)]
    least, most = column.get("least", 0.0), column.get("most", 0.0)
    return (
        isinstance(column.get("name"), str)
        and "values" not in column
        and all(map(_is_finite, (*scale, least, most)))
        and column["std"] > 0
        and ("least" in column) == ("most" in column)
        and least <= most
        and column.get("date", "day") in tuple(CIRCLE_NAMES)
        and type(column.get("empty", False)) is bool
        and ("fill" in column or not column.get("empty"))
    )


def _is_finite(value: object) -> bool:
    """A number that floating point can hold."""
    if type(value) is int:
        return abs(value) <= sys.float_info.max
    return type(value) is float and math.isfinite(value)


def table_features(preprocess: dict[str, Any]) -> list[Feature]:
    """Every feature of a table, in order."""
    return [feature for column in preprocess["columns"] for feature in features_of(column)]


def features_of(column: dict[str, Any]) -> list[Feature]:
    """Words: one each, then empty, then others. Numbers and dates: the value, then if empty."""
    return list(_category(column) if "values" in column else _number(column))


def _category(column: dict[str, Any]) -> Iterator[Feature]:
    name = column["name"]
    extra = [f"({word})" for word in ("empty", "other") if column.get(word)]
    yield from (Feature(f"{name}={value}", name) for value in (*column["values"], *extra))


def _number(column: dict[str, Any]) -> Iterator[Feature]:
    name = column["name"]
    mean, std = column.get("mean", 0.0), column.get("std", 1.0)
    yield Feature(name, name, mean, std, column.get("fill", 0.0))
    if "date" in column:  # an empty date is at the middle of every circle: at no time of it
        yield from (Feature(f"{name} {wave}", name) for wave in CIRCLE_NAMES[column["date"]])
    if column.get("empty"):
        yield Feature(f"{name} is empty", f"{name} is empty")


class Scale(NamedTuple):
    """Means, stds and values for empty cells of all features, float64."""

    mean: Tensor
    std: Tensor
    fill: Tensor

    @classmethod
    def of(cls, preprocess: dict[str, Any]) -> "Scale":
        """That of a preprocess; those of categories are left alone: 0 and 1."""
        rows = [feature[2:] for feature in table_features(preprocess)]
        mean, std, fill = torch.tensor(rows, dtype=torch.float64).unbind(1)
        return cls(mean, std, fill)

    def to(self, device: torch.device) -> "Scale":
        """The same on a device."""
        return Scale(*(part.to(device) for part in self))

    def standardised(self, features: Tensor) -> Tensor:
        """(x - mean) / std as float32; NaN, an empty cell, becomes its fill before."""
        filled = torch.where(features.isnan(), self.fill, features)
        return ((filled - self.mean) / self.std).float()


def refitted_column(column: dict[str, Any], values: Tensor) -> dict[str, Any]:
    """The column with mean, std and median of these values, as far as it has such."""
    # Sums of a copy may differ in the last digit, and older files are compared with these.
    known = values[~values.isnan()] if bool(values.isnan().any()) else values
    if "values" in column or not len(known):
        return column
    fill = {"fill": median(known)} if "fill" in column else {}
    seen = extent(known) if "least" in column else {}
    return column | location_and_scale(known) | fill | seen


def extent(values: Tensor) -> dict[str, float]:
    """The least and the largest value."""
    return {"least": float(values.min()), "most": float(values.max())}


def median(values: Tensor) -> float:
    """The middle value, or the mean of the two in the middle."""
    return float(values.double().quantile(0.5)) if len(values) < 2**24 else float(values.median())


def location_and_scale(values: Tensor) -> dict[str, float]:
    """Mean and std of a column; the std of a constant one is 1."""
    exact = values.double()
    if bool(exact.min() == exact.max()):
        return {"mean": float(exact[0]), "std": 1.0}
    return {"mean": float(exact.mean()), "std": float(exact.std(correction=0))}
