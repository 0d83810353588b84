"""The columns of a table, each read as numbers, dates or words when it is used."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pocketbayes.data.dates import Floats, days_of
from pocketbayes.errors import DataError

_EMPTY = {"", "?", "na", "n/a", "#n/a", "nan", "nat", "null", "none", "<na>"}
_EMPTY_WORDS = _EMPTY - {"na", "none"}  # which are good words of some columns
_WHOLE = re.compile(r"[+-]?[0-9]+")
_LARGEST = float(np.finfo(np.float32).max)
TRUTHS = {"true": True, "yes": True, "false": False, "no": False}


@dataclass(frozen=True, eq=False)
class Column:
    """One column: text cells as read, or numbers with NaN where there is none.

    `lines` has the number of each row in the file, counted in `unit`s; `whole` says that numbers
    are of an integer type, `dated` that they are days since 1970; `fault` why the column cannot
    be used.
    """

    name: str
    cells: list[str] | Floats
    path: Path
    lines: NDArray[np.int64]
    unit: str = "line"
    whole: bool = False
    dated: bool = False
    fault: str = ""

    @cached_property
    def _parsed(self) -> Floats:
        return parsed(self.cells) if isinstance(self.cells, list) else self.cells

    @cached_property
    def _days(self) -> Floats:
        if isinstance(self.cells, list):
            return days_of(self.cells)
        return self.cells if self.dated else np.full(len(self.cells), np.nan)

    @cached_property
    def kind(self) -> str:
        """What most cells are, of those that are not empty: "number", "date" or "word".

        If these are numbers or dates, the others are faults, which `numbers` and `days` report.
        """
        if not isinstance(self.cells, list):
            return "date" if self.dated else "number"
        known = sum(cell.lower() not in _EMPTY for cell in self.cells)
        if known == 0 or 2 * int((~np.isnan(self._parsed)).sum()) > known:
            return "number"
        return "date" if 2 * int((~np.isnan(self._days)).sum()) > known else "word"

    def is_whole(self) -> bool:
        """Whether all are integers, written as such."""
        if not isinstance(self.cells, list):
            return self.whole
        return all(_WHOLE.fullmatch(cell) for cell in self.cells)

    def numbers(self) -> Floats:
        """Finite numbers that float32 can hold, NaN where a cell is empty."""
        self.require_usable()
        if self.dated:
            raise self.error(0, "is a date; a number is needed")
        odd = self._faults(self._parsed) | (np.abs(self._parsed) > _LARGEST)
        if odd.any():
            row = int(odd.argmax())
            cell = str(self.cells[row])
            raise self.error(row, f"is {cell!r}; it must be a number, finite in float32")
        return self._parsed

    def days(self) -> Floats:
        """Days since 1970, NaN where a cell is empty."""
        self.require_usable()
        odd = self._faults(self._days)
        if not self.dated and not isinstance(self.cells, list):
            odd = ~np.isnan(self.cells)
        if odd.any():
            row = int(odd.argmax())
            cell = str(self.cells[row])
            raise self.error(row, f"is {cell!r}; it must be a date such as 2024-05-31 or a time")
        return self._days

    def words(self) -> list[str]:
        """Text, "" where a cell is empty; whole numbers without a point."""
        self.require_usable()
        if isinstance(self.cells, list):
            return ["" if cell.lower() in _EMPTY_WORDS else cell for cell in self.cells]
        if self.dated:
            raise self.error(0, "is a date; a word is needed")
        numbers = self.numbers().tolist()
        return ["" if number != number else canonical(str(number)) for number in numbers]

    def is_empty(self) -> NDArray[np.bool_]:
        """Which cells are empty, in the spellings that count for columns of its kind."""
        if self.kind == "word":
            return np.array([word == "" for word in self.words()])
        return np.isnan(self.numbers() if self.kind == "number" else self.days())

    def _faults(self, values: Floats) -> NDArray[np.bool_]:
        """Cells that are text, not empty, and have no value."""
        if not isinstance(self.cells, list):
            return np.zeros(len(self.cells), dtype=bool)
        return np.isnan(values) & [cell.lower() not in _EMPTY for cell in self.cells]

    def rows(self, kept: NDArray[np.int64]) -> "Column":
        """The column with these rows only."""
        cells = self.cells
        if self.fault:
            return self
        chosen = [cells[row] for row in kept] if isinstance(cells, list) else cells[kept]
        return replace(self, cells=chosen, lines=self.lines[kept])

    def require_usable(self) -> None:
        """An error if the column is of a type that nothing is done with."""
        if self.fault:
            raise DataError(f"column {self.name!r} of {self.path} {self.fault}")

    def error(self, row: int, what: str) -> DataError:
        """An error over one cell."""
        place = f"{self.unit} {self.lines[row]}"
        return DataError(f"{place}, column {self.name!r} of {self.path}, {what}")


@dataclass(frozen=True, eq=False)
class Frame:
    """The columns of one file by name."""

    path: Path
    columns: dict[str, Column]
    length: int

    def rows(self, kept: NDArray[np.int64]) -> "Frame":
        """The table with these rows only."""
        columns = {name: column.rows(kept) for name, column in self.columns.items()}
        return Frame(self.path, columns, len(kept))


def canonical(text: str) -> str:
    """Whole numbers in one spelling: "1", "+1" and "1.0" are "1"; anything else as it is."""
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() and "_" not in text else text


def parsed(cells: list[str]) -> Floats:
    """Each cell as a number, NaN where it is none."""
    if not any("_" in cell for cell in cells):
        try:
            return np.array(cells, dtype=np.float64)
        except ValueError:
            pass
    return np.array([as_number(cell) for cell in cells], dtype=np.float64)


def as_number(cell: str) -> float:
    """The number that a cell spells, NaN if it is none."""
    try:
        return float("nan") if "_" in cell else float(cell)
    except ValueError:
        return float("nan")


def are_truths(words: Sequence[str]) -> bool:
    """Whether these are true and false, or yes and no, in any case, and nothing else."""
    return bool(words) and all(word.lower() in TRUTHS for word in words)
