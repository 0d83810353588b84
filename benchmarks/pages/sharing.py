"""Weight sharing: its results, and how settings were chosen."""

from typing import Any

from pages.common import (
    Row,
    average,
    grouped,
    hardware,
    known,
    last_runs,
    mean_scores,
    origins,
    rows,
    scores,
    table,
)
from pages.sharing_ablation import sharing_ablation
from pages.size_points import mean_bytes

COUNTS = ("outliers", "blends", "components", "parameters")


def sharing() -> str:
    """Parents and what sharing makes of them."""
    found = last_runs(rows("sharing"), _kind)
    groups = grouped(found, _kind)
    head = [
        "network", "row", "changed", "stage", "prediction", "epochs", "beta", "seeds", "accuracy",
        "NLL", "ECE", "SVHN AUROC, entropy", "outliers", "blends", "components",
        "paper's parameters", "file, bytes",
    ]  # fmt: skip
    return (
        "## Weight sharing\n\n"
        "Mean and standard error over seeds (of a run that was repeated, the last counts), last "
        f"epoch, 30 samples, measured after loading the file back, on {hardware(found)}. Meant for "
        "ResNet-20 on CIFAR-10: 91.5 / .27 / .02 (the paper: 91.04 / .303 / .037); for ResNet-18: "
        "94 / .20 / .015 (the paper: 91.72 / .305 / .019); for ResNet-20 on MNIST: 99.5 / .015 / "
        ".005 (the paper: 99.52 / .013 / .001, whose ECE is not reached, and training the table "
        "makes it worse); against SVHN: an AUROC of .90. The means meet what was meant after "
        "training the table, ResNet-18 its ECE by less than the standard error; before, it misses "
        "that. `mean-field` is the parent of the rows below it, trained from given weights "
        "(ResNet-20 on CIFAR-10) or from the start; `shared` is before, `trained on` after "
        "training the table. Epochs are the parent's + those of the table. Counts are of the first "
        "seed; the paper's parameters leave labels out. `(plain)` is a file of an older format; "
        "where some seeds have a smaller one, only those count. A mixture saves parameters; bytes "
        "it saves in some networks, and not in others: coded, ResNet-18's takes more than its "
        "parent. Sharing by rate and distortion, which is made for bytes, is above with every "
        f"method and at a glance.\n\n{origins(found)}\n"
        + table(head, [_line(key, group) for key, group in groups.items()])
        + "".join(known(sharing_search, sharing_ablation))
    )


def _kind(row: Row) -> tuple[Any, ...]:
    """What runs of one line have in common."""
    key = (*_described(row), row["estimator"])
    return (*key, *(row["settings"][name] for name in ("pretrain_epochs", "epochs", "beta")))


def _described(row: Row) -> list[str]:
    """Network and data, row, what was changed, and when it was measured."""
    what = f"{row['model']}, {row.get('data', 'cifar10')}"
    return [what, row["row"], row.get("change", ""), row.get("stage", "")]


def _line(key: tuple[Any, ...], group: list[Row]) -> list[str]:
    """One line of the table; counts are those of the first run."""
    first = group[0]
    return [
        *key[:5],
        f"{key[5]} + {key[6]}",
        f"{key[7]:g}",
        str(len(group)),
        *mean_scores(group),
        average(group, "auroc_entropy", 3),
        *(f"{first[name]:,}" if name in first else "" for name in COUNTS),
        mean_bytes(group),
    ]


def sharing_search() -> str:
    """How their settings were chosen."""
    everything = rows("sharing_search")
    found = [row for row in everything if not _is_trained_later(row, everything)]
    lines = [
        [
            *_described(row),
            " + ".join(
                str(row["settings"][f"{part}epochs"]) for part in ("plain_", "pretrain_", "")
            ),
            *(f"{row['settings'][name]:g}" for name in ("lr", "std_lr", "beta", "weight_decay")),
            *scores(row),
        ]
        for row in found
    ]
    head = [
        "network", "row", "changed", "stage", "epochs", "lr", "std_lr", "beta", "weight decay",
        "accuracy", "NLL", "ECE",
    ]  # fmt: skip
    return (
        "\nSettings were chosen by training on all but 5,000 training images and measuring on "
        "those, one seed. The given weights have seen all of them, so that plain networks trained "
        "here stand in for them; epochs are those of the plain network + of mean-field VI + of the "
        "table. The betas above of ResNet-20, 0.025 and, on MNIST, 0.007, were not tried "
        "themselves: they are near the best that were. Nor were 150 epochs of ResNet-18.\n\n"
        f"{origins(found)}\n" + table(head, lines)
    )


def _is_trained_later(row: Row, everything: list[Row]) -> bool:
    """Whether the same run was measured again after training the table."""
    return row.get("stage") == "shared" and any(
        other.get("stage") == "trained on"
        and all(other[name] == row[name] for name in ("settings", "seed", "change", "estimator"))
        for other in everything
    )
