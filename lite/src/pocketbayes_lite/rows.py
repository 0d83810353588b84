"""Rows of a CSV file as a network wants them."""

import csv
import io
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pocketbayes_lite.errors import LiteError

_EMPTY = {"", "?", "na", "n/a", "#n/a", "nan", "nat", "null", "none", "<na>"}
_EMPTY_WORDS = _EMPTY - {"na", "none"}  # which are good words of some columns
_TRUTHS = {"true": True, "yes": True, "false": False, "no": False}
_LARGEST = float(np.finfo(np.float32).max)


def table(path: Path, preprocess: dict[str, Any]) -> tuple[list[str], NDArray[np.float32]]:
    """The name of each row, and its features: standardised numbers, and words one-hot."""
    names, body, lines = _read(path)
    columns = preprocess.get("columns")
    if not isinstance(columns, list) or not all(map(_is_column, columns)) or not columns:
        raise LiteError("the model's file does not say how rows become inputs")
    parts: list[NDArray[np.float64]] = []
    for column in columns:
        name = column["name"]
        if name not in names:
            raise LiteError(f"{path} lacks the column {name!r}; it has: {', '.join(names)}")
        place = names.index(name)
        where = [f"line {line}, column {name!r} of {path}," for line in lines]
        cells = [row[place] for row in body]
        parts.append((_words if "values" in column else _numbers)(cells, column, where))
    made = np.concatenate(parts, axis=1).astype(np.float32)
    return [f"{path.name}:{i + 1}" for i in range(len(body))], made


def _is_column(column: Any) -> bool:
    """Words, or a mean and a std."""
    if not isinstance(column, dict) or not isinstance(column.get("name"), str):
        return False
    if "values" in column:
        values = column["values"]
        return isinstance(values, list) and all(isinstance(v, str) for v in values)
    numbers = (column.get(n, 1.0) for n in ("mean", "std", "fill"))
    return all(isinstance(v, int | float) for v in numbers) and column.get("std", 1.0) > 0


def _read(path: Path) -> tuple[list[str], list[list[str]], list[int]]:
    """Names of the columns, cells of the rows, and the line that each row begins at."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise LiteError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise LiteError(f"{path} is not UTF-8: save it as UTF-8") from error
    separator = max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True, strict=True
    )
    rows, lines, line = [], [], 1
    try:
        for cells in reader:
            if cells:
                rows.append([cell.strip() for cell in cells])
                lines.append(line)
            line = reader.line_num + 1
    except csv.Error as error:
        raise LiteError(f"{path} cannot be read as CSV, from line {line} on: {error}") from error
    if len(rows) < 2:
        raise LiteError(f"{path} needs a first line that names the columns, and rows below")
    for number, cells in zip(lines, rows, strict=True):
        if len(cells) != len(rows[0]):
            raise LiteError(f"line {number} of {path} has {len(cells)} cells, not {len(rows[0])}")
    return rows[0], rows[1:], lines[1:]


def _numbers(cells: list[str], column: dict[str, Any], where: list[str]) -> NDArray[np.float64]:
    """(x - mean) / std, empty cells as their fill; and, if training had such, whether empty."""
    if "date" in column:
        raise LiteError(
            f"column {column['name']!r} is a date, which pocketbayes-lite does not read: predict "
            "from Python with features of your own, or by `pocketbayes predict`"
        )
    values = np.array([_number(*pair) for pair in zip(cells, where, strict=True)])
    empty = np.isnan(values)
    if empty.any() and "fill" not in column:
        raise LiteError(f"{where[int(empty.argmax())]} is missing: fill it in")
    values = np.where(empty, column.get("fill", 0.0), values)
    scaled = (values - column.get("mean", 0.0)) / column.get("std", 1.0)
    return np.stack([scaled, empty] if column.get("empty") else [scaled], axis=1)


def _number(cell: str, where: str) -> float:
    try:
        value = math.nan if cell.lower() in _EMPTY else float(cell.replace("_", "x"))
    except ValueError:
        value = math.inf
    if abs(value) > _LARGEST:
        raise LiteError(f"{where} is {cell!r}; it must be a number, finite in float32")
    return value


def _words(cells: list[str], column: dict[str, Any], where: list[str]) -> NDArray[np.float64]:
    """One feature for each word that training knew, then for empty cells, then for others."""
    known = list(column["values"])
    width = len(known) + bool(column.get("empty")) + bool(column.get("other"))
    made = np.zeros((len(cells), width))
    for row, cell in enumerate(cells):
        word = "" if cell.lower() in _EMPTY_WORDS else cell
        place = _place(word, known)
        if place is None and not word and column.get("empty"):
            place = len(known)
        if place is None and not column.get("other"):
            said = f"is {word!r}, which training did not know" if word else "is missing"
            raise LiteError(f"{where[row]} {said}; it knew: {', '.join(known)}")
        made[row, width - 1 if place is None else place] = 1
    return made


def _place(word: str, known: list[str]) -> int | None:
    """Among the known words; 1 and 1.0 are the same, and so are true and yes."""
    for spelling in (word, _canonical(word)):
        if spelling in known:
            return known.index(spelling)
    if word.lower() in _TRUTHS and all(other.lower() in _TRUTHS for other in known):
        truths = [_TRUTHS[other.lower()] for other in known]
        if _TRUTHS[word.lower()] in truths:
            return len(truths) - 1 - truths[::-1].index(_TRUTHS[word.lower()])
    return None


def _canonical(text: str) -> str:
    """Whole numbers in one spelling."""
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() and "_" not in text else text
