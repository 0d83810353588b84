"""Every method beside every other on the UCI regressions."""

from collections.abc import Sequence

from pages.common import Row, grouped, hardware, measured, origins, spread, table
from pages.uci import digits_of

OF_A_RUN = ("sets", "splits", "from_split", "families", "validation")
Kind = tuple[str, str, str]


def side_by_side_uci() -> str:
    """What all cost and how they rank; then both figures, set by set."""
    test, validation = measured("side_by_side_uci")
    parts = ["## Every method on the UCI regressions\n", _about(test), *_parts(test)]
    if validation:
        parts += [
            "Settings were looked for on held-out training rows:\n",
            *_parts(validation),
        ]
    return "\n".join(parts)


def _about(found: list[Row]) -> str:
    settings = found[0]["settings"]
    widths = " and ".join(map(str, settings["hidden"]))
    return (
        f"A network of hidden layers of {widths} units for each of nine sets; the same steps of "
        "training for each method, on Gal's splits; measured after loading the file back. What is "
        "pruned or shared was trained on afterwards, and its time is that of the whole way. Ranks "
        "are those of a set's mean over splits, 1 the best, averaged over sets. Coverage is that "
        f"of the 90% interval. A prediction is that of 1,024 rows x {settings['samples']} samples "
        "on one core. RMSE and NLL are in the target's own units, mean and standard error over "
        "splits. Deterministic rows have a noise that was fitted in training.\n"
    )


def _parts(found: list[Row]) -> list[str]:
    """Of a run that was repeated, the last counts."""
    last = {(_kind(row), row["set"], row["split"]): row for row in found}
    kinds = grouped(list(last.values()), _kind)
    return [
        f"On {hardware(found)}.\n\n{origins(found)}\n{_summary(kinds)}",
        "### NLL\n\n" + _figure(kinds, "nll"),
        "### RMSE\n\n" + _figure(kinds, "rmse"),
    ]


def _kind(row: Row) -> Kind:
    """What one line is about."""
    settings = {k: v for k, v in row["settings"].items() if k not in OF_A_RUN}
    return row["row"], row["estimator"], str(sorted(settings.items()))


def _named(kind: Kind) -> list[str]:
    row, estimator, _ = kind
    return [row, estimator.replace("none", "")]


def _summary(kinds: dict[Kind, list[Row]]) -> str:
    head = [
        "method", "prediction", "sets x splits", "rank, NLL", "rank, RMSE", "coverage", "weights",
        "file, bytes", "training", "a prediction",
    ]  # fmt: skip
    ranks = {name: mean_ranks(kinds, name) for name in ("nll", "rmse")}
    lines = [
        [
            *_named(kind), _count(group), *(f"{ranks[name][kind]:.1f}" for name in ranks),
            f"{_mean(group, 'coverage_90'):.3f}", f"{_mean(group, 'active_weights'):,.0f}",
            f"{_mean(group, 'file_bytes'):,.0f}", f"{_mean(group, 'train_seconds'):.0f} s",
            f"{_mean(group, 'predict_seconds'):.3f} s",
        ]
        for kind, group in kinds.items()
    ]  # fmt: skip
    return table(head, lines)


def _count(group: Sequence[Row]) -> str:
    splits = [len(found) for found in grouped(group, lambda row: row["set"]).values()]
    each = f"{min(splits)}" if min(splits) == max(splits) else f"{min(splits)} to {max(splits)}"
    return f"{len(splits)} x {each}"


def mean_ranks(kinds: dict[Kind, list[Row]], name: str) -> dict[Kind, float]:
    """By kind: its place among all that have a set, by that set's mean, averaged over sets."""
    means = {
        (kind, where): _mean(found, name)
        for kind, group in kinds.items()
        for where, found in grouped(group, lambda row: row["set"]).items()
    }
    places: dict[Kind, list[float]] = {kind: [] for kind in kinds}
    for (kind, where), mean in means.items():
        others = [value for (_, there), value in means.items() if there == where]
        ties = sum(value == mean for value in others)
        places[kind].append(sum(value < mean for value in others) + (1 + ties) / 2)
    return {kind: sum(found) / len(found) for kind, found in places.items()}


def _figure(kinds: dict[Kind, list[Row]], name: str) -> str:
    """A line for each method, a column for each set."""
    sets = sorted({row["set"] for group in kinds.values() for row in group})
    digits = {
        where: digits_of([r[name] for g in kinds.values() for r in g if r["set"] == where])
        for where in sets
    }
    lines = []
    for kind, group in kinds.items():
        found = {where: [row[name] for row in group if row["set"] == where] for where in sets}
        shown = [spread(found[where], digits[where]) if found[where] else "" for where in sets]
        lines.append([*_named(kind), *shown])
    return table(["method", "prediction", *sets], lines)


def _mean(group: Sequence[Row], name: str) -> float:
    return float(sum(row[name] for row in group) / len(group))
