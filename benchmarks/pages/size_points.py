"""The files of trained ResNet-18s on CIFAR-10, gathered from all results that have them."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from pages.common import Row, grouped, is_there, rows
from pages.published import WEIGHTS

TABLES = ("sizes", "sharing", "subspace", "pruning")
ORIGINS = ("mean-field", "subspace")
WEIGHTS_OF = {"resnet18": WEIGHTS, "resnet20": 268_336}  # where rows do not say
SHARING = {"sharing": "mixture", "rate-distortion": "shared"}

# Settings that differ between runs of one kind, or that say nothing about the file; and those that
# matter only to what is pruned or shared.
OF_A_RUN = {"seeds", "compress", "target_bytes", "table", "data", "no_ood", "predictives", "vary"}
OF_PRUNING = {"prune", "tune_epochs"}
OF_SHARING = {"components", "share_lr", "share_std_lr", "reassign_every"}
# The mark is what is shared, before these count.
AFTER_SHARING = {"epochs", "beta", "share_lr", "share_std_lr", "no_compile"}
OF_TRAINING_ON = {"epochs"}  # the pruned have epochs of their own

# What tells two kinds of one name apart, and how the picture writes it.
TELLING = {
    "beta": "β {:g}", "lr": "rate {:g}", "weight_decay": "decay {:g}", "epochs": "epochs {:g}",
    "tune_epochs": "tuned {:g}", "estimator": "{}",
}  # fmt: skip


@dataclass(frozen=True)
class Files:
    """Files of one kind, one of each seed; accuracies in percent."""

    name: str
    origin: str
    step: str
    is_pruned: bool
    is_coded: bool
    all_bytes: tuple[float, ...]
    accuracies: tuple[float, ...]
    limits: tuple[float, ...] = ()
    after: "Files | None" = None

    @property
    def size(self) -> float:
        """Mean bytes."""
        return _mean(self.all_bytes)

    @property
    def accuracy(self) -> float:
        """Mean accuracy."""
        return _mean(self.accuracies)

    @property
    def limit(self) -> float | None:
        """Mean bits-back limit in bytes, of files that have it."""
        return _mean(self.limits) if self.limits else None


def measured_files() -> list[Files]:
    """All kinds of files that were measured on the test set after loading back.

    Of an older format only those of a kind and density that today's has no file of; of several
    settings, those with the most seeds and the most accurate.
    """
    kept: dict[Any, Row] = {}
    for row in _candidates():
        if _is_shown(row):  # a run that was repeated counts once, as it was last
            kept[_kind(row), row.get("stage"), row.get("parent"), row["seed"]] = row
    groups = list(grouped(list(kept.values()), _kind).values())
    coded = {_name(group[0]) for group in groups if is_coded(group[0])}
    groups = [g for g in groups if is_coded(g[0]) or _name(g[0]) not in coded]
    groups = [
        g for same in grouped(groups, lambda g: _shown_as(g[0])).values() for g in _best(same)
    ]
    names = _distinct_names(groups)
    return [_with_stages(name, group) for name, group in zip(names, groups, strict=True)]


def _best(same: Sequence[list[Row]]) -> list[list[Row]]:
    """Kinds of one name: those with the most seeds, and the most accurate."""
    seeds = [len({row["seed"] for row in group}) for group in same]
    accuracies = [_mean([row["accuracy"] for row in group]) for group in same]
    return [
        group
        for group, count, accuracy in zip(same, seeds, accuracies, strict=True)
        if count == max(seeds) or accuracy == max(accuracies)
    ]


def deterministic_network() -> Files | None:
    """The network without uncertainty: of the longest training, at the decay measured last."""
    found = [
        row
        for row in (rows("baselines") if is_there("baselines") else ())
        if (row["row"], row["model"], row["data"]) == ("deterministic", "resnet18", "cifar10")
        and not row.get("settings", {}).get("cutout")
    ]
    if not found:
        return None
    longest = max(row["epochs"] for row in found)
    found = [row for row in found if row["epochs"] == longest]
    decay = found[-1]["method"]["weight_decay"]
    last = {row["seed"]: row for row in found if row["method"]["weight_decay"] == decay}
    return _files("network without uncertainty", list(last.values()))


def _candidates() -> Iterable[Row]:
    for name in TABLES:
        for row in rows(name) if is_there(name) else ():
            yield row | {"table": name}


def _is_shown(row: Row) -> bool:
    settings = row["settings"]
    network = row.get("model", settings.get("model"))
    data = row.get("data", settings.get("data", "cifar10"))
    is_on_test = row.get("measured_on", "test") == "test" and not settings.get("validation")
    is_whole = settings.get("limit") is None and row.get("change", "none") == "none"
    is_usual = not settings.get("cutout")
    is_wanted = (network, data) == ("resnet18", "cifar10") and "file_bytes" in row
    return is_wanted and is_on_test and is_whole and is_usual and _predicts_by_itself(row)


def _predicts_by_itself(row: Row) -> bool:
    """Whether it was measured with the estimator of its training, which a file keeps.

    What is made of another file always is; its settings do not name the estimator.
    """
    return bool("parent" in row or row["estimator"] == row["settings"]["estimator"])


def _kind(row: Row) -> tuple[Any, ...]:
    """What files that differ by their seed alone have in common."""
    idle = OF_A_RUN | (set() if _is_pruned(row) else OF_PRUNING)
    idle |= set() if _made(row) in SHARING else OF_SHARING
    idle |= OF_TRAINING_ON if _made(row) == "pruned" else set()
    idle |= AFTER_SHARING if _made(row) == "rate-distortion" else set()
    settings = {k: v for k, v in row["settings"].items() if k not in idle and _is_set(v)}
    told = json.dumps(settings, sort_keys=True)
    return row["table"], _name(row), row.get("target_bytes"), is_coded(row), told


def _is_set(value: Any) -> bool:
    """Older rows lack what newer ones have as None or False."""
    return value is not None and value is not False


def _name(row: Row) -> str:
    """How the file came about."""
    made = _made(row)
    share = row.get("active_weights", WEIGHTS) / WEIGHTS
    kept = f"{100 * share:.2g}%"
    if _is_pruned(row):
        steps = [_origin(row), f"pruned {kept}"]
    else:
        steps = [_origin(row) + (f" {kept}" if share < 0.99 else "")]
    return " → ".join([*steps, *([SHARING[made]] if made in SHARING else [])])


def _is_pruned(row: Row) -> bool:
    return _made(row) == "pruned" or "-pruned" in row.get("parent", "")


def _made(row: Row) -> str:
    return str(row.get("row", row.get("method"))).lower()


def _origin(row: Row) -> str:
    """The method that trained the first network of the chain."""
    first = row.get("parent", "mean-field" if _made(row) == "sharing" else _made(row))
    known = [name for name in ORIGINS if first.startswith(name)]
    return known[0] if known else re.sub(r"-\d+$", "", first)


def _distinct_names(groups: Sequence[Sequence[Row]]) -> list[str]:
    """Names of all kinds; where several have one name, with the setting that tells them apart."""
    firsts = [group[0] for group in groups]
    return [_name(row) + _telling(row, [o for o in firsts if _competes(row, o)]) for row in firsts]


def _competes(row: Row, other: Row) -> bool:
    return _shown_as(row) == _shown_as(other)


def _shown_as(row: Row) -> tuple[Any, ...]:
    return _name(row), is_coded(row), row.get("target_bytes")


def _telling(row: Row, competing: Sequence[Row]) -> str:
    """The fewest settings that no two of them share."""
    for count in range(1, 1 + len(TELLING) * (len(competing) > 1)):
        for names in combinations(TELLING, count):
            values = [tuple(_setting(other, name) for name in names) for other in competing]
            if len(set(values)) == len(values) and None not in sum(values, ()):
                return "".join(f", {TELLING[n].format(_setting(row, n))}" for n in names)
    return ""


def _setting(row: Row, name: str) -> Any:
    """Of its own training: a parent's epochs are those before sharing."""
    is_parent = name == "epochs" and _made(row) not in SHARING
    own = "pretrain_epochs" if is_parent and "pretrain_epochs" in row["settings"] else name
    return row["settings"].get(own)


def _with_stages(name: str, group: list[Row]) -> Files:
    """A kind as it is and, of a shared table, as it is after training on."""
    stages = grouped(group, lambda row: row.get("stage") == "shared")
    if True not in stages:
        return _files(name, group)
    after = _files(f"{name}, trained on", stages[False]) if False in stages else None
    return _files(name, stages[True], after)


def _files(name: str, group: Sequence[Row], after: Files | None = None) -> Files:
    first = group[0]
    return Files(
        name,
        _origin(first),
        _step(first),
        _is_pruned(first),
        is_coded(first),
        tuple(row["file_bytes"] for row in group),
        tuple(100 * row["accuracy"] for row in group),
        tuple(row["bits_back_bytes"] for row in group if "bits_back_bytes" in row),
        after,
    )


def _step(row: Row) -> str:
    """What was done last: the shape of its marker."""
    made = _made(row)
    return "shared" if made in SHARING else made if made == "pruned" else "trained"


def mean_bytes(group: Sequence[Row]) -> str:
    """Mean size of files: of those that are coded, if there are such, and of how many."""
    coded = [row for row in group if is_coded(row)]
    mark = f" (of {len(coded)})" if len(coded) < len(group) else ""
    mark = mark if coded else " (plain)"
    return f"{_mean([row['file_bytes'] for row in coded or group]):,.0f}{mark}"


def is_coded(row: Row) -> bool:
    """Whether the file is smaller than its plain numbers: older ones hold these as they are."""
    numbers = 1 if _made(row) == "deterministic" else 2
    weights = row.get("active_weights") or WEIGHTS_OF[row.get("model", "resnet18")]
    plain = row.get("index_bytes", 4 * numbers * weights)
    return bool(row["file_bytes"] < plain)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
