"""Tables: raw features and targets, and the standardisation that a model wants."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pocketbayes.data.features import (
    Scale,
    features_of,
    location_and_scale,
    refitted_column,
    table_features,
)
from pocketbayes.data.images import Index, row_numbers
from pocketbayes.errors import DataError


@dataclass(frozen=True, eq=False)
class TableSet:
    """Rows of a table: features (N, D) as read, categories one-hot; and targets (N,).

    Args:
        features: float64, not standardised; float32 would lose large numbers with small spread.
            NaN where a number or a date is empty.
        targets: int64 classes, or float64 values, not standardised.
        preprocess: {"kind": "table", "columns": [...], "target": {...}}. A column of numbers is
            {"name", "mean", "std"}, one of categories {"name", "values"}; the target has a
            "name" and, in a regression, "mean" and "std". A number may have a "fill", its median,
            which stands in for empty cells, and be a "date", of a "day" or a "time". With
            "empty" a column has a feature for empty cells, with "other" one for unknown words.
            "dropped" says which columns were left out, and why.
        classes: the name of each class; empty in a regression.
        support: the features that truly matter, where that is known.
        unfamiliar: of each row, the cells that training did not know, such as "colour=mauve".
        notes: what a person should know of how the table was read.
    """

    features: Tensor
    targets: Tensor
    preprocess: dict[str, Any]
    classes: tuple[str, ...] = ()
    support: tuple[int, ...] | None = None
    unfamiliar: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

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
        """One name per feature; "column=value" for a category, "column is empty" for a number."""
        return tuple(feature.name for feature in table_features(self.preprocess))

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
            unfamiliar=self.unfamiliar and tuple(self.unfamiliar[row] for row in rows.tolist()),
        )

    @cached_property
    def _scale(self) -> Scale:
        """Uploaded once, not with every batch; usable in training even if first used elsewhere."""
        with torch.inference_mode(False):
            return Scale.of(self.preprocess).to(self.device)

    def batch(self, index: Index, augment: bool = False) -> tuple[Tensor, Tensor]:
        """Standardised features and targets of these rows, as float32; nothing is augmented."""
        rows = row_numbers(index, self.device)
        targets = self.targets.index_select(0, rows)
        if targets.is_floating_point():
            scale = self.preprocess["target"]
            targets = ((targets - scale["mean"]) / scale["std"]).float()
        return self._scale.standardised(self.features.index_select(0, rows)), targets

    def refitted(self) -> "TableSet":
        """The same rows, standardised and filled by their own means, stds and medians."""
        columns, place = [], 0
        for column in self.preprocess["columns"]:
            columns.append(refitted_column(column, self.features[:, place]))
            place += len(features_of(column))
        target = {"name": self.preprocess["target"]["name"]}
        if self.targets.is_floating_point():
            target |= location_and_scale(self.targets)
        return replace(self, preprocess=self.preprocess | {"columns": columns, "target": target})
