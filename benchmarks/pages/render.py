"""Tables as declarations, and the one place that turns them into Markdown.

A table names its results file, which rows it wants, what its lines are and what its columns show.
Of a run that was repeated the last counts; several seeds become a mean and its standard error.
"""

import json
import math
import shlex
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from run import told

RESULTS = Path(__file__).parents[1] / "results"
NOTE = "<!-- Written by benchmarks/tables.py; do not edit. -->"

Row = dict[str, Any]
Field = str | Callable[[Row], Any]  # the path of a field, as in settings.beta, or what makes it
# A test of a row or, by path, a value, a tuple of values or a test of the value.
Where = Mapping[str, Any] | Callable[[Row], bool]
Show = Callable[[list[Any]], str]  # the text of the values of all runs of a line
NAMES = {
    "resnet18": "ResNet-18", "resnet20": "ResNet-20", "lenet5": "LeNet-5", "mlp": "MLP",
    "vit-small": "ViT-small",
    "cifar10": "CIFAR-10", "mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "digits": "Digits",
    "tiny-imagenet": "Tiny-ImageNet",
}  # fmt: skip


@dataclass(frozen=True)
class Column:
    """What one column shows: a value of the runs of a line, of those with `where` only."""

    head: str
    value: Field
    show: Show
    where: Where = field(default_factory=dict)


@dataclass(frozen=True)
class Line:
    """A line that is declared by itself: its words and the runs it is made of."""

    words: tuple[str, ...]
    source: str
    where: Where
    claim: Any = None  # a paper's figures for the same


@dataclass(frozen=True)
class Table:
    """A table of results.

    Attributes:
        title: its heading.
        columns: what it shows.
        source: results files.
        where: which of their rows count.
        by: fields whose values make a line.
        order: sorts rows before that.
        lines: lines by themselves, instead of `source` and `by`.
        heads: over the words of these.
        has_commands: whether it says what made its rows.
    """

    title: str
    columns: tuple[Column, ...]
    source: tuple[str, ...] = ()
    where: Where = field(default_factory=dict)
    by: tuple[Field, ...] = ()
    order: Callable[[Row], Any] | None = None
    lines: tuple[Line, ...] = ()
    heads: tuple[str, ...] = ()
    has_commands: bool = True


@dataclass(frozen=True)
class Page:
    """A theme: at most three sentences, a picture, tables, and what else stands under them."""

    name: str
    title: str
    about: str
    note: str
    tables: tuple[Table, ...]
    picture: str = ""
    after: Callable[[], str] = str


def page(declared: Page) -> str:
    """One page in Markdown."""
    first = [f"# {declared.title}", NOTE, declared.note, declared.picture]
    parts = [f"{words}\n" for words in first if words]
    parts += [section(table) for table in declared.tables]
    return "\n".join(parts) + declared.after()


def section(table: Table) -> str:
    """A table under its heading, with the commands behind it."""
    made_by = f"\n{origins(rows_behind(table))}" if table.has_commands else ""
    return f"## {table.title}\n\n{markdown(heads(table), cells(table))}{made_by}"


def heads(table: Table) -> list[str]:
    """The first line of a table."""
    return [*table.heads, *(column.head for column in table.columns)]


def cells(table: Table) -> list[list[str]]:
    """All other lines."""
    return [
        [*words, *(_cell(column, group) for column in table.columns)]
        for words, group in groups(table)
    ]


def _cell(column: Column, group: Sequence[Row]) -> str:
    counted = [row for row in group if matches(row, column.where)]
    values = [value_of(row, column.value) for row in counted]
    known = [value for value in values if value is not None]
    return column.show(known) if known else ""


def groups(table: Table) -> list[tuple[tuple[str, ...], list[Row]]]:
    """The words and runs of every line."""
    if table.lines:
        return [(line.words, rows_of(line)) for line in table.lines]
    found = [row for name in table.source for row in results(name) if matches(row, table.where)]
    found = sorted(found, key=table.order) if table.order else found
    lines = grouped(found, lambda row: tuple(str(value_of(row, part)) for part in table.by))
    return [((), last_runs(group)) for group in lines.values()]


def rows_of(line: Line) -> list[Row]:
    """The runs of a line, each of which knows the paper's claim."""
    found = last_runs([row for row in results(line.source) if matches(row, line.where)])
    return [row | {"claim": line.claim} for row in found]


def rows_behind(table: Table) -> list[Row]:
    """All runs of a table."""
    return [row for _, group in groups(table) for row in group]


@cache
def _read(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def results(name: str) -> list[Row]:
    """All lines of a results file."""
    return _read(RESULTS / f"{name}.jsonl")


def value_of(row: Row, part: Field) -> Any:
    """A field of a row, by its path or by a function; None if it has none."""
    if callable(part):
        return part(row)
    value: Any = row
    for name in part.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def matches(row: Row, where: Where) -> bool:
    """Whether a row is as wanted."""
    if callable(where):
        return where(row)
    return all(_is_wanted(value_of(row, path), wanted) for path, wanted in where.items())


def _is_wanted(value: Any, wanted: Any) -> bool:
    if callable(wanted):
        return bool(wanted(value))
    return value in wanted if isinstance(wanted, tuple) else value == wanted


def grouped(found: Sequence[Row], key: Callable[[Row], Hashable]) -> dict[Any, list[Row]]:
    """Rows of one key together, in the order in which keys first appear."""
    lines: dict[Any, list[Row]] = {}
    for row in found:
        lines.setdefault(key(row), []).append(row)
    return lines


# What tells lines of one run apart, beside what `told` says.
REPEATS = ("seed", "batch", "split", "tolerance", "what")


def last_runs(found: Sequence[Row]) -> list[Row]:
    """Each run once: of one that was repeated, the last."""
    return list({(told(row), *map(row.get, REPEATS)): row for row in found}.values())


def text(values: list[Any]) -> str:
    """What all of them have in common."""
    return "" if values[0] == "none" else str(values[0])


def count(values: list[Any]) -> str:
    """How many different ones there are."""
    return str(len(set(values)))


def number(digits: int, scale: float = 1, unit: str = "") -> Show:
    """Shows the mean of several runs with its standard error."""

    def show(values: list[Any]) -> str:
        scaled = [scale * value for value in values]
        error = f" ± {standard_error(scaled):,.{digits}f}" if len(scaled) > 1 else ""
        return f"{mean(scaled):,.{digits}f}{error}{unit}"

    return show


def average(digits: int, scale: float = 1, unit: str = "") -> Show:
    """Shows the mean alone."""
    return lambda values: f"{scale * mean(values):,.{digits}f}{unit}"


def significant(values: list[Any]) -> str:
    """Shows three figures of the mean, at least two after the point, and its standard error."""
    size = abs(mean(values))
    return number(max(2, min(6, 2 - math.floor(math.log10(size)))) if size else 2)(values)


def mean(values: Sequence[float]) -> float:
    """The mean."""
    return sum(values) / len(values)


def standard_error(values: Sequence[float]) -> float:
    """Of the mean of several values."""
    middle = mean(values)
    return math.sqrt(sum((v - middle) ** 2 for v in values) / (len(values) - 1) / len(values))


percent, whole = number(2, 100), average(0)
SCORES = (
    Column("accuracy", "accuracy", percent),
    Column("NLL", "nll", number(3)),
    Column("ECE", "ece", number(4)),
)


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    marks = ["---"] * len(head)
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, marks, *lines]) + "\n"


# What may differ between commands that share a line.
REPEATED = ("--seeds", "--seed", "--sets", "--splits", "--from-split", "--families", "--files")

COMMANDS = "commands (a|b: one run with each; in brackets the commit)"


def origins(found: Sequence[Row]) -> str:
    """The commands, commits and hardware behind a table, folded.

    Commands that differ only in what is repeated share a line, with `a|b` for one run with each.
    """
    lines: dict[tuple[Any, str], dict[str, dict[str, None]]] = {}
    for row in found:
        options = _options(row["command"])
        fixed = tuple((flag, None if flag in REPEATED else values) for flag, values in options)
        known = lines.setdefault((fixed, row["commit"]), {})
        for flag, values in options:
            known.setdefault(flag, {})[values] = None
    block = "".join(f"    {_joined(*line)}\n" for line in lines.items())
    machines = " and ".join(dict.fromkeys(row["hardware"] for row in found))
    return f"<details><summary>{machines}: {COMMANDS}</summary>\n\n{block}\n</details>\n"


def _joined(line: tuple[Any, str], known: Mapping[str, Mapping[str, None]]) -> str:
    (fixed, commit), words = line, []
    for flag, values in fixed:
        words += [flag, "|".join(known[flag]) if values is None else values]
    return f"{' '.join(filter(None, words))} ({commit})"


def _options(command: str) -> list[tuple[str, str]]:
    """A command as flags with all their values; its first words are a flag of their own."""
    options: list[list[str]] = [[]]
    for word in shlex.split(command):
        if word.startswith("--"):
            options.append([])
        options[-1].append(shlex.quote(word))
    return [(first, " ".join(rest)) for first, *rest in options]
