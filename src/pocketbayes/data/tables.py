"""Tables: raw features and targets, and the standardisation that a model wants."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pocketbayes.data.images import Index, row_numbers
from pocketbayes.errors import DataError


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
    )


def _is_number(column: dict[str, Any]) -> bool:
    scale: list[Any] = [column.get("mean"), column.get("std")]
    return (
        isinstance(column.get("name"), str)
        and all(type(v) in (int, float) and math.isfinite(v) for v in scale)
        and column["std"] > 0
    )


def feature_scale(columns: list[dict[str, Any]]) -> tuple[Tensor, Tensor]:
    """Mean and std of every feature, float64; those of categories are left alone: 0 and 1."""
    mean: list[float] = []
    std: list[float] = []
    for column in columns:
        width = len(column.get("values", (0,)))
        mean += [column.get("mean", 0.0)] * width
        std += [column.get("std", 1.0)] * width
    return torch.tensor(mean, dtype=torch.float64), torch.tensor(std, dtype=torch.float64)


def location_and_scale(values: Tensor) -> dict[str, float]:
    """Mean and std of a column; the std of a constant one is 1."""
    exact = values.double()
    if bool(exact.min() == exact.max()):
        return {"mean": float(exact[0]), "std": 1.0}
    return {"mean": float(exact.mean()), "std": float(exact.std(correction=0))}


@dataclass(frozen=True, eq=False)
class TableSet:
    """Rows of a table: features (N, D) as read, categories one-hot; and targets (N,).

    Args:
        features: float64, not standardised; float32 would lose large numbers with small spread.
        targets: int64 classes, or float64 values, not standardised.
        preprocess: {"kind": "table", "columns": [...], "target": {...}}. A column of numbers is
            {"name", "mean", "std"}, one of categories {"name", "values"}; the target has a
            "name" and, in a regression, "mean" and "std".
        classes: the name of each class; empty in a regression.
        support: the features that truly matter, where that is known.
    """

    features: Tensor
    targets: Tensor
    preprocess: dict[str, Any]
    classes: tuple[str, ...] = ()
    support: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.features.dtype != torch.float64 or self.features.dim() != 2:
            raise DataError(
                f"features are {self.features.dtype} of shape {tuple(self.features.shape)}; they "
                "must be float64 of (N, D)"
            )
        if self.targets.dtype not in (torch.int64, torch.float64) or (
            self.targets.shape != self.features.shape[:1]
        ):
            raise DataError(
                f"targets are {self.targets.dtype} of shape {tuple(self.targets.shape)}; they "
                f"must be int64 or float64 of ({len(self.features)},)"
            )

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def device(self) -> torch.device:
        """Where the rows lie and batches are made."""
        return self.features.device

    @property
    def likelihood(self) -> str:
        """What the preprocess says or, where it does not, what the targets call for."""
        usual = "gaussian" if self.targets.is_floating_point() else "categorical"
        return str(self.preprocess["target"].get("likelihood", usual))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """One name per feature; "column=value" for a category."""
        return tuple(_feature_names(self.preprocess["columns"]))

    def to(self, device: torch.device | str) -> "TableSet":
        """The same rows on a device."""
        return replace(self, features=self.features.to(device), targets=self.targets.to(device))

    def subset(self, index: Index) -> "TableSet":
        """The rows with these numbers."""
        rows = row_numbers(index, self.device)
        return replace(
            self,
            features=self.features.index_select(0, rows),
            targets=self.targets.index_select(0, rows),
        )

    @cached_property
    def _scale(self) -> tuple[Tensor, Tensor]:
        """Uploaded once, not with every batch; usable in training even if first used elsewhere."""
        with torch.inference_mode(False):
            mean, std = feature_scale(self.preprocess["columns"])
            return mean.to(self.device), std.to(self.device)

    def batch(self, index: Index, augment: bool = False) -> tuple[Tensor, Tensor]:
        """Standardised features and targets of these rows, as float32; nothing is augmented."""
        rows = row_numbers(index, self.device)
        mean, std = self._scale
        targets = self.targets.index_select(0, rows)
        if targets.is_floating_point():
            scale = self.preprocess["target"]
            targets = ((targets - scale["mean"]) / scale["std"]).float()
        return ((self.features.index_select(0, rows) - mean) / std).float(), targets

    def refitted(self) -> "TableSet":
        """The same rows, standardised by their own means and stds."""
        columns, place = [], 0
        for column in self.preprocess["columns"]:
            if "values" not in column:
                statistics = location_and_scale(self.features[:, place])
                column = {"name": column["name"], **statistics}
            columns.append(column)
            place += len(column.get("values", (0,)))
        target = {"name": self.preprocess["target"]["name"]}
        if self.targets.is_floating_point():
            target |= location_and_scale(self.targets)
        return replace(self, preprocess={"kind": "table", "columns": columns, "target": target})


def _feature_names(columns: list[dict[str, Any]]) -> Iterator[str]:
    for column in columns:
        if "values" in column:
            yield from (f"{column['name']}={value}" for value in column["values"])
        else:
            yield column["name"]
