"""Corrupted images."""

from plans import FAMILIES

from pages.common import (
    Row,
    grouped,
    hardware,
    is_there,
    made_again,
    mean_of,
    origins,
    rows,
    scores,
    table,
)
from pages.side_by_side import is_again

KEY = ("network", "data", "samples", "file", "corruption", "severity")
METHODS = [name for family in FAMILIES.values() for name in family.files]
COMPARED = "side_by_side"
SEED = "-0"  # at the end of a file's name


def corruptions() -> str:
    """Accuracy, likelihood and calibration by severity, and the accuracy of each corruption."""
    last = {tuple(row[name] for name in KEY): row for row in rows("corruptions")}
    found = sorted(last.values(), key=_place)  # a file may have been made again
    parts = [_part(*key, group) for key, group in grouped(found, _where).items()]
    files = {(row["file"], row["bytes"]) for row in found}
    again = [row for row in made_again(COMPARED) if (row["file"], row["file_bytes"]) in files]
    return (
        "## Corrupted images\n\n"
        "The fifteen corruptions of CIFAR-10-C at five severities, made by this library (what "
        "differs from the published files: [metrics.md](metrics.md); frost and so the means over "
        "all are not comparable with those of papers). Severity 0 is the test set as it is. Means "
        "over corruptions; one seed; what is not random takes one sample, an ensemble one of each "
        f"member; on {hardware(found)}. Networks are those of [every method]"
        "(#every-method-on-the-same-work) or, where it says so, those [at a glance](#at-a-glance), "
        f"which were trained for longer.{_made_again(again)}\n\n"
        f"{origins([*found, *again])}\n" + "\n".join(parts)
    )


def _made_again(again: list[Row]) -> str:
    """How many networks are not those that were measured first, and how far they are from them."""
    if not again:
        return ""
    first = rows(COMPARED) if is_there(COMPARED) else []
    away = {
        (abs(row["accuracy"] - other["accuracy"]), _plainly(row["file"]))
        for row in again
        for other in first
        if is_again(row, other)
    }
    most, farthest = max(away, default=(0.0, ""))
    files = len({row["file"] for row in again})
    return (
        f" Files of {files} had been lost and were made again by the same commands with the same "
        "seed, which gives another network: its bytes are those below, and its accuracy on the "
        f"test set is at most {100 * most:.2f} from what stands there ({farthest})."
    )


def _place(row: Row) -> tuple[bool, str, int]:
    """Those of every method first, as they stand there."""
    method = _named(row).removesuffix(SEED)
    is_known = method in METHODS and _is_beside(row)
    return not _is_beside(row), row["network"], METHODS.index(method) if is_known else len(METHODS)


def _where(row: Row) -> tuple[str, str, int, bool]:
    """What one pair of tables is about."""
    return row["network"], row["data"], row["samples"], _is_beside(row)


def _part(network: str, data: str, samples: int, is_beside: bool, found: list[Row]) -> str:
    by_file = grouped(found, _named)
    lines = [line for files in by_file.values() for line in _by_severity(files)]
    spoilt = [row for row in found if row["severity"]]
    by_kind = [
        [kind, *(_accuracy(group, name) for name in by_file)]
        for kind, group in grouped(spoilt, lambda row: row["corruption"]).items()
    ]
    head = ["file", "bytes", "prediction", "severity", "sets", "accuracy", "NLL", "ECE"]
    absent = [name for name in METHODS if name + SEED not in by_file] if is_beside else []
    origin = "" if is_beside else ", networks at a glance"
    return (
        f"### {network}, {data}, {samples} samples{origin}\n\n"
        + (f"Not measured: {', '.join(absent)}.\n\n" if absent else "")
        + f"{table(head, lines)}\nAccuracy by corruption, mean over severities:\n\n"
        + table(["corruption", *by_file], by_kind)
    )


def _by_severity(found: list[Row]) -> list[list[str]]:
    """Lines of one file, with one of all that is spoiled."""
    groups = sorted(grouped(found, lambda row: row["severity"]).items())
    spoilt = [row for row in found if row["severity"]]
    named = [(str(severity), group) for severity, group in groups] + [("all but 0", spoilt)]
    known = [_named(found[0]), f"{found[0]['bytes']:,}", found[0]["estimator"].replace("none", "")]
    return [
        [*known, severity, str(len(group)), *_means(group)] for severity, group in named if group
    ]


def _is_beside(row: Row) -> bool:
    """Whether it is of the networks with every method."""
    name: str = row["file"]
    return name.startswith(_prefix(row))


def _prefix(row: Row) -> str:
    """Of files that hold one of all methods."""
    return f"{row['network']}-{row['data']}-"


def _named(row: Row) -> str:
    """The file, without what stands over its table."""
    return _plainly(row["file"]).removeprefix(_prefix(row))


def _plainly(file: str) -> str:
    return file.removesuffix(".pocket")


def _means(group: list[Row]) -> list[str]:
    return scores({name: mean_of(group, name) for name in ("accuracy", "nll", "ece")})


def _accuracy(group: list[Row], name: str) -> str:
    found = [row for row in group if _named(row) == name]
    return f"{100 * mean_of(found, 'accuracy'):.2f}" if found else ""
