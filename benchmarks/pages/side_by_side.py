"""Every method beside every other, network by network."""

from pages.common import (
    Row,
    average,
    grouped,
    hardware,
    mean_scores,
    measured,
    origins,
    table,
)

HEAD = [
    "method", "prediction", "seeds", "accuracy", "NLL", "ECE", "Brier", "OOD AUROC, entropy",
    "OOD AUROC, epistemic", "weights", "file, bytes", "training", "1,024 images x 30 samples",
]  # fmt: skip


def side_by_side() -> str:
    """One table for each network and data set."""
    test, validation = measured("side_by_side")
    tables = [_part(*key, group) for key, group in grouped(test, _where).items()]
    chosen = [_part(*key, group) for key, group in grouped(validation, _where).items()]
    parts = [
        "## Every method on the same work\n",
        "The same network, data and epochs for each; measured after loading the file back, last "
        "epoch, 30 samples, compilation included in the time of training. What is pruned or shared "
        "was trained on afterwards, and its time is that of the whole way. Out of distribution is "
        "SVHN for CIFAR-10, Fashion-MNIST for MNIST and the reverse.\n",
        *tables,
    ]
    if chosen:
        parts += ["Settings were chosen on held-out training images:\n", *chosen]
    return "\n".join(parts)


def _where(row: Row) -> tuple[str, str]:
    return row["model"], row["data"]


def _part(model: str, data: str, found: list[Row]) -> str:
    groups = grouped(found, lambda row: (row["row"], row["estimator"], _settings(row)))
    epochs = sorted({row["settings"]["epochs"] for row in found})
    return (
        f"### {model}, {data}, {' and '.join(map(str, epochs))} epochs\n\n"
        f"On {hardware(found)}.\n\n{origins(found)}\n"
        + table(HEAD, [_line(group) for group in groups.values()])
    )


def _settings(row: Row) -> str:
    """What tells runs of one name apart; seeds and families do not."""
    known = {k: v for k, v in row["settings"].items() if k not in ("seeds", "families")}
    return str(sorted(known.items()))


def _line(group: list[Row]) -> list[str]:
    first = group[0]
    return [
        first["row"],
        first["estimator"].replace("none", ""),
        str(len({row["seed"] for row in group})),
        *mean_scores(group),
        average(group, "brier", 4),
        average(group, "auroc_entropy", 3),
        average(group, "auroc_epistemic", 3),
        f"{first['active_weights']:,}",
        f"{sum(row['file_bytes'] for row in group) / len(group):,.0f}",
        f"{average(group, 'train_seconds', 0)} s",
        f"{average(group, 'predict_seconds', 3)} s",
    ]
