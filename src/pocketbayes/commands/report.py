"""`pocketbayes report`: one page about one or several models."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pocketbayes import __version__, codec
from pocketbayes.codec import prepare_directory
from pocketbayes.commands.evaluate import EvaluateOptions, Measured, measured_target, require_target
from pocketbayes.commands.flags import Flag, UsageError, merged, options_in, take, with_choices
from pocketbayes.commands.planning import data_flag_groups
from pocketbayes.commands.runs import MODEL, read_metrics, read_run_config, write_text
from pocketbayes.data import DATASETS
from pocketbayes.errors import PocketBayesError, optional_module
from pocketbayes.layers import describe
from pocketbayes.report import Findings, Numbers, RandomWeights, answers_of, report_page, tried_in

# Of `evaluate`: for plain weights, which have no file to speak of, and for corrupted images.
_OTHERS = ("normalize", "corruption", "severity")
_CHOSEN = ("epochs", "steps", "batch_size", "lr", "beta", "prior")  # left open in the config
_UNTOLD = ("root", "file", "device", "out", "config")  # of a run: folders of one's own


@dataclass(frozen=True)
class ReportOptions(EvaluateOptions):
    """Options of `report`, beside those of the data set.

    Attributes:
        data: data set to measure on; of a run, the one it was trained on
        root: folder that holds the data; else $POCKETBAYES_DATA.
        split: test, validation (the part of the training data held back by train) or train.
        validation: share of the training data that train held back; of a run, its own.
        ood: another data set, which the models should be unsure about.
        ood_root: folder that holds it; else as root.
        model: network of your own as package.module:factory.
        num_samples: draws per prediction; auto: as many as each example needs, 30 to 960.
        estimator: lrt, weight, flipout, mean, moments or one_pass; default as trained, or one_pass
            of a distilled model.
        batch_size: examples at a time.
        seed: makes the draws repeat.
        device: auto, cpu or cuda.
        precision: auto, fp32 or bf16.
        out: the page to write.
        title: of the page.
    """

    out: Path = Path("report.html")
    title: str | None = None


def report_flags() -> dict[str, Flag]:
    """Every option of `report`."""
    found = merged([options_in(ReportOptions, skip=_OTHERS), *data_flag_groups()])
    return found | {"data": with_choices(found["data"], DATASETS)}


def run_report(
    targets: Sequence[Path], given: Mapping[str, Any], flags: Mapping[str, Flag]
) -> dict[str, Any]:
    """Measures the models and writes the page; says where, and the numbers of each."""
    options = ReportOptions(**take(dict(given), ReportOptions.__dataclass_fields__))
    if options.out.is_dir():
        raise UsageError(f"--out {options.out} is a folder; name the page, such as report.html")
    optional_module("matplotlib", "report")  # before the long work
    for target in targets:
        require_target(target)
    names = distinct_names(targets)
    found = list[Findings]()
    for target, name in zip(targets, names, strict=True):
        found.append(_findings(target, name, given, flags))
        _require_alike(found[0], found[-1])
    prepare_directory(options.out.resolve().parent)
    title = options.title or f"{', '.join(names)}: how big, how accurate, how sure"
    write_text(options.out, report_page(found, title, _facts(options, found)))
    numbers = {
        one.name: {"bytes": one.file.bytes, **one.numbers, "train_seconds": one.seconds}
        for one in found
    }
    return {"page": str(options.out), "bytes": options.out.stat().st_size, "models": numbers}


def distinct_names(targets: Sequence[Path]) -> list[str]:
    """Short names: of a file or folder, as much of the path as tells it from the others."""
    parts = [target.resolve().parts for target in targets]
    if len(set(parts)) < len(parts):
        raise UsageError("a run or file is named twice")
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(p[-length:]) for p in parts]
        if len(set(names)) == len(names):
            break
    short = [name.removesuffix(".pocket") for name in names]
    return short if len(set(short)) == len(short) else names


def _findings(
    target: Path, name: str, given: Mapping[str, Any], flags: Mapping[str, Flag]
) -> Findings:
    rest = dict(given)
    options = ReportOptions(**take(rest, ReportOptions.__dataclass_fields__))
    file = codec.inspect(target / MODEL if target.is_dir() else target)
    print(f"measuring {target}", file=sys.stderr)
    found = measured_target(target, options, rest, flags)
    known = describe(found.model)
    target_facts = (known.preprocess or {}).get("target", {})
    scale = target_facts.get("mean", 0.0), target_facts.get("std", 1.0)
    inside, outside = answers_of(found.answers, scale)
    return Findings(
        name=name,
        data=_data_words(found, target, given),
        ood=options.ood,
        numbers=found.numbers(),
        file=file,
        weights=RandomWeights.of(found.model),
        answers=inside,
        outside=outside,
        dataset=found.dataset,
        classes=known.class_names or (),
        settings=_settings(target),
        seconds=_seconds(target),
        tried=tried_in(read_metrics(target)),
    )


def _settings(target: Path) -> dict[str, Any]:
    """How a run was trained; of folders of one's own only the last name."""
    config = read_run_config(target) if target.is_dir() else {}
    used = read_metrics(target)
    config |= {name: used[name] for name in _CHOSEN if name in used}
    known = {k: v for k, v in config.items() if v is not None and k not in _UNTOLD}
    return {k: Path(v).name if _is_path(v) else v for k, v in known.items()}


def _seconds(target: Path) -> float | None:
    """What the making of a run took."""
    found = read_metrics(target).get("seconds")
    return float(found) if isinstance(found, int | float) else None


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and Path(value).is_absolute()


def _data_words(found: Measured[ReportOptions], target: Path, given: Mapping[str, Any]) -> str:
    """What was measured on: the part, the data set and, of a table, its file and target."""
    words = f"the {found.options.split} set of {found.name}"
    column = (describe(found.model).preprocess or {}).get("target", {}).get("name")
    config = read_run_config(target) if target.is_dir() else {}
    file = given.get("file") or config.get("file")
    inside = [Path(file).name] if file else []
    inside += [f"target {column}"] if column else []
    return f"{words} ({', '.join(inside)})" if inside else words


def _require_alike(first: Findings, other: Findings) -> None:
    """One page is about one question: the same data, of the same kind."""
    same = (first.data, type(first.answers), first.classes) == (
        other.data, type(other.answers), other.classes,
    )  # fmt: skip
    if not (same and _same_numbers(first.answers.truth, other.answers.truth)):
        raise PocketBayesError(
            f"{first.name} and {other.name} were not measured on the same examples ({first.data}, "
            f"{len(first.dataset)} of them; {other.data}, {len(other.dataset)}): make a page for "
            "each, or say --data and its options"
        )


def _same_numbers(one: Numbers | None, other: Numbers | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.shape == other.shape and np.allclose(one, other)


def _facts(options: ReportOptions, found: Sequence[Findings]) -> dict[str, Any]:
    first = found[0].numbers
    return {
        "data": found[0].data,
        "examples": first["num_examples"],
        "out-of-distribution data": options.ood,
        "seed": options.seed,
        "pocketbayes": __version__,
        "torch": torch.__version__,
    }
