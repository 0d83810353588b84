"""What all parts of the page are made of: rows of results, tables, means with their errors."""

import json
import math
import re
import shlex
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from record import AGAIN

RESULTS = Path(__file__).parents[1] / "results"

Row = dict[str, Any]
T = TypeVar("T")

# Fields of a sparse run that are shown only where they differ from these.
USUAL = {
    "criterion": "snr_magnitude", "growth": "one_step", "new_std": "mean", "allocation": "erk",
    "structure": "none", "initial": "largest", "schedule": "cosine", "update_every": 100,
    "fraction": 0.3, "exchange_until": 0.75, "std_init": 0.001, "prior_std": 0.05, "lr": 0.2,
    "batch": 512, "model": "resnet18", "dense_first": False, "densities": None, "limit": None,
    "cutout": False,
}  # fmt: skip


def is_there(name: str) -> bool:
    """Whether there is a results file of this name."""
    return (RESULTS / f"{name}.jsonl").exists()


def rows(name: str) -> list[Row]:
    """All lines of a results file."""
    return [json.loads(line) for line in (RESULTS / f"{name}.jsonl").read_text().splitlines()]


def made_again(name: str) -> list[Row]:
    """Lines of what was run again for its file alone; they count nowhere else."""
    return rows(f"{AGAIN}/{name}") if is_there(f"{AGAIN}/{name}") else []


def measured(name: str) -> tuple[list[Row], list[Row]]:
    """What was measured on test sets and on validation parts; a search may have its own file."""
    found = [row for n in (name, f"{name}_search") if is_there(n) for row in rows(n)]
    test, validation = (
        [row for row in found if row["measured_on"] == where] for where in ("test", "validation")
    )
    return test, validation


def known(*parts: Callable[[], str]) -> list[str]:
    """The text of those parts that have a results file, which is named as they are."""
    return [part() for part in parts if is_there(part.__name__)]


def anchor(title: str) -> str:
    """Where a title is found, by the rule of GitHub."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def grouped(found: Sequence[T], key: Callable[[T], Hashable]) -> dict[Any, list[T]]:
    """Rows of one key together, in the order in which keys first appear."""
    groups: dict[Any, list[T]] = {}
    for row in found:
        groups.setdefault(key(row), []).append(row)
    return groups


def last_runs(found: Sequence[Row], kind: Callable[[Row], Hashable]) -> list[Row]:
    """Each kind and seed once: of a run that was repeated, the last."""
    return list({(kind(row), row["seed"]): row for row in found}.values())


def table(head: list[str], lines: list[list[str]]) -> str:
    """A table in Markdown."""
    marks = ["---"] * len(head)
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, marks, *lines]) + "\n"


# What may differ between commands that share a line.
REPEATED = ("--seeds", "--seed", "--sets", "--splits", "--from-split")
FEW = 4  # lines that are not folded


def origins(found: Sequence[Row]) -> str:
    """The commands behind a table and the commits they ran at, as an indented block.

    Those that differ only in what is repeated share a line, with `a|b` for one run with each. Many
    are folded.
    """
    lines: dict[tuple[Any, str], dict[str, dict[str, None]]] = {}
    for row in found:
        groups = _options(row["command"])
        fixed = tuple((flag, None if flag in REPEATED else values) for flag, values in groups)
        known = lines.setdefault((fixed, row["commit"]), {})
        for flag, values in groups:
            known.setdefault(flag, {})[values] = None
    block = "".join(f"    {_joined(*line)}\n" for line in lines.items())
    if len(lines) <= FEW:
        return block
    return f"<details><summary>{len(lines)} commands</summary>\n\n{block}\n</details>\n"


def _joined(line: tuple[Any, str], known: Mapping[str, Mapping[str, None]]) -> str:
    (fixed, commit), words = line, []
    for flag, values in fixed:
        words += [flag, "|".join(known[flag]) if values is None else values]
    return f"{' '.join(filter(None, words))} ({commit})"


def _options(command: str) -> list[tuple[str, str]]:
    """A command as flags with all their values; its first words are a flag of their own."""
    groups: list[list[str]] = [[]]
    for word in shlex.split(command):
        if word.startswith("--"):
            groups.append([])
        groups[-1].append(shlex.quote(word))
    return [(first, " ".join(rest)) for first, *rest in groups]


def unusual(settings: Mapping[str, Any], usual: Mapping[str, Any] = USUAL) -> str:
    """The settings of a run that are not the usual ones."""
    found = [f"{k}={settings[k]}" for k, v in usual.items() if settings.get(k, v) != v]
    return " ".join(found)


def scores(row: Row) -> list[str]:
    """Accuracy in percent, NLL and ECE of one run."""
    return [f"{100 * row['accuracy']:.2f}", f"{row['nll']:.3f}", f"{row['ece']:.4f}"]


def hardware(found: Sequence[Row]) -> str:
    """The machines that these were measured on."""
    return " and ".join(dict.fromkeys(row["hardware"] for row in found))


def mean_scores(group: Sequence[Row]) -> list[str]:
    """The same of several runs, with standard errors."""
    return [
        spread([100 * row["accuracy"] for row in group], 2),
        spread([row["nll"] for row in group], 3),
        spread([row["ece"] for row in group], 4),
    ]


def standard_error(values: Sequence[float]) -> float:
    """Of the mean of several values."""
    mean = sum(values) / len(values)
    return math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1) / len(values))


def spread(values: Sequence[float], digits: int) -> str:
    """The mean and, of several, its standard error."""
    mean = sum(values) / len(values)
    if len(values) == 1:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ± {standard_error(values):.{digits}f}"


def mean_of(group: Sequence[Row], name: str) -> float:
    """The mean of a figure that all of them have."""
    return float(sum(row[name] for row in group) / len(group))


def average(group: Sequence[Row], name: str, digits: int) -> str:
    """The spread of a figure over the runs that have it, with their number if that is not all."""
    values = [row[name] for row in group if row.get(name) is not None]
    if not values:
        return ""
    return spread(values, digits) + (f" (of {len(values)})" if len(values) < len(group) else "")


def seconds(group: Sequence[Row], name: str, digits: int, unit: str = "s") -> str:
    """The spread of the times taken with nothing beside them or, if there are none, of all: *."""
    alone = [row for row in group if not row.get("beside_other_work")]
    mark = "" if alone else "*"
    return f"{average(alone or group, name, digits)} {unit}{mark}" if group else ""
