"""The columns of a CSV or Parquet file; a fault in one is found when that one is used."""

import csv
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pocketbayes.data.files import reading
from pocketbayes.errors import DataError, optional_module

_MISSING = {"", "?", "na", "n/a", "nan", "null", "none", "<na>"}
_MISSING_WORDS = _MISSING - {"na", "none"}  # which are good words of some columns
_WHOLE = re.compile(r"[+-]?[0-9]+")
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class Column:
    """One column: text cells as read, or numbers with NaN where there is none.

    `whole` says that numbers are of an integer type; `fault` why the column cannot be used.
    """

    name: str
    cells: list[str] | NDArray[np.float64]
    path: Path
    whole: bool = False
    fault: str = ""

    @cached_property
    def _parsed(self) -> NDArray[np.float64]:
        return parsed(self.cells) if isinstance(self.cells, list) else self.cells

    def is_text(self) -> bool:
        """Whether this is a column of words: at most half of the cells that are there are numbers.

        If more are, the others are faults, which `numbers` reports.
        """
        numbers = int((~np.isnan(self._parsed)).sum())
        if not isinstance(self.cells, list) or numbers == len(self.cells):
            return False
        known = sum(cell.lower() not in _MISSING for cell in self.cells)
        return 0 < known >= 2 * numbers

    def is_whole(self) -> bool:
        """Whether all are integers, written as such."""
        if not isinstance(self.cells, list):
            return self.whole
        return all(_WHOLE.fullmatch(cell) for cell in self.cells)

    def numbers(self) -> NDArray[np.float64]:
        """All cells as finite numbers that float32 can hold, or the first that is not."""
        self._require_usable()
        bad = ~(np.abs(self._parsed) <= _LARGEST)
        if bad.any():
            row = int(bad.argmax())
            cell = str(self.cells[row])
            if cell.lower() in _MISSING:
                raise self.error(row, "is missing; fill it in or leave the row out")
            raise self.error(row, f"is {cell!r}; it must be a number, finite in float32")
        return self._parsed

    def texts(self) -> list[str]:
        """All cells as text, or the first that is missing; whole numbers without a point."""
        self._require_usable()
        cells = self.cells
        if not isinstance(cells, list):
            cells = [canonical(str(value)) for value in self.numbers().tolist()]
        for row, cell in enumerate(cells):
            if cell.lower() in _MISSING_WORDS:
                raise self.error(row, "is missing; fill it in or leave the row out")
        return cells

    def _require_usable(self) -> None:
        if self.fault:
            raise DataError(f"column {self.name!r} of {self.path} {self.fault}")

    def error(self, row: int, what: str) -> DataError:
        """An error over one cell; rows are counted from 1 after the header."""
        return DataError(
            f"row {row + 1} after the header, column {self.name!r} of {self.path}, {what}"
        )


@dataclass(frozen=True, eq=False)
class Frame:
    """The columns of one file by name."""

    path: Path
    columns: dict[str, Column]
    rows: int


def canonical(text: str) -> str:
    """Whole numbers in one spelling: "1", "+1" and "1.0" are "1"; anything else as it is."""
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() and "_" not in text else text


def parsed(cells: list[str]) -> NDArray[np.float64]:
    """Each cell as a number, NaN where it is none."""
    if not any("_" in cell for cell in cells):
        try:
            return np.array(cells, dtype=np.float64)
        except ValueError:
            pass
    return np.array([_number(cell) for cell in cells], dtype=np.float64)


def _number(cell: str) -> float:
    try:
        return float("nan") if "_" in cell else float(cell)
    except ValueError:
        return float("nan")


def read_frame(path: Path) -> Frame:
    """Reads a table: Parquet if the file says so by its ending or its first bytes, else CSV."""
    with reading(path, "a table"), path.open("rb") as file:
        is_parquet = path.suffix.lower() in (".parquet", ".pq") or file.read(4) == b"PAR1"
    return read_parquet(path) if is_parquet else read_csv(path)


def read_csv(path: Path) -> Frame:
    """Comma, semicolon or tab separated text in UTF-8 whose first line names the columns."""
    with reading(path, "CSV"), path.open(newline="", encoding="utf-8-sig") as file:
        first = file.readline()
        file.seek(0)
        separator = max(",;\t", key=first.count)
        lines = csv.reader(file, delimiter=separator, skipinitialspace=True, strict=True)
        rows = [[cell.strip() for cell in line] for line in lines if line]
    if not rows:
        raise DataError(f"{path} is empty; its first line must name the columns")
    names, body = rows[0], rows[1:]
    _require_names(path, names)
    if all(not np.isnan(_number(name)) for name in names):
        raise DataError(f"{path} begins with numbers; its first line must name the columns")
    for row, cells in enumerate(body):
        if len(cells) != len(names):
            raise DataError(
                f"row {row + 1} after the header of {path} has {len(cells)} cells, the header has "
                f"{len(names)}"
            )
    _require_rows(path, len(body))
    cells_by_name = zip(names, zip(*body, strict=True), strict=True)
    columns = {name: Column(name, list(cells), path) for name, cells in cells_by_name}
    return Frame(path, columns, len(body))


def read_parquet(path: Path) -> Frame:
    """A Parquet file; numbers stay numbers, truth values and dictionaries become words."""
    pyarrow = optional_module("pyarrow", extra="tabular")
    parquet = optional_module("pyarrow.parquet", extra="tabular")
    with reading(path, "Parquet"), path.open("rb") as file:
        table = parquet.ParquetFile(file).read()
        names = list(table.column_names)
        _require_names(path, names)
        _require_rows(path, table.num_rows)
        pairs = zip(names, table.columns, strict=True)
        columns = {name: _parquet_column(pyarrow, name, values, path) for name, values in pairs}
    return Frame(path, columns, table.num_rows)


def _parquet_column(pyarrow: Any, name: str, values: Any, path: Path) -> Column:
    types = pyarrow.types
    if types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    kind = values.type
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        numbers = values.cast(pyarrow.float64(), safe=False).to_numpy()
        return Column(name, np.asarray(numbers, np.float64), path, whole=types.is_integer(kind))
    if types.is_boolean(kind) or types.is_string(kind) or types.is_large_string(kind):
        cells = ["" if value is None else str(value).strip() for value in values.to_pylist()]
        return Column(name, cells, path)
    return Column(name, [], path, fault=f"is of type {kind}; turn it into numbers or words")


def _require_names(path: Path, names: list[str]) -> None:
    for number, name in enumerate(names):
        if not name:
            raise DataError(
                f"column {number + 1} of {path} has no name; name it, or leave it out if it only "
                "numbers the rows (pandas: index=False)"
            )
        if name in names[:number]:
            raise DataError(f"{path} has two columns named {name!r}; rename one")


def _require_rows(path: Path, rows: int) -> None:
    if rows == 0:
        raise DataError(f"{path} has a header and no row")
