"""Corrupted images."""

from typing import Any

from plans import FAMILIES

from pages.common import (
    Row,
    grouped,
    hardware,
    made_again,
    mean_of,
    origins,
    rows,
    scores,
    table,
)
from pages.side_by_side import compared_lines, is_again, resaved

KEY = ("network", "data", "samples", "file", "sha256", "bytes", "corruption", "severity")
METHODS = [name for family in FAMILIES.values() for name in family.files]
COMPARED = "side_by_side"
SEED = "-0"  # at the end of a file's name


def corruptions() -> str:
    """Accuracy, likelihood and calibration by severity, and the accuracy of each corruption."""
    compared, every = compared_lines(), rows("corruptions")
    found = sorted(_one_network_each(every, compared), key=_place)
    parts = [_part(*key, group) for key, group in grouped(found, _where).items()]
    files = {(row["file"], row["bytes"]) for row in found}
    again = [row for row in made_again(COMPARED) if (row["file"], row["file_bytes"]) in files]
    return (
        "## Corrupted images\n\n"
        "The fifteen corruptions of CIFAR-10-C at five severities, made by this library (what "
        "differs from the published files: [metrics.md](metrics.md); frost and so the means over "
        "all are not comparable with those of papers). Severity 0 is the test set as it is. Means "
        "over corruptions; one seed; what is not random takes one sample, an ensemble one of each "
        f"member; on {hardware(found)}. Bytes are those in version 3 of the format, if the file "
        "was saved in it again, and else as it was written. Networks are those of [every method]"
        "(#every-method-on-the-same-work) or, where it says so, those [at a glance](#at-a-glance), "
        f"which were trained for longer.{_made_again(again, compared)}"
        f"{_measured_twice(every)}\n\n"
        f"{origins([*found, *again])}\n" + "\n".join(parts)
    )


def _one_network_each(found: list[Row], compared: list[Row]) -> list[Row]:
    """Of files of one name the one with the most rows: that of every method, or else the first."""
    known = {(row.get("file"), row["file_bytes"]) for row in compared}

    def worth(group: list[Row]) -> tuple[int, bool]:
        return len(group), (group[0]["file"], group[0]["bytes"]) in known

    return [row for networks in _networks(found) for row in max(networks, key=worth)]


def _networks(found: list[Row]) -> list[list[list[Row]]]:
    """By name of a file: the rows of each network that had it, every case once."""
    once = {tuple(row.get(name) for name in KEY): row for row in found}
    named = grouped(list(once.values()), lambda row: (*_where(row), row["file"]))
    return [list(grouped(group, _content).values()) for group in named.values()]


def _content(row: Row) -> tuple[Any, ...]:
    return row.get("sha256"), row["bytes"]


def _measured_twice(found: list[Row]) -> str:
    """How far the means over all corruptions are apart, of networks trained alike."""
    alike = [
        [_spoilt_accuracy(one) for one in networks if len(one) == max(map(len, networks))]
        for networks in _networks(found)
    ]
    apart = [max(means) - min(means) for means in alike if len(means) > 1]
    if not apart:
        return ""
    return (
        f" Where two networks of the same settings and seed were measured ({len(apart)}), the mean "
        f"over all corruptions differs by up to {100 * max(apart):.2f}: so much of a difference "
        "between two lines may be chance."
    )


def _spoilt_accuracy(group: list[Row]) -> float:
    return mean_of([row for row in group if row["severity"]], "accuracy")


def _made_again(again: list[Row], compared: list[Row]) -> str:
    """How many networks are not those that were measured first, and how far they are from them."""
    away = {
        (abs(row["accuracy"] - first["accuracy"]), _plainly(row["file"]))
        for row in again
        for first in compared
        if is_again(row, first)
    }
    if not away:
        return ""
    most, farthest = max(away)
    return (
        f" The files of {len({name for _, name in away})} of these networks had been lost. They "
        "were trained again with the same settings and seed, which does not give the same network: "
        f"on images that are not spoiled, accuracy differs by at most {100 * most:.2f} percentage "
        f"points ({farthest}) from the run of that seed among every method."
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
    size = _bytes_now(found[0])
    known = [_named(found[0]), f"{size:,}", found[0]["estimator"].replace("none", "")]
    return [
        [*known, severity, str(len(group)), *_means(group)] for severity, group in named if group
    ]


def _bytes_now(row: Row) -> int:
    """Of the same model in today's format, if it was saved so."""
    saved = resaved([row | {"file_bytes": row["bytes"]}])
    return int(saved[0]["bytes_now"] if saved else row["bytes"])


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
