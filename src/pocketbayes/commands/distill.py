"""`pocketbayes distill`: a model whose draws are taught to a head that needs one pass."""

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from pocketbayes.codec import FileSummary, save, stored_with
from pocketbayes.codec import inspect as inspected
from pocketbayes.commands.evaluate import EvaluateOptions, opened_target, require_target
from pocketbayes.commands.flags import (
    Flag,
    as_usage_error,
    merged,
    options_in,
    take,
    with_choices,
)
from pocketbayes.commands.messages import note_compared
from pocketbayes.commands.opening import (
    Dataset,
    chosen_device,
    in_units,
    opened_model,
    with_cutout,
)
from pocketbayes.commands.planning import data_flag_groups, resumed, train_flags
from pocketbayes.commands.runs import (
    MODEL,
    beside,
    hidden_folder,
    read_metrics,
    read_run_config,
    require_free,
    write_config,
    write_metrics,
)
from pocketbayes.data import DATASETS, MemoryLoader, with_validation
from pocketbayes.distillation import distill_
from pocketbayes.errors import require_choice, require_count, require_number
from pocketbayes.layers import ESTIMATORS, describe, estimator_of
from pocketbayes.prediction import evaluate, predict
from pocketbayes.training import suitable_batch_size

_EVALUATION_BATCH, _WARM_UP_BATCH = 500, 8
_ANEW = ("run", "file", "bytes", "weights", "active_weights", "validation", "compression",
         "distill_seconds", "distillation", "compared")  # fmt: skip
_SHOWN = ("accuracy", "rmse", "nll", "ece", "coverage_90", "seconds")


@dataclass(frozen=True)
class DistillOptions:
    """Options of `distill`, beside those of the data set.

    Attributes:
        data: data set to learn from, best the one that the model was trained on; of a run, that
        root: folder that holds the data; else $POCKETBAYES_DATA.
        validation: share of the training data held back, to report; of a run, its own, else 0.1.
        out: the new run directory, or the new file; default RUN-distilled, FILE-distilled.pocket.
        epochs: passes over the data; default 5, and as many as make 500 steps.
        num_samples: draws of the network for each batch.
        estimator: how to draw: lrt, weight or flipout; default as trained.
        lr: learning rate that the head begins with.
        batch_size: examples per step; of a run, its own; else 128, less for small data.
        augment: crop and mirror images; of a run, as it did; else as far as that suits the data.
        cutout: blank a square of half the side in each image as well; of a run, as it did.
        model: network of your own as package.module:factory.
        seed: determines order, augmentation and draws.
        device: auto, cpu or cuda.
    """

    data: str | None = None
    root: Path | None = None
    validation: float | None = None
    out: Path | None = None
    epochs: int | None = None
    num_samples: int = 8
    estimator: str | None = None
    lr: float = 1e-2
    batch_size: int | None = None
    augment: bool | None = None
    cutout: bool | None = None
    model: str | None = None
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        with as_usage_error():
            if self.epochs is not None:
                require_count(self.epochs, "--epochs")
            require_count(self.num_samples, "--num-samples", least=2)
            require_count(self.seed, "--seed", least=0)
            require_number(self.lr, "--lr", above=0)
            if self.batch_size is not None:
                require_count(self.batch_size, "--batch-size")
            if self.validation is not None:
                require_number(self.validation, "--validation", least=0, most=0.99)
            if self.estimator is not None:
                require_choice(
                    self.estimator, "--estimator", [name for name in ESTIMATORS if name != "mean"]
                )


def distill_flags() -> dict[str, Flag]:
    """Every option of `distill`."""
    found = merged([options_in(DistillOptions), *data_flag_groups()])
    return found | {"data": with_choices(found["data"], DATASETS)}


def run_distillation(
    target: Path, given: Mapping[str, Any], flags: Mapping[str, Flag]
) -> dict[str, Any]:
    """Teaches a head, and writes a new run or file; the report compares one pass with draws."""
    begin, rest = time.monotonic(), dict(given)
    options = DistillOptions(**take(rest, DistillOptions.__dataclass_fields__))
    require_target(target)
    options = _as_in_run(target, options)
    out = options.out or beside(target, "distilled")
    require_free(out)
    name, model, train, held_back = _opened(target, options, rest, flags)
    report: dict[str, Any] = {"target": str(target), "out": str(out), "data": name}
    report["draws"] = _measured(model, held_back, options.seed, options.estimator or "own")
    _teach_(model, train, options)
    with hidden_folder(out) as folder:
        path = folder / "run" / MODEL
        path.parent.mkdir()
        save(model, path, **stored_with(_file_of(target)))
        shipped = opened_model(path, options.model).to(train.device)
        report["one_pass"] = _measured(shipped, held_back, options.seed, None)
        facts = inspected(path)
        report |= note_compared(facts)
        report |= {"bytes": facts.bytes, "bytes_before": _file_of(target).stat().st_size}
        report["seconds"] = time.monotonic() - begin
        if target.is_dir():
            _complete_run(path.parent, target, out, options, report, facts)
        os.replace(path.parent if target.is_dir() else path, out.resolve())
    return report


def compared(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The report as one row for the draws and one for the pass that learned from them."""
    return [
        {"": name.replace("_", " "), "estimator": report[name].get("estimator", "-")}
        | {key: report[name][key] for key in _SHOWN if key in report[name]}
        for name in ("draws", "one_pass")
    ]


def _file_of(target: Path) -> Path:
    return target / MODEL if target.is_dir() else target


def _as_in_run(target: Path, options: DistillOptions) -> DistillOptions:
    """What was not said, as the run has it; of a file, as `train` would."""
    usual: dict[str, Any] = {"validation": 0.1, "augment": True, "cutout": False}
    known = read_run_config(target) if target.is_dir() else {}
    names = ("validation", "augment", "cutout", "batch_size")
    unsaid = [name for name in names if getattr(options, name) is None]
    told: dict[str, Any] = {name: known.get(name, usual.get(name)) for name in unsaid}
    return replace(options, **told)


def _opened(
    target: Path, options: DistillOptions, rest: dict[str, Any], flags: Mapping[str, Flag]
) -> tuple[str, nn.Module, Dataset, Dataset | None]:
    """The data set's name, the model, and the parts of the data: to learn from, and held back."""
    asked = EvaluateOptions(
        data=options.data, root=options.root, split="train", validation=0.0, model=options.model
    )
    _, name, model, dataset = opened_target(target, asked, rest, flags)
    device = chosen_device(options.device)
    dataset = dataset.to(device)
    dataset = with_cutout(dataset) if options.cutout else dataset
    if not options.validation:
        return name, model.to(device), dataset, None
    parts = with_validation(cast(Any, dataset), options.validation)
    train, held = (replace(part, preprocess=dataset.preprocess) for part in parts)
    return name, model.to(device), train, held


def _teach_(model: nn.Module, train: Dataset, options: DistillOptions) -> None:
    size = options.batch_size or suitable_batch_size(len(train))
    known = "" if options.epochs is None else f", epochs: {options.epochs}"
    print(
        f"learning from {len(train):,} examples, {options.num_samples} draws of each batch{known}",
        file=sys.stderr,
    )
    distill_(
        model,
        MemoryLoader(train, size, shuffle=True, augment=bool(options.augment)),
        options.epochs,
        num_samples=options.num_samples,
        estimator=options.estimator,
        lr=options.lr,
        seed=options.seed,
    )


def _measured(
    model: nn.Module, data: Dataset | None, seed: int, estimator: str | None
) -> dict[str, Any]:
    """The record on what was held back, if anything; "own": by draws, as trained.

    Its seconds are those of a model that has predicted before: what starts up once is not counted.
    """
    if data is None:
        return {}
    chosen = estimator_of(model) if estimator == "own" else estimator
    few = data.batch(list(range(min(_WARM_UP_BATCH, len(data)))))[0]
    predict(model, few, generator=torch.Generator().manual_seed(seed), estimator=chosen)
    generator = torch.Generator().manual_seed(seed)
    loader = MemoryLoader(data, _EVALUATION_BATCH)
    record = evaluate(model, loader, generator=generator, estimator=chosen)
    return in_units(record.to_dict(), describe(model).preprocess)


def _training_of(run: Path) -> dict[str, Any]:
    """What the run's metrics say of its training, not of its file and its predictions."""
    return {name: value for name, value in read_metrics(run).items() if name not in _ANEW}


def _complete_run(
    folder: Path,
    run: Path,
    out: Path,
    options: DistillOptions,
    report: Mapping[str, Any],
    facts: FileSummary,
) -> None:
    """Config and metrics, beside the file; how the weights were trained stays as it was."""
    said = {} if options.model is None else {"model": options.model}
    plan = resumed(run, said, train_flags()).child(run, out, 0)
    write_config(folder, replace(plan, options=replace(plan.options, one_pass=True)).to_config())
    write_metrics(
        folder,
        {
            "run": str(out),
            "file": str(out / MODEL),
            "bytes": facts.bytes,
            "weights": facts.weights,
            "active_weights": facts.active_weights,
            **_training_of(run),
            "compared": report["compared"],
            "distill_seconds": report["seconds"],
            "validation": report["one_pass"],
            "distillation": report,
        },
    )
