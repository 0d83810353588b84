"""`pocketbayes report`: one page about one or several models."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pocketbayes import __version__, codec
from pocketbayes.checkpoints import prepare_directory
from pocketbayes.commands.evaluate import (
    EvaluateOptions,
    measured_target,
    require_target,
)
from pocketbayes.commands.planning import data_flag_groups
from pocketbayes.commands.runs import MODEL, read_run_config, write_text
from pocketbayes.data import DATASETS
from pocketbayes.description import describe
from pocketbayes.errors import PocketBayesError
from pocketbayes.extras import optional_module
from pocketbayes.figures import RandomWeights
from pocketbayes.flags import Flag, UsageError, merged, options_in, take, with_choices
from pocketbayes.report import Findings, answers_of, report_page

# Of `evaluate`: for plain weights, which have no file to speak of, and for spoiled images.
_OTHERS = ("normalize", "corruption", "severity")
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
        num_samples: draws per prediction.
        estimator: how to draw: lrt, weight, flipout or mean; default as trained.
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
    found = [_findings(*pair, given, flags) for pair in zip(targets, names, strict=True)]
    _require_alike(found)
    prepare_directory(options.out.resolve().parent)
    title = options.title or f"{', '.join(names)}: how big, how accurate, how sure"
    write_text(options.out, report_page(found, title, _facts(options, found)))
    numbers = {one.name: {"bytes": one.file.bytes, **one.numbers} for one in found}
    return {"page": str(options.out), "bytes": options.out.stat().st_size, "models": numbers}


def distinct_names(targets: Sequence[Path]) -> list[str]:
    """Short names: of a file or folder, as much of the path as tells it from the others."""
    parts = [target.resolve().parts for target in targets]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(p[-length:]).removesuffix(".pocket") for p in parts]
        if len(set(names)) == len(names):
            return names
    raise UsageError("a run or file is named twice")


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
        data=f"the {options.split} set of {found.name}",
        ood=options.ood,
        numbers=found.numbers(),
        file=file,
        weights=RandomWeights.of(found.model),
        answers=inside,
        outside=outside,
        dataset=found.dataset,
        classes=known.class_names or (),
        settings=_settings(target),
    )


def _settings(target: Path) -> dict[str, Any]:
    if not target.is_dir():
        return {}
    config = read_run_config(target)
    return {k: v for k, v in config.items() if v is not None and k not in _UNTOLD}


def _require_alike(found: Sequence[Findings]) -> None:
    """One page is about one question: the same data, of the same kind."""
    kinds = {(one.data, type(one.answers), one.classes) for one in found}
    if len(kinds) > 1:
        about = ", ".join(f"{one.name}: {one.data}" for one in found)
        raise PocketBayesError(
            f"these models do not answer the same question ({about}); make a page for each, or "
            "say --data"
        )


def _facts(options: ReportOptions, found: Sequence[Findings]) -> dict[str, Any]:
    first = found[0].numbers
    return {
        "data": found[0].data,
        "examples": first["num_examples"],
        "out-of-distribution data": options.ood,
        "draws per prediction": first["num_samples"],
        "seed": options.seed,
        "pocketbayes": __version__,
        "torch": torch.__version__,
    }
