"""Reading CSV and Parquet files; a fault in a cell is found when its column is used."""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pocketbayes.data.columns import Column, Frame, as_number
from pocketbayes.data.files import reading
from pocketbayes.errors import DataError, optional_module

_OTHER_CODES = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


def read_frame(path: Path) -> Frame:
    """Reads a table: Parquet if the file says so by its ending or its first bytes, else CSV."""
    with reading(path, "a table"), path.open("rb") as file:
        is_parquet = path.suffix.lower() in (".parquet", ".pq") or file.read(4) == b"PAR1"
    return read_parquet(path) if is_parquet else read_csv(path)


def read_csv(path: Path) -> Frame:
    """Comma, semicolon or tab separated text in UTF-8 whose first line names the columns."""
    rows, lines = _rows_of_text(path, _text(path))
    if not rows:
        raise DataError(f"{path} is empty; its first line must name the columns")
    names, body, places = rows[0], rows[1:], np.array(lines[1:], dtype=np.int64)
    _require_names(path, names)
    if all(not np.isnan(as_number(name)) for name in names):
        raise DataError(f"{path} begins with numbers; its first line must name the columns")
    for line, cells in zip(places, body, strict=True):
        if len(cells) != len(names):
            raise DataError(
                f"line {line} of {path} has {len(cells)} cells, the header has {len(names)}; a "
                "cell that holds the separator needs quotes"
            )
    _require_rows(path, len(body))
    cells_by_name = zip(names, zip(*body, strict=True), strict=True)
    columns = {name: Column(name, list(cells), path, places) for name, cells in cells_by_name}
    return Frame(path, columns, len(body))


def _text(path: Path) -> str:
    with reading(path, "CSV"):
        content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        code = _OTHER_CODES.get(content[:2], "another encoding")
        raise DataError(
            f"line {line} of {path} is not UTF-8 (byte 0x{content[error.start]:02x}); the file "
            f"seems to be in {code}: save it as UTF-8"
        ) from error


def _rows_of_text(path: Path, text: str) -> tuple[list[list[str]], list[int]]:
    """The cells of each row that has any, and the line it begins at."""
    separator = max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True, strict=True
    )
    rows, lines, line = list[list[str]](), list[int](), 1
    try:
        for cells in reader:
            if cells:
                rows.append([cell.strip() for cell in cells])
                lines.append(line)
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"{path} cannot be read as CSV: the row that begins at line {line}: {error}; mend its "
            "quotes"
        ) from error
    return rows, lines


def read_parquet(path: Path) -> Frame:
    """A Parquet file; numbers stay numbers, dates become days, the rest words."""
    pyarrow = optional_module("pyarrow", extra="tabular")
    parquet = optional_module("pyarrow.parquet", extra="tabular")
    with reading(path, "Parquet"), path.open("rb") as file:
        table = parquet.ParquetFile(file).read()
        names = list(table.column_names)
        _require_names(path, names)
        _require_rows(path, table.num_rows)
        places = np.arange(1, table.num_rows + 1)
        columns = {
            name: _parquet_column(pyarrow, name, values, path, places)
            for name, values in zip(names, table.columns, strict=True)
        }
    return Frame(path, columns, table.num_rows)


def _parquet_column(
    pyarrow: Any, name: str, values: Any, path: Path, places: NDArray[np.int64]
) -> Column:
    types = pyarrow.types
    if types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    kind = values.type

    def column(cells: Any, **facts: Any) -> Column:
        return Column(name, cells, path, places, unit="row", **facts)

    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        numbers = values.cast(pyarrow.float64(), safe=False).to_numpy()
        return column(np.array(numbers, np.float64), whole=types.is_integer(kind))
    if types.is_date(kind) or types.is_timestamp(kind):
        moments = values.cast(pyarrow.timestamp("us"), safe=False).to_numpy()
        return column(_days(moments), dated=True)
    if types.is_boolean(kind) or types.is_string(kind) or types.is_large_string(kind):
        return column(["" if v is None else str(v).strip() for v in values.to_pylist()])
    if types.is_null(kind):
        return column([""] * len(values))
    advice = f"turn it into numbers or words, or leave it out: --drop {name}"
    return column([], fault=f"is of type {kind}; {advice}")


def _days(moments: NDArray[np.datetime64]) -> NDArray[np.float64]:
    """Days since 1970, NaN where there is no moment."""
    days = moments.astype("datetime64[us]").astype(np.int64) / 86_400e6
    return np.where(np.isnat(moments), np.nan, days)


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
