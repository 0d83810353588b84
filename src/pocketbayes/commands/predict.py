"""`pocketbayes predict`: images or tables in, answers with their doubts out."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from pocketbayes.codec import prepare_directory
from pocketbayes.commands.evaluate import in_precision
from pocketbayes.commands.opening import chosen_device, opened_model
from pocketbayes.commands.runs import write_text
from pocketbayes.data import (
    PICTURES,
    images_from_files,
    normalised,
    note_reshaped,
    table_from_file,
    tracked,
)
from pocketbayes.errors import DataError, FormatError, PocketBayesError
from pocketbayes.layers import Description, describe
from pocketbayes.prediction import (
    ClassPrediction,
    LabelPrediction,
    Prediction,
    ValuePrediction,
    predict,
    why_unsure,
)
from pocketbayes.report import as_cell

TABLES = (".csv", ".txt", ".parquet", ".pq")
CONFIDENCE_THRESHOLD = 0.9
_CHUNK = 256


@dataclass(frozen=True)
class PredictOptions:
    """Options of `predict`.

    Attributes:
        num_samples: draws per prediction; auto: as many as each example needs, 30 to 960.
        estimator: lrt, weight, flipout, mean, moments or one_pass; default as trained, or one_pass
            of a distilled model.
        csv: file to write the predictions to, as CSV.
        skip_bad: leave out images that cannot be read, and name them, instead of failing.
        model: your own network, package.module:factory, if the file cannot name it.
        seed: makes the draws repeat, for the same inputs in the same order.
        device: auto, cpu or cuda.
        precision: auto, fp32 or bf16.
        compile: run the network as machine code, which takes minutes to make; for long jobs.
    """

    num_samples: int | Literal["auto"] = 30
    estimator: str | None = None
    csv: Path | None = None
    skip_bad: bool = False
    model: str | None = None
    seed: int = 0
    device: str = "auto"
    precision: str = "auto"
    compile: bool = False


def run_prediction(target: Path, inputs: Sequence[Path], options: PredictOptions) -> dict[str, Any]:
    """The estimator and its draws; one row per input: answer, how probable, what doubt remains."""
    if options.csv is not None and (options.csv.is_file() or not options.csv.exists()):
        prepare_directory(options.csv.parent)
    device = chosen_device(options.device)
    model = opened_model(target, options.model).to(device)
    known = describe(model)
    if known.preprocess is None:
        raise PocketBayesError(
            f"{target} does not say how its inputs are prepared, so files cannot be turned into "
            "them; use pocketbayes.predict(model, x) from Python"
        )
    generator = torch.Generator().manual_seed(options.seed)
    rows, made = list[dict[str, Any]](), list[Prediction]()
    reshaped: list[Path] = []
    chunks = list(_chunks(inputs, known))
    with in_precision(options.precision, device):
        for chunk in tracked(chunks, "predicting") if len(chunks) > 1 else chunks:
            names, x, unfamiliar = _prepared(chunk, known, options.skip_bad, reshaped)
            if names:
                pred = predict(
                    model, x.to(device), options.num_samples, generator, options.estimator,
                    single=False, compile=options.compile,
                )  # fmt: skip
                made.append(pred)
                rows += _with_unfamiliar(_rows(names, pred, known), unfamiliar)
    note_reshaped(reshaped, known.preprocess, sum(map(len, chunks)))
    if not rows:
        raise DataError("none of the inputs could be read")
    if options.csv is not None:
        write_text(options.csv, as_csv(rows))
    most = max(pred.num_samples for pred in made)
    return {"estimator": made[0].estimator, "num_samples": most, "predictions": rows}


def how_predicted(report: Mapping[str, Any], options: PredictOptions) -> str:
    """The estimator, and what it ran; the points of a Gaussian are no draws of the network."""
    estimator, number = report["estimator"], report["num_samples"]
    most = "up to " if options.num_samples == "auto" else ""
    ran = f"{most}{number} draw{'s' * (number != 1)}"
    if estimator in ("mean", "none"):
        ran = "one network, no draws" if number == 1 else f"{number} networks, no draws"
    ran = {"one_pass": "one pass, no draws", "moments": "moments, no draws"}.get(estimator, ran)
    return f"estimator {estimator}: {ran}"


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV text, in which no name of a class or an input is a formula."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(as_cell, rows[0]))
    writer.writerows(map(as_cell, row.values()) for row in rows)
    return text.getvalue()


def _chunks(inputs: Sequence[Path], known: Description) -> Iterator[list[Path]]:
    """Tables one by one, images some at a time, folders as the files in them."""
    wants_table = known.preprocess is not None and known.preprocess.get("kind") == "table"
    files: list[Path] = []
    for path in inputs:
        if path.is_dir():
            kinds = TABLES if wants_table else PICTURES
            files += sorted(p for p in path.iterdir() if p.suffix.lower() in kinds)
        else:
            files.append(path)
    for path in files:
        if (path.suffix.lower() in TABLES) != wants_table:
            wanted = "CSV or parquet files" if wants_table else "images"
            raise DataError(f"{path}: this model takes {wanted}")
    if not files:
        raise DataError("there is nothing to predict: the folders hold no such files")
    size = 1 if wants_table else _CHUNK
    yield from (files[i : i + size] for i in range(0, len(files), size))


def _prepared(
    paths: list[Path], known: Description, skip_bad: bool, reshaped: list[Path]
) -> tuple[list[str], Tensor, tuple[str, ...] | None]:
    """Names, inputs and, of a table, what is unfamiliar in each row."""
    assert known.preprocess is not None
    if known.preprocess["kind"] == "table":
        x, names, unfamiliar = table_from_file(paths[0], known.preprocess)
        return names, x, unfamiliar
    images, kept = images_from_files(paths, known.preprocess, skip_bad, reshaped)
    return [str(path) for path in kept], normalised(images, known.preprocess), None


def _with_unfamiliar(
    rows: list[dict[str, Any]], unfamiliar: tuple[str, ...] | None
) -> list[dict[str, Any]]:
    if unfamiliar is None:
        return rows
    return [row | {"unfamiliar": words} for row, words in zip(rows, unfamiliar, strict=True)]


def _rows(names: list[str], pred: Prediction, known: Description) -> list[dict[str, Any]]:
    if isinstance(pred, ClassPrediction):
        count = pred.probs.shape[1]
        if known.class_names is not None and len(known.class_names) != count:
            raise FormatError(
                f"the model has {count} outputs but the names of {len(known.class_names)} classes"
            )
        return [_class_row(n, i, pred, known.class_names) for i, n in enumerate(names)]
    if isinstance(pred, LabelPrediction):
        return [_label_row(n, i, pred, known.class_names) for i, n in enumerate(names)]
    assert isinstance(pred, ValuePrediction)
    if pred.mean[0].numel() > 1:
        raise DataError(
            f"the model predicts {pred.mean[0].numel()} values for each input; the command line "
            "shows one: use pb.load and pb.predict"
        )
    target = (known.preprocess or {}).get("target", {})
    return _value_rows(names, pred, target.get("mean", 0.0), target.get("std", 1.0))


def _class_row(
    name: str, i: int, pred: ClassPrediction, classes: tuple[str, ...] | None
) -> dict[str, Any]:
    label, probability = int(pred.label[i]), float(pred.confidence[i])
    aleatoric, epistemic = float(pred.aleatoric[i]), float(pred.epistemic[i])
    return {
        "input": name,
        "class": classes[label] if classes else str(label),
        "probability": probability,
        "sure": probability >= CONFIDENCE_THRESHOLD,
        "why_not": ""
        if probability >= CONFIDENCE_THRESHOLD
        else why_unsure(aleatoric, epistemic, pred),
        "entropy": float(pred.entropy[i]),
        "aleatoric": aleatoric,
        "epistemic": epistemic,
    }


def _label_row(
    name: str, i: int, pred: LabelPrediction, labels: tuple[str, ...] | None
) -> dict[str, Any]:
    """The probability of each label; entropies are sums over labels."""
    probs = pred.probs[i].flatten().tolist()
    is_sure = bool((pred.confidence[i] >= CONFIDENCE_THRESHOLD).all())
    parts = ("entropy", "aleatoric", "epistemic")
    sums = {part: float(getattr(pred, part)[i].sum()) for part in parts}
    named = labels if labels and len(labels) == len(probs) else range(len(probs))
    return {
        "input": name,
        **{f"p({label})": p for label, p in zip(named, probs, strict=True)},
        "sure": is_sure,
        "why_not": "" if is_sure else why_unsure(sums["aleatoric"], sums["epistemic"], pred),
        **sums,
    }


def _value_rows(
    names: list[str], pred: ValuePrediction, mean: float, scale: float
) -> list[dict[str, Any]]:
    """Values in the target's own units; a value is sure if its noise alone explains its spread."""
    low, high = pred.interval(0.9)
    rows = []
    for i, name in enumerate(names):
        aleatoric, epistemic = float(pred.aleatoric[i, 0]), float(pred.epistemic[i, 0])
        share = epistemic / max(aleatoric + epistemic, 1e-30)
        rows.append(
            {
                "input": name,
                "value": mean + scale * float(pred.mean[i, 0]),
                "std": scale * float(pred.std[i, 0]),
                "low_90": mean + scale * float(low[i, 0]),
                "high_90": mean + scale * float(high[i, 0]),
                "sure": share < 0.5,
                "why_not": "" if share < 0.5 else why_unsure(aleatoric, epistemic, pred),
                "aleatoric": scale**2 * aleatoric,
                "epistemic": scale**2 * epistemic,
            }
        )
    return rows
