"""Weight sharing."""

from typing import Any

from pages.common import Row, average, grouped, known, mean_scores, origins, rows, scores, table

COUNTS = ("outliers", "blends", "components", "parameters", "coded_bytes")


def sharing() -> str:
    """Parents and what sharing makes of them."""
    found = rows("sharing")
    groups = grouped(found, _kind)
    head = [
        "network", "row", "changed", "stage", "prediction", "epochs", "beta", "runs", "accuracy",
        "NLL", "ECE", "SVHN AUROC, entropy", "outliers", "blends", "components",
        "paper's parameters", "coded bytes", "file, bytes",
    ]  # fmt: skip
    return (
        "## Weight sharing\n\n"
        "Mean and standard error over runs (seeds 0 to 2; a limit on time cut some runs off, and "
        "all that they had measured by then counts), last epoch, 30 samples, measured after "
        "loading the file back. Meant for ResNet-20 on CIFAR-10: 91.5 / .27 / .02 and an AUROC of "
        ".90; the given weights alone reach 91.73, the paper 91.04 / .303 / .037. `mean-field` is "
        "the parent of the rows below it; `shared` is before, `trained "
        "on` after training the table. Epochs are the parent's + those of the table. Counts are "
        "of the first seed; the paper's parameters leave labels out, coded bytes are those of an "
        f"ideal code.\n\n{origins(found)}\n"
        + table(head, [_line(key, group) for key, group in groups.items()])
        + "".join(known(sharing_search))
    )


def _kind(row: Row) -> tuple[Any, ...]:
    """What runs of one line have in common."""
    what = f"{row['model']}, {row.get('data', 'cifar10')}"
    key = (what, row["row"], row.get("change", ""), row.get("stage", ""), row["estimator"])
    return (*key, *(row["settings"][name] for name in ("pretrain_epochs", "epochs", "beta")))


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
        f"{first['file_bytes']:,}",
    ]


def sharing_search() -> str:
    """How their settings were chosen."""
    found = [row for row in rows("sharing_search") if row.get("stage") != "shared"]
    lines = [
        [
            row["row"],
            row.get("change", ""),
            f"{row['settings']['pretrain_epochs']} + {row['settings']['epochs']}",
            *(f"{row['settings'][name]:g}" for name in ("lr", "std_lr", "beta")),
            *scores(row),
        ]
        for row in found
    ]
    head = ["row", "changed", "epochs", "lr", "std_lr", "beta", "accuracy", "NLL", "ECE"]
    return (
        "\nThe given weights have seen all training images, so settings were chosen with plain "
        "networks trained on 45,000 of them and measured on the other 5,000, one seed:\n\n"
        f"{origins(found)}\n" + table(head, lines)
    )
