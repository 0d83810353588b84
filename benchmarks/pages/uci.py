"""UCI regressions: sparse networks against dense ones."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from pages.common import (
    Row,
    grouped,
    hardware,
    measured,
    origins,
    spread,
    standard_error,
    table,
    unusual,
)

DENSE, SPARSE = "mean-field", "spike-slab"
FIGURES = ("rmse", "nll")
MOST_DIGITS = 6  # after the point

# Settings that are shown only where they differ from these.
USUAL = {
    "density": 0.1, "hidden": [400, 400], "first": 0.58, "tune": 0.4, "steps": 3000, "beta": 0.3,
    "prior_std": 0.3, "inclusion": 0.1, "lr": 0.01, "std_lr": 0.01, "select_beta": 0.3,
    "select_lr": 0.003, "optimum": "density", "through": [],
}  # fmt: skip


class Contest(NamedTuple):
    """A figure of both networks, split by split."""

    dense: list[float]
    sparse: list[float]

    @property
    def differences(self) -> list[float]:
        """Sparse - dense: below 0, the sparse network is better."""
        return [s - d for s, d in zip(self.sparse, self.dense, strict=True)]

    def is_not_worse(self, errors: int = 0) -> bool:
        """Whether the mean difference is at most so many of its standard errors."""
        found = self.differences
        error = standard_error(found) if len(found) > 1 else 0.0
        return sum(found) / len(found) <= errors * error

    def shown(self) -> list[str]:
        """Both means and the difference, to three figures or more, and one of its error."""
        digits = digits_of(self.dense)
        error = standard_error(self.differences) if len(self.differences) > 1 else 0.0
        if error:
            digits = max(digits, min(MOST_DIGITS, -math.floor(math.log10(error))))
        return [spread(values, digits) for values in (self.dense, self.sparse, self.differences)]


def digits_of(values: Sequence[float]) -> int:
    """How many show three figures of their mean, at least two."""
    size = abs(sum(values) / len(values))
    return max(2, min(MOST_DIGITS, 2 - math.floor(math.log10(size)))) if size else 2


def uci() -> str:
    """Both networks by set and, behind it, how settings were chosen."""
    test, validation = measured("uci")
    parts = ["## Sparse networks on UCI regressions\n"]
    if test:
        parts.append(
            "Spike-and-slab, pruned and trained on, against mean-field VI of all weights, trained "
            "as long at the same beta: dense VI for a part `first` of all steps, then switches at "
            "`select_beta`, then pruned (through a density of `through` first) and trained on for "
            "the part `tune`. Means and standard errors over splits, in the target's own "
            f"units; on {hardware(test)}. Differences are sparse - dense, split by "
            "split. Not worse: their mean is not above 0; within errors: not above so many of its "
            f"standard errors.{_summary(test)}\n\n{_table(test)}"
        )
    if validation:
        parts.append(
            "Settings were chosen on a fifth of the training rows:\n\n" + _table(validation)
        )
    return "\n".join(parts)


def _summary(found: list[Row]) -> str:
    """On how many sets both figures pass, recipe by recipe."""
    recipes: dict[str, list[list[Row]]] = {}
    for (_, changed), group in _lines(found).items():
        recipes.setdefault(changed, []).append(group)
    return "".join(_verdict(changed, groups) for changed, groups in recipes.items())


def _verdict(changed: str, groups: list[list[Row]]) -> str:
    """What is to be said of one recipe."""
    kinds = (("not worse", 0), ("within one error", 1), ("within two", 2))
    counts = [f"{name} on {sum(_passes(g, errors) for g in groups)}" for name, errors in kinds]
    recipe = f"With {changed}" if changed else "Lines without a change"
    recipe += f" ({groups[0][0]['commit']}, {hardware(groups[0])})"
    return f" {recipe}, in both figures, of {len(groups)} sets: {', '.join(counts)}."


def _passes(group: list[Row], errors: int) -> bool:
    """Whether no figure is worse by more than so many errors."""
    return all(_contest(group, figure).is_not_worse(errors) for figure in FIGURES)


def _table(found: list[Row]) -> str:
    """One line per set, with the commands behind them."""
    head = [
        "set", "changed", "splits", "density", "RMSE, dense", "RMSE, sparse", "difference",
        "NLL, dense", "NLL, sparse", "difference", "not worse", "within one error",
    ]  # fmt: skip
    lines = [_line(key, group) for key, group in _lines(found).items()]
    return f"{origins(found)}\n" + table(head, lines)


def _lines(found: list[Row]) -> dict[Any, list[Row]]:
    """Runs of one set and the same settings, where both networks have a split in common."""
    groups = grouped(found, lambda row: (row["set"], unusual(row["settings"], USUAL)))
    return {key: group for key, group in groups.items() if _splits(group)}


def _line(key: tuple[str, str], group: list[Row]) -> list[str]:
    """One line of the table."""
    splits = _splits(group)
    density = [sparse["density"] for _, sparse in splits]
    contests = {"RMSE": _contest(group, "rmse"), "NLL": _contest(group, "nll")}
    verdicts = [
        ", ".join(name for name, c in contests.items() if c.is_not_worse(errors)) or "neither"
        for errors in (0, 1)
    ]
    figures = [text for contest in contests.values() for text in contest.shown()]
    return [*key, str(len(splits)), f"{sum(density) / len(density):.3f}", *figures, *verdicts]


def _splits(group: list[Row]) -> list[tuple[Row, Row]]:
    """Dense and sparse run of each split that has both; of repeated runs the last counts."""
    last = {(row["row"], row["split"]): row for row in group}
    numbers = sorted({row["split"] for row in group})
    return [
        (last[DENSE, number], last[SPARSE, number])
        for number in numbers
        if (DENSE, number) in last and (SPARSE, number) in last
    ]


def _contest(group: list[Row], name: str) -> Contest:
    """One figure of both."""
    pairs = _splits(group)
    return Contest([dense[name] for dense, _ in pairs], [sparse[name] for _, sparse in pairs])
