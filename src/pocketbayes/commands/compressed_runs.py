"""What a compression found, as a report and as a run directory."""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pocketbayes.codec import described
from pocketbayes.codec import inspect as inspected
from pocketbayes.commands.candidates import Candidate, CandidateMaker, TooLarge
from pocketbayes.commands.opening import in_units
from pocketbayes.commands.runs import MODEL, write_config, write_metrics
from pocketbayes.data import MemoryLoader
from pocketbayes.training import write_history

_SHOWN = ("accuracy", "rmse", "nll", "ece", "coverage_90", "auroc_entropy", "auroc_epistemic")


def compression_report(
    run: Path,
    out: Path,
    shop: CandidateMaker,
    ends: tuple[Candidate, Candidate],
    outside: MemoryLoader | None,
) -> dict[str, Any]:
    """Before and after by draws, and after by one pass; all of the validation part."""
    before, after = (
        {"bytes": c.size} | _numbers(shop, shop.measured(c.path, outside).to_dict()) for c in ends
    )
    report = {
        "run": str(out),
        "parent": str(run),
        "target_bytes": shop.target,
        "split": "validation",
        "fitted_already": ends[0].size <= shop.target,
        "what": ends[1].words(),
        "before": before,
        "after": after,
    }
    if has_head(ends[1]):
        by_itself = shop.measured(ends[1].path, outside, by_itself=True)
        report["after_one_pass"] = {"bytes": ends[1].size} | _numbers(shop, by_itself.to_dict())
    return report


def has_head(candidate: Candidate) -> bool:
    """Whether the file tells from one pass what its draws say."""
    return described(candidate.path).one_pass is not None


def candidate_rows(
    shop: CandidateMaker, found: Sequence[Candidate], missed: Sequence[TooLarge], chosen: Candidate
) -> list[dict[str, Any]]:
    """What was tried: its settings and bytes and, if it fits, how good it is."""
    fitting = [
        c.recipe.to_dict()
        | {"epochs": c.epochs, "bytes": c.size, "fits": True, "chosen": c is chosen}
        | _numbers(shop, c.record.to_dict())
        for c in found
    ]
    others = [
        m.recipe.to_dict() | {"bytes": m.size, "fits": False, "chosen": False} for m in missed
    ]
    return fitting + others


def _numbers(shop: CandidateMaker, numbers: Mapping[str, Any]) -> dict[str, Any]:
    return in_units(numbers, shop.train.preprocess)


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
    made: Path,
    out: Path,
    shop: CandidateMaker,
    chosen: Candidate,
    run: Path,
    report: Mapping[str, Any],
) -> None:
    """Puts the run together under a hidden name, and then gives it its own."""
    made.mkdir()
    shutil.copyfile(chosen.path, made / MODEL)
    write_config(made, _config(shop, chosen, run, out))
    if chosen.history:
        write_history(made, chosen.history)
    facts, by_itself = inspected(made / MODEL), report.get("after_one_pass", report["after"])
    write_metrics(
        made,
        {
            "run": str(out),
            "file": str(out / MODEL),
            "bytes": facts.bytes,
            "weights": facts.weights,
            "active_weights": facts.active_weights,
            "epochs": chosen.epochs,
            "seconds": report["seconds"],
            "validation": {k: v for k, v in by_itself.items() if k != "bytes"},
            "compression": report,
        },
    )
    os.replace(made, out.resolve())  # a folder cannot take the place of a link


def _config(shop: CandidateMaker, chosen: Candidate, run: Path, out: Path) -> dict[str, Any]:
    """The run's own config, as one that goes on from it; shared weights have another method."""
    plan = shop.plan.child(run, out, chosen.epochs)
    plan = replace(plan, options=replace(plan.options, one_pass=has_head(chosen)))
    if chosen.recipe.entries is None:
        return plan.to_config()
    method = shop.sharing(chosen.recipe)
    return replace(plan, options=replace(plan.options, method="sharing"), method=method).to_config()
