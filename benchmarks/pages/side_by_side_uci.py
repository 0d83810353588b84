"""Every method beside every other on the UCI regressions."""

from collections.abc import Sequence

from pages.common import Row, grouped, hardware, mean_of, measured, origins, spread, table
from pages.uci import digits_of

OF_A_RUN = ("sets", "splits", "from_split", "families", "validation")
OF_A_FAMILY = {"chain": ("chain", "chain_beta", "chain_bytes")}
Kind = tuple[str, str, str]


def side_by_side_uci() -> str:
    """What all cost and how they rank; then both figures, set by set."""
    test, validation = measured("side_by_side_uci")
    parts = ["## Every method on the UCI regressions\n", _about([*test, *validation])]
    parts += _parts(test, "") if test else []
    if validation:
        parts += ["Settings were looked for on held-out training rows:\n"]
        parts += _parts(validation, ", held-out rows")
    return "\n".join(parts)


def _about(found: list[Row]) -> str:
    settings = found[0]["settings"]
    widths = " and ".join(map(str, settings["hidden"]))
    return (
        f"A network of hidden layers of {widths} units for each set, on Gal's splits, trained for "
        f"{settings['steps']:,} steps; the ensemble that often for each member. What is pruned was "
        f"trained on for {settings['tune_steps']:,} steps each time, what is shared for "
        f"{settings['share_steps']:,}, and its time is that of the whole way. Measured after "
        "loading the file back. No method was tuned here: rates, beta and prior are those of the "
        "comparison of dense and sparse networks below, which were found for larger networks; only "
        "the chain's densities and bytes were set anew, to what so small a network can have, "
        "before these lines. "
        "Ranks are those of a set's mean over splits among all lines, 1 the best, averaged over "
        "sets; coverage (of the 90% interval), weights, bytes and times are means over all sets. "
        "A subspace keeps at least one weight of each unit: the name is the density that was asked "
        "for. A table is shared only where a file of the wanted size exists. A prediction is that "
        f"of 1,024 rows x {settings['samples']} samples on one core; times were taken with both "
        "cores busy. RMSE and NLL are in the target's own units, mean and standard error over "
        "splits. Deterministic networks have a noise that was fitted in training. Files of commits "
        "before 06d5e31 are of version 2 of the format, and a little larger.\n"
    )


def _parts(found: list[Row], where: str) -> list[str]:
    """Of a run that was repeated, the last counts."""
    last = list({(_kind(row), row["set"], row["split"]): row for row in found}.values())
    kinds = grouped(last, _kind)
    return [
        f"{origins(last)}\n{_summary(kinds)}",
        f"### NLL{where}\n\n" + _figure(kinds, "nll"),
        f"### RMSE{where}\n\n" + _figure(kinds, "rmse"),
    ]


def _kind(row: Row) -> Kind:
    """What one line is about."""
    return row["row"], row["estimator"], str(sorted(_settings(row).items()))


def _settings(row: Row) -> Row:
    """Those that make a difference to this row."""
    others = [
        name for family, own in OF_A_FAMILY.items() if family != row["family"] for name in own
    ]
    return {k: v for k, v in row["settings"].items() if k not in (*OF_A_RUN, *others)}


def _named(kind: Kind, kinds: dict[Kind, list[Row]]) -> list[str]:
    """Method, prediction and, where several lines have these, the settings that differ."""
    row, estimator, _ = kind
    mine = _settings(kinds[kind][0])
    alike = [_settings(group[0]) for k, group in kinds.items() if k[:2] == kind[:2]]
    told = [f"{k}={v}" for k, v in mine.items() if any(other.get(k) != v for other in alike)]
    return [" ".join([row, *told]), estimator.replace("none", "")]


def _summary(kinds: dict[Kind, list[Row]]) -> str:
    head = [
        "method", "prediction", "sets x splits", f"rank of {len(kinds)}, NLL",
        f"rank of {len(kinds)}, RMSE", "coverage", "weights", "file, bytes", "training",
        "a prediction", "machine",
    ]  # fmt: skip
    ranks = [mean_ranks(kinds, name) for name in ("nll", "rmse")]
    lines = [
        [
            *_named(kind, kinds), _count(group), *(f"{rank[kind]:.1f}" for rank in ranks),
            f"{mean_of(group, 'coverage_90'):.3f}", f"{mean_of(group, 'active_weights'):,.0f}",
            f"{mean_of(group, 'file_bytes'):,.0f}", f"{mean_of(group, 'train_seconds'):.0f} s",
            f"{mean_of(group, 'predict_seconds'):.3f} s", hardware(group),
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
        (kind, where): mean_of(found, name)
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
        lines.append([*_named(kind, kinds), *shown])
    return table(["method", "prediction", *sets], lines)
