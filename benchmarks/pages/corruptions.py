"""Corrupted images."""

from pages.common import Row, grouped, origins, rows, scores, table


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
