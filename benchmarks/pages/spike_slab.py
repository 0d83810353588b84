"""Spike-and-slab."""

from pages.common import Row, grouped, origins, rows, spread, table


def selection() -> str:
    """Simulations whose support is known."""
    found = rows("selection")
    groups = grouped(found, lambda row: row["problem"])
    head = [
        "problem", "features", "rows", "seeds", "true-positive rate", "false-positive rate",
        "RMSE", "RMSE of the oracle", "ratio",
    ]  # fmt: skip
    return (
        "## Which features matter\n\n"
        "Spike-and-slab with switches in front of the inputs, on simulations; what is on at the "
        "end counts as found. RMSE on the test split in standard deviations of the target, after "
        "pruning and training on; the oracle is the same network on the true support, trained as "
        "long. Meant: 1, below .02, and a ratio of at most 1.1.\n\n"
        f"{origins(found)}\n"
        + table(head, [_problem(name, group) for name, group in groups.items()])
    )


def _problem(name: str, group: list[Row]) -> list[str]:
    """One kind of simulation, over its seeds."""
    relevant = sum(r["relevant"] for r in group)
    others = sum(r["features"] - r["relevant"] for r in group)
    ratios = [r["rmse"] / r["oracle_rmse"] for r in group]
    return [
        name,
        f"{group[0]['features']}",
        f"{group[0]['options']['rows']:,}",
        str(len(group)),
        f"{sum(r['found'] for r in group) / relevant:.3f}",
        f"{sum(r['false'] for r in group) / others:.4f}",
        spread([r["rmse"] for r in group], 3),
        spread([r["oracle_rmse"] for r in group], 3),
        f"{sum(ratios) / len(ratios):.3f}, at most {max(ratios):.3f}",
    ]


def exact_inclusion() -> str:
    """Inclusion probabilities beside those of the exact sum."""
    found = rows("exact_inclusion")
    groups = grouped(found, lambda r: (r["training"], r["granularity"], r["correlation"]))
    lines = [
        [
            *key[:2],
            f"{key[2]:g}",
            str(len(group)),
            spread([r["largest_error"] for r in group], 3),
            f"{max(r['largest_error'] for r in group):.3f}",
            f"{sum(r['same_median_model'] for r in group)} of {len(group)}",
        ]
        for key, group in groups.items()
    ]
    head = ["training", "switches", "correlation", "seeds", "largest error", "worst", "same model"]
    return (
        "## Inclusion probabilities against the truth\n\n"
        "A regression with 100 examples and 6 inputs of equal correlation, where all 64 models can "
        "be summed up. `long`: 1,500 steps; `short`: 400 with the defaults. Same model: those "
        "above 1/2 are the same ones.\n\n"
        f"{origins(found)}\n" + table(head, lines)
    )
