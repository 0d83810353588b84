"""Results on stdout: a table for people, JSON for programs."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pocketbayes.errors import printable

_WIDE = 160
_MOST_ROWS = 100
_RUN = tuple(
    "=+-@\uff1d\uff0b\uff0d\uff20"
)  # what a spreadsheet takes for a formula; wide forms, too
# Controls, what turns the direction of text, and halves of characters, which are no text.
_DRIVES = re.compile("[\0-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def show(result: Mapping[str, Any], as_json: bool, table: Table | str) -> None:
    """Prints a result as one JSON object, or as a table."""
    if as_json:
        print(json.dumps(result))
    elif isinstance(table, str):
        print(table)
    else:
        console().print(table)


def console() -> Console:
    """Stdout; where that is no terminal, wide enough to cut nothing short."""
    return Console(width=None if sys.stdout.isatty() else _WIDE)


def facts_table(title: str, facts: Mapping[str, Any]) -> Table:
    """Two columns: name and value."""
    table = Table(title=Text(printable(title)), title_justify="left", show_header=False)
    table.add_column("name", style="bold")
    table.add_column("value", overflow="fold")
    for name, value in flattened(facts):
        table.add_row(Text(printable(name)), Text(as_text(name, value)))
    return table


def rows_table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """One column per key, numbers to the right."""
    table = Table(title=Text(printable(title)), title_justify="left")
    for name in rows[0]:
        numeric = not isinstance(rows[0][name], str)
        table.add_column(
            Text(printable(name.replace("_", " "))),
            justify="right" if numeric else "left",
            overflow="fold",
        )
    for row in rows[:_MOST_ROWS]:
        table.add_row(*(Text(as_text(name, value)) for name, value in row.items()))
    if len(rows) > _MOST_ROWS:
        table.caption = f"{len(rows) - _MOST_ROWS} more rows: see --csv or --json"
    return table


def flattened(facts: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Name and value of every fact; those of an inner mapping under both names."""
    found: list[tuple[str, Any]] = []
    for name, value in facts.items():
        if isinstance(value, Mapping):
            found += [(f"{name} {inner}", v) for inner, v in flattened(value)]
        else:
            found.append((name, value))
    return found


def as_text(name: str, value: Any) -> str:
    """A value as a person reads it; accuracies in per cent."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{100 * value:.2f} %" if name.endswith("accuracy") else plain_number(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return printable(str(value))


def plain_number(value: float) -> str:
    """Four digits, or five of large numbers; an exponent only of very large or small ones."""
    if not 1000 <= abs(value) < 1e9:
        return f"{value:.4g}"
    return f"{float(f'{value:.5g}'):.10g}"


def as_cell(value: Any) -> Any:
    """A value of a table that goes to a file: words run no formula and drive no terminal.

    A word that begins like a formula gets an apostrophe before it; numbers stay what they are.
    """
    if not isinstance(value, str):
        return value
    word = _DRIVES.sub(lambda found: repr(found[0])[1:-1], value)
    first = next((c for c in word if c.isprintable() and c != " "), "")
    return f"'{word}" if first in _RUN and not _NUMBER.fullmatch(word) else word
