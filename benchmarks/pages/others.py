"""Corrupted images, and other libraries on the same work."""

from pages.common import Row, grouped, hardware, origins, rows, scores, table


def corruptions() -> str:
    """Accuracy, likelihood and calibration by severity, and the accuracy of each corruption."""
    found = rows("corruptions")
    names = list(dict.fromkeys(row["file"] for row in found))
    by_severity = [
        [row["file"], str(severity), str(len(group)), *scores(_mean(group))]
        for row, severity, group in _severities(found)
    ]
    kinds = list(dict.fromkeys(row["corruption"] for row in found if row["severity"]))
    by_kind = [[kind, *(_accuracy(found, name, kind) for name in names)] for kind in kinds]
    return (
        "## Corrupted images\n\n"
        "The fifteen corruptions of CIFAR-10-C at five severities, made by this library (what "
        "differs from the published files: docs/metrics.md; frost is not comparable). Severity 0 "
        f"is the test set as it is. Means over corruptions.\n\n{origins(found)}\n"
        + table(["file", "severity", "corruptions", "accuracy", "NLL", "ECE"], by_severity)
        + "\nAccuracy by corruption, mean over severities:\n\n"
        + table(["corruption", *names], by_kind)
    )


def _severities(found: list[Row]) -> list[tuple[Row, int, list[Row]]]:
    groups = grouped(found, lambda row: (row["file"], row["severity"]))
    return [(group[0], severity, group) for (_, severity), group in sorted(groups.items())]


def _mean(group: list[Row]) -> Row:
    return {
        name: sum(row[name] for row in group) / len(group) for name in ("accuracy", "nll", "ece")
    }


def _accuracy(found: list[Row], file: str, kind: str) -> str:
    group = [row for row in found if (row["file"], row["corruption"]) == (file, kind)]
    return f"{100 * _mean(group)['accuracy']:.2f}" if group else ""


def peers() -> str:
    """One line per library."""
    found = rows("peers")
    head = [
        "row", "network", "epochs", "accuracy", "NLL", "ECE", "SVHN AUROC", "stored, bytes",
        "training step", "1,024 images x 30 samples",
    ]  # fmt: skip
    return (
        "## Other libraries on the same work\n\n"
        "The same network, data, epochs, prior and weight of the KL; each library draws, stores "
        "and predicts in its own way (laplace-torch needs no samples). Only the row "
        "`pocketbayes, compiled` is. Stored is what must be kept to predict: ours the file, "
        f"theirs a state dict. On {hardware(found)}, one seed.\n\n{origins(found)}\n"
        + table(head, [_peer(row) for row in found])
    )


def _peer(row: Row) -> list[str]:
    area = row.get("auroc_entropy")
    return [
        row["row"], row["model"], str(row["settings"]["epochs"]), *scores(row),
        "" if area is None else f"{area:.3f}", f"{row['stored_bytes']:,}",
        f"{1000 * row['step_seconds']:.1f} ms", f"{row['predict_seconds']:.3f} s",
    ]  # fmt: skip
