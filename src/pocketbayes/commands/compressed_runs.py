"""What a compression found, as a report and as a run directory."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from pocketbayes.codec import inspect as inspected
from pocketbayes.commands.opening import in_units
from pocketbayes.commands.runs import MODEL, write_config, write_metrics
from pocketbayes.compression import Compression, sharing_method
from pocketbayes.layers import estimator_of
from pocketbayes.prediction import evaluate
from pocketbayes.training import write_history

if TYPE_CHECKING:
    from pocketbayes.commands.compress import Opened

_SHOWN = ("accuracy", "rmse", "nll", "ece", "coverage_90", "auroc_entropy", "auroc_epistemic")


def compression_report(
    known: "Opened", found: Compression, out: Path, target: int | None
) -> dict[str, Any]:
    """Before and after by draws, and after by one pass; all of the validation part."""
    by_draws = estimator_of(known.model) if found.one_pass else None
    file = (known.run / MODEL).stat().st_size
    report: dict[str, Any] = {
        "run": str(out),
        "parent": str(known.run),
        "target_bytes": target,
        "split": "validation",
        "fitted_already": target is not None and file <= target,
        "what": found.chosen.what,
        "before": {"bytes": file} | _numbers(known, known.model, by_draws),
        "after": {"bytes": found.bytes} | _numbers(known, found.model, by_draws),
    }
    if found.one_pass:
        report["after_one_pass"] = {"bytes": found.bytes} | _numbers(known, found.model, None)
    units = known.train.preprocess
    report["candidates"] = [in_units(row, units) for row in found.rows()]
    return report


def _numbers(known: "Opened", model: nn.Module, estimator: str | None) -> dict[str, Any]:
    options = known.plan.options
    generator = torch.Generator().manual_seed(options.seed)
    record = evaluate(
        model, known.validation, options.num_samples, known.outside, generator, estimator
    )
    return in_units(record.to_dict(), known.train.preprocess)


def before_and_after(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The report as rows of the numbers that matter most: by draws, and by one pass if it can."""
    rows = []
    said = {"before": "as it is", "after": report["what"], "after_one_pass": "the same by one pass"}
    for name in (name for name in said if name in report):
        numbers, what = report[name], said[name]
        chosen = {key: numbers[key] for key in _SHOWN if key in numbers}
        rows.append(
            {"": name.removesuffix("_one_pass"), "what": what, "bytes": numbers["bytes"]} | chosen
        )
    return rows


def write_compressed_run(
    made: Path, out: Path, known: "Opened", found: Compression, report: Mapping[str, Any]
) -> None:
    """Puts the run together under a hidden name, and then gives it its own."""
    made.mkdir()
    found.save(made / MODEL)
    write_config(made, _config(known, found, out))
    rung = found.chosen.rung
    if rung.history:
        write_history(made, rung.history)
    facts, by_itself = inspected(made / MODEL), report.get("after_one_pass", report["after"])
    write_metrics(
        made,
        {
            "run": str(out),
            "file": str(out / MODEL),
            "bytes": facts.bytes,
            "weights": facts.weights,
            "active_weights": facts.active_weights,
            "epochs": rung.epochs,
            "seconds": report["seconds"],
            "validation": {k: v for k, v in by_itself.items() if k != "bytes"},
            "compression": report,
        },
    )
    os.replace(made, out.resolve())  # a folder cannot take the place of a link


def _config(known: "Opened", found: Compression, out: Path) -> dict[str, Any]:
    """The run's own config, as one that goes on from it; shared weights have another method."""
    rung = found.chosen.rung
    plan = known.plan.child(known.run, out, rung.epochs)
    plan = replace(plan, options=replace(plan.options, one_pass=found.one_pass is not None))
    if rung.entries is None:
        return plan.to_config()
    method = sharing_method(found.model, rung.entries, 0.0)
    return replace(plan, options=replace(plan.options, method="sharing"), method=method).to_config()
