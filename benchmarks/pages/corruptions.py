"""Corrupted images."""

from pages.common import Row, grouped, hardware, mean_of, origins, rows, scores, table

KEY = ("network", "data", "samples", "file", "corruption", "severity")


def corruptions() -> str:
    """Accuracy, likelihood and calibration by severity, and the accuracy of each corruption."""
    last = {tuple(row[name] for name in KEY): row for row in rows("corruptions")}
    found = list(last.values())  # a file may have been made again
    parts = [_part(*key, group) for key, group in grouped(found, _where).items()]
    return (
        "## Corrupted images\n\n"
        "The fifteen corruptions of CIFAR-10-C at five severities, made by this library (what "
        "differs from the published files: docs/metrics.md; frost and so the means over all are "
        "not comparable with those of papers). Severity 0 is the test set as it is. Means over "
        f"corruptions; one seed; on {hardware(found)}. Networks are those of [every method]"
        "(#every-method-on-the-same-work) or, where it says so, those [at a glance](#at-a-glance), "
        "which were trained for longer.\n\n"
        f"{origins(found)}\n" + "\n".join(parts)
    )


def _where(row: Row) -> tuple[str, str, int, bool]:
    """What one pair of tables is about."""
    is_beside = row["file"].startswith(_prefix(row))
    return row["network"], row["data"], row["samples"], is_beside


def _prefix(row: Row) -> str:
    """Of files that hold one of all methods."""
    return f"{row['network']}-{row['data']}-"


def _part(network: str, data: str, samples: int, is_beside: bool, found: list[Row]) -> str:
    by_severity = [
        [_named(group[0]), f"{group[0]['bytes']:,}", str(severity), str(len(group)), *_means(group)]
        for files in grouped(found, _named).values()
        for severity, group in sorted(grouped(files, lambda row: row["severity"]).items())
    ]
    spoilt = [row for row in found if row["severity"]]
    names = list(grouped(found, _named))
    by_kind = [
        [kind, *(_accuracy(group, name) for name in names)]
        for kind, group in grouped(spoilt, lambda row: row["corruption"]).items()
    ]
    head = ["file", "bytes", "severity", "corruptions", "accuracy", "NLL", "ECE"]
    origin = "" if is_beside else ", networks at a glance"
    return (
        f"### {network}, {data}, {samples} samples{origin}\n\n{_best(spoilt)}"
        f"{table(head, by_severity)}"
        "\nAccuracy by corruption, mean over severities:\n\n"
        + table(["corruption", *names], by_kind)
    )


def _best(spoilt: list[Row]) -> str:
    """Which files are the best over all that is spoiled, if there are several."""
    by_file = grouped(spoilt, _named)
    if len(by_file) < 2 or len({len(group) for group in by_file.values()}) > 1:
        return ""

    def first(name: str, sign: int) -> tuple[str, float]:
        means = {file: mean_of(group, name) for file, group in by_file.items()}
        best = min(means, key=lambda file: sign * means[file])
        return best, means[best]

    accurate, accuracy = first("accuracy", -1)
    likely, nll = first("nll", 1)
    sure, ece = first("ece", 1)
    return (
        f"Over all spoiled images `{accurate}` has the best accuracy ({100 * accuracy:.2f}), "
        f"`{likely}` the best NLL ({nll:.3f}), `{sure}` the best ECE ({ece:.4f}).\n\n"
    )


def _named(row: Row) -> str:
    """The file, without what stands over its table."""
    name: str = row["file"]
    return name.removeprefix(_prefix(row)).removesuffix(".pocket")


def _means(group: list[Row]) -> list[str]:
    return scores({name: mean_of(group, name) for name in ("accuracy", "nll", "ece")})


def _accuracy(group: list[Row], name: str) -> str:
    found = [row for row in group if _named(row) == name]
    return f"{100 * mean_of(found, 'accuracy'):.2f}" if found else ""
