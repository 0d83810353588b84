"""The rows that matter most, gathered from all tables, beside what the papers report."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pages.common import Row, average, is_there, mean_scores, rows, table
from pages.published import LI, LIN
from pages.size_points import is_coded
from pocketbayes.report.words import bytes_in_words

SEEDS = 3
BYTES = "file_bytes"
WORDS = {"nll": "NLL", "ece": "ECE", "marginal_ce": "marginal CE", "auroc_entropy": "AUROC"}
GROWING = {"auroc_entropy"}  # the larger the better


class Claim(NamedTuple):
    """What a paper reports, in percent and by the names of our figures, and where."""

    accuracy: float
    figures: dict[str, float]
    source: str


class Headline(NamedTuple):
    """A row: what it is called, the table it comes from, and which lines of that it is made of."""

    network: str
    method: str
    table: str
    is_meant: Callable[[Row], bool]
    claim: Claim | None = None


def _setting(row: Row, name: str) -> object:
    return row["settings"].get(name)


def _plain(row: Row) -> bool:
    is_long = row["epochs"] == 200 and row["method"]["weight_decay"] == 0.002
    return row["row"] == "deterministic" and is_long


def _mean_field(row: Row) -> bool:
    is_long = _setting(row, "epochs") == 200 and _setting(row, "weight_decay") == 0.002
    return row["row"] == "mean-field" and row["stage"] == "file" and is_long


def _subspace(density: float, beta: float) -> Callable[[Row], bool]:
    def is_meant(row: Row) -> bool:
        known = [_setting(row, name) for name in ("epochs", "beta", "weight_decay")]
        return row["density"] == density and known == [200, beta, 0.002]

    return is_meant


def _mixture(network: str, data: str) -> Callable[[Row], bool]:
    def is_meant(row: Row) -> bool:
        is_such = (row["model"], row["data"], row["row"]) == (network, data, "sharing")
        return is_such and row["stage"] == "trained on" and row["change"] == "none"

    return is_meant


def _rate_distortion(row: Row) -> bool:
    is_such = row["row"] == "rate-distortion" and row["stage"] == "trained on"
    is_long = _setting(row, "share_std_lr") == 0.01 and _setting(row, "beta") == 0.003
    return is_such and row["parent"].startswith("mean-field") and is_long


def _chain(target: int) -> Callable[[Row], bool]:
    def is_meant(row: Row) -> bool:
        is_such = row["row"] == "rate-distortion" and row["stage"] == "shared"
        return is_such and row["target_bytes"] == target and "pruned" in row["parent"]

    return is_meant


HEADLINES = (
    Headline("ResNet-18", "deterministic", "baselines", _plain),
    Headline("ResNet-18", "mean-field VI", "sizes", _mean_field,
             Claim(95.13, {"marginal_ce": 0.004}, f"{LI}, Table 1")),
    Headline("ResNet-18", "Subspace, 90% sparse", "subspace", _subspace(0.1, 0.004),
             Claim(94.58, {"marginal_ce": 0.005}, f"{LI}, Table 1")),
    Headline("ResNet-18", "Subspace, 95% sparse", "subspace", _subspace(0.05, 0.01),
             Claim(93.74, {"nll": 0.218, "marginal_ce": 0.006, "auroc_entropy": 0.93},
                   f"{LI}, Tables 2 and 3")),
    Headline("ResNet-18", "Sharing, mixture", "sharing", _mixture("resnet18", "cifar10"),
             Claim(91.72, {"nll": 0.305, "ece": 0.019, "auroc_entropy": 0.887},
                   f"{LIN}, Tables 3 and 7")),
    Headline("ResNet-18", "Sharing, rate and distortion", "sizes", _rate_distortion,
             Claim(91.72, {"nll": 0.305, "ece": 0.019}, f"{LIN}, Table 3")),
    Headline("ResNet-18", "chain: Subspace, pruned, shared", "sizes", _chain(890_000)),
    Headline("ResNet-18", "chain, smaller", "sizes", _chain(490_000)),
    Headline("ResNet-20", "Sharing, mixture", "sharing", _mixture("resnet20", "cifar10"),
             Claim(91.04, {"nll": 0.303, "ece": 0.037}, f"{LIN}, Table 4")),
    Headline("ResNet-20, MNIST", "Sharing, mixture", "sharing", _mixture("resnet20", "mnist"),
             Claim(99.52, {"nll": 0.013, "ece": 0.001}, f"{LIN}, Table 4")),
)  # fmt: skip


def headline() -> str:
    """One table with the papers' figures beside ours."""
    found = [(line, _rows_of(line)) for line in HEADLINES]
    lines = [text for line, group in found for text in _lines(line, group)]
    head = [
        "network", "method", "prediction", "seeds", "accuracy", "NLL", "ECE", "AUROC, SVHN",
        "file, bytes", "the paper's", "reached",
    ]  # fmt: skip
    return (
        "## At a glance\n\n"
        "CIFAR-10 unless another set is named. Mean and standard error over seeds, last epoch, 30 "
        "samples; the commands are in the sections below. A paper's figure counts as reached if "
        "our mean is as good; Li et al. call ECE what is the marginal calibration error here. "
        "Files of `Subspace` and `Sharing, "
        "mixture` hold plain numbers, as they did when these were measured; those of today are "
        f'under "Files of trained networks".{_missing(found)}\n\n' + table(head, lines)
    )


def in_short() -> str:
    """What the README says: the smallest network, and all whose files have today's format."""
    everything = [(line, _rows_of(line)) for line in HEADLINES if line.network == "ResNet-18"]
    found = [(line, group) for line, group in everything if group and all(map(is_coded, group))]
    smallest = min((group for _, group in found), key=lambda group: _mean(group, BYTES))
    size, accuracy, ece = (_mean(smallest, name) for name in (BYTES, "accuracy", "ece"))
    seeds = _seeds(smallest)
    lines = [
        [line.method, *mean_scores(own), f"{_mean(own, BYTES):,.0f}", str(_seeds(own))]
        for line, group in found
        if (own := [row for row in group if row["estimator"] == group[0]["estimator"]])
    ]
    head = ["ResNet-18, CIFAR-10", "accuracy", "NLL", "ECE", "file, bytes", "seeds"]
    return (
        "A ResNet-18 of 44.7 MB, with an uncertainty for each of its weights, in "
        f"{bytes_in_words(size)}: {100 * accuracy:.1f}% of CIFAR-10's\ntest images right, and an "
        f"expected calibration error of {ece:.3f}, measured from the file\n"
        f"({'one seed' if seeds == 1 else f'mean of {seeds} seeds'}; commands and all other rows "
        "in [docs/results.md](docs/results.md)).\n\n" + table(head, lines)
    )


def _rows_of(line: Headline) -> list[Row]:
    """The lines behind a row; of a run that was repeated, the last."""
    found = [row for row in rows(line.table) if line.is_meant(row)] if is_there(line.table) else []
    last = {(row["seed"], row["estimator"]): row for row in found}
    return list(last.values())


def _missing(found: Sequence[tuple[Headline, list[Row]]]) -> str:
    """Which rows have fewer seeds than they should have."""
    short = [f"{line.method} ({line.network})" for line, group in found if _seeds(group) < SEEDS]
    return f" Fewer than {SEEDS} seeds so far: {', '.join(short)}." if short else ""


def _seeds(group: Sequence[Row]) -> int:
    return len({row["seed"] for row in group})


def _lines(line: Headline, group: list[Row]) -> list[list[str]]:
    """A line for each way to predict, or one that says that there is nothing yet."""
    claim = _claimed(line.claim)
    if not group:
        return [[line.network, line.method, "", "0", "not measured yet", *[""] * 4, claim, ""]]
    kinds = dict.fromkeys(row["estimator"] for row in group)
    return [_line(line, [row for row in group if row["estimator"] == kind]) for kind in kinds]


def _line(line: Headline, group: list[Row]) -> list[str]:
    sizes = [row["file_bytes"] for row in group if row.get("file_bytes")]
    size = f"{sum(sizes) / len(sizes):,.0f}" if sizes else ""
    return [
        line.network,
        line.method,
        group[0]["estimator"],
        str(_seeds(group)),
        *mean_scores(group),
        average(group, "auroc_entropy", 3),
        size,
        _claimed(line.claim),
        _reached(line.claim, group),
    ]


def _claimed(claim: Claim | None) -> str:
    if claim is None:
        return ""
    others = [f"{WORDS[name]} {figure:g}" for name, figure in claim.figures.items()]
    return f"{', '.join([f'{claim.accuracy:.2f}', *others])} ({claim.source})"


def _reached(claim: Claim | None, group: Sequence[Row]) -> str:
    """Which of the paper's figures our means do not reach."""
    if claim is None:
        return ""
    failed = ["accuracy"] if 100 * _mean(group, "accuracy") < claim.accuracy else []
    for name, figure in claim.figures.items():
        measured = [row for row in group if row.get(name) is not None]
        if not measured:
            failed.append(f"{WORDS[name]} not measured")
            continue
        ours = _mean(measured, name)
        if ours < figure if name in GROWING else ours > figure:
            failed.append(f"{WORDS[name]} {ours:.4f}")
    return f"no: {', '.join(failed)}" if failed else "yes"


def _mean(group: Sequence[Row], name: str) -> float:
    return float(sum(row[name] for row in group) / len(group))
