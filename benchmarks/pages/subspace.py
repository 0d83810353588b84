"""Sparse subspace VI."""

from collections.abc import Sequence
from typing import Any

from pages.common import (
    Row,
    grouped,
    is_there,
    known,
    last_runs,
    mean_scores,
    origins,
    rows,
    scores,
    spread,
    table,
    unusual,
)
from pages.size_points import mean_bytes


def subspace() -> str:
    """Long runs, then the short ones behind them."""
    found = [row for row in rows("subspace") if row["measured_on"] == "test"]
    by_settings = grouped(last_runs(found, _kind), lambda row: _kind(row)[:-2]).values()
    groups = grouped([row for alike in by_settings for row in alike], _kind)
    head = [
        "method", "density", "epochs", "beta", "weight decay", "other", "prediction", "commit",
        "seeds", "accuracy", "NLL", "ECE", "marginal CE", "SVHN AUROC, entropy",
        "SVHN AUROC, epistemic", "training", "file, bytes",
    ]  # fmt: skip
    return (
        "## Sparse subspace VI, ResNet-18, CIFAR-10\n\n"
        "Mean and standard error over seeds, last epoch, 30 samples, measured after loading the "
        "file back; batch 512, SGD at 0.2, trained with weight draws, ERK allocation, an exchange "
        f"every 100 steps; on one {found[0]['hardware']}, torch {found[0]['torch']}, compilation "
        "included in the time of the first seed. Meant at density 0.05: 94.3 / .20 / .01 and an "
        "AUROC of .93. The paper reports 93.74 / .218 / .006 there (its last figure is the "
        "marginal error, and its epoch the best on the test set). Meant at 0.1: 94.8. "
        "The accuracies fall short; what the dense network reaches without uncertainty is "
        "above. Lines that differ in nothing but the commit are the same repeated, with the "
        "code and the file format of that time (`plain`: one that held numbers as they are); "
        "otherwise how far they are apart is chance.\n\n"
        f"{origins(found)}\n"
        + table(head, [_line(key, group) for key, group in groups.items()])
        + "".join(known(subspace_search, subspace_sweep, subspace_ablation, subspace_robustness))
    )


def _kind(row: Row) -> tuple[Any, ...]:
    """What runs of one line have in common."""
    s = row["settings"]
    key = (row["method"], row["density"], s["epochs"], s.get("beta"), s["weight_decay"])
    return (*key, unusual(s), row["estimator"], row["commit"])


def _line(key: tuple[Any, ...], group: list[Row]) -> list[str]:
    """One line of the table, over seeds."""
    method, density, epochs, beta, decay, others, estimator, commit = key
    return [
        method,
        f"{density:g}",
        str(epochs),
        "" if beta is None else f"{beta:g}",
        f"{decay:g}",
        others,
        estimator,
        commit,
        str(len(group)),
        *mean_scores(group),
        spread([r["marginal_ce"] for r in group], 4),
        spread([r["auroc_entropy"] for r in group], 3),
        spread([r["auroc_epistemic"] for r in group], 3),
        spread([r["train_seconds"] for r in group], 0) + " s",
        mean_bytes(group),
    ]


def subspace_search() -> str:
    """How the settings were chosen."""
    found = rows("subspace_search")
    lines = [
        [
            f"{row['density']:g}",
            str(row["settings"]["epochs"]),
            f"{row['settings']['beta']:g}",
            f"{row['settings']['weight_decay']:g}",
            row["estimator"],
            *scores(row),
        ]
        for row in found
    ]
    head = ["density", "epochs", "beta", "weight decay", "prediction", "accuracy", "NLL", "ECE"]
    return (
        "\nSettings were chosen on 5,000 held-out training images, trained on the other 45,000, "
        f"one seed:\n\n{origins(found)}\n" + table(head, lines)
    )


def subspace_sweep() -> str:
    """Accuracy against density, beside RigL."""
    default = [
        row
        for row in _of("subspace_robustness")
        if row["density"] == 0.1 and not unusual(row["settings"])
    ]
    return _short_runs(
        "subspace_sweep",
        "The same with RigL, its deterministic twin, beside it. Short runs of one seed: they "
        "compare, and say nothing of what long training reaches.",
        default,
    )


def subspace_ablation() -> str:
    """One choice changed at a time."""
    default = [
        row
        for row in _of("subspace_sweep")
        if row["method"] == "Subspace" and row["density"] == 0.05
    ]
    return _short_runs(
        "subspace_ablation",
        "What each choice is worth, against the defaults (first line, `snr_magnitude`, "
        "`one_step`, `mean`). `snr` ranks weights exactly as `snr_magnitude` does, so the "
        "distance of their rows is what chance alone does on a GPU. `snr_exp` has the worst "
        "NLL, then `eps`, which is further from the default than that; nothing else can be told "
        "apart.",
        default,
    )


def subspace_robustness() -> str:
    """Several initial stds."""
    return _short_runs(
        "subspace_robustness",
        "Robustness to the initial std, where density 1 is mean-field VI.",
    )


def _of(name: str) -> list[Row]:
    """The rows of a file that may not be there."""
    return rows(name) if is_there(name) else []


def _short_runs(name: str, intro: str, first: Sequence[Row] = ()) -> str:
    """A table of runs of one seed; `first` come from another file."""
    found = rows(name)
    lines = [
        [
            row["method"],
            f"{row['density']:g}",
            unusual(row["settings"]),
            *scores(row),
        ]
        for row in [*first, *found]
    ]
    head = ["method", "density", "changed", "accuracy", "NLL", "ECE"]
    return f"\n{intro}\n\n{origins([*first, *found])}\n" + table(head, lines)
