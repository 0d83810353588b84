"""`python -m pocketbayes_lite predict m.pocket seven.png`, `... inspect m.pocket`."""

import argparse
import csv
import re
import sys
from pathlib import Path
from typing import Any

from pocketbayes_lite.errors import LiteError, printable
from pocketbayes_lite.model import DEFAULT_DRAWS, ESTIMATORS, Model, load
from pocketbayes_lite.pictures import images
from pocketbayes_lite.predictions import (
    ClassPrediction,
    LabelPrediction,
    Prediction,
    ValuePrediction,
)
from pocketbayes_lite.rows import table

_RUN = tuple(
    "=+-@\uff1d\uff0b\uff0d\uff20"
)  # what a spreadsheet takes for a formula; wide forms, too
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf|nan", re.ASCII)


def main(arguments: list[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="pocketbayes-lite", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    told = commands.add_parser("inspect", help="what a file holds")
    asked = commands.add_parser("predict", help="answers to pictures or rows of a CSV file")
    for command in (told, asked):
        command.add_argument("model", type=Path)
    asked.add_argument("inputs", type=Path, nargs="+")
    asked.add_argument("--estimator", choices=sorted(ESTIMATORS))
    asked.add_argument("--num-samples", type=int, default=DEFAULT_DRAWS)
    asked.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    try:
        model = load(options.model)
        rows = inspected(model) if options.command == "inspect" else predicted(model, options)
    except LiteError as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        return 1
    writer = csv.writer(sys.stdout, delimiter="\t", lineterminator="\n")
    writer.writerows([map(_cell, row) for row in rows])
    return 0


def _cell(value: Any) -> str:
    """Words run no formula in a spreadsheet and drive no terminal; numbers stay what they are."""
    word = printable(str(value))
    runs = word.lstrip().startswith(_RUN) and not _NUMBER.fullmatch(word)
    return f"'{word}" if runs else word


def inspected(model: Model) -> list[list[Any]]:
    """Names and values, one a line."""
    known = ("class_names", "temperature", "moments_factor", "training", "prior", "beta")
    rows: list[list[Any]] = [
        ["inputs", *(_sides(shape) for shape in model.input_shapes)],
        ["output", _sides(model.output_shape)],
        ["likelihood", model.likelihood],
        ["estimator", model.default_estimator],
        ["networks", model.members],
        ["one pass", "taught" if model.facts.get("one_pass") else "not taught"],
        ["bytes in memory beside the numbers", model.memory],
    ]
    conformal = model.facts.get("conformal")
    rows += [["conformal level", conformal["level"]]] if conformal else []
    return rows + [[n, model.facts[n]] for n in known if model.facts.get(n) is not None]


def _sides(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "one number"


def predicted(model: Model, options: argparse.Namespace) -> list[list[Any]]:
    """A header, then one row for each picture or row of a table."""
    preprocess, names = model.facts.get("preprocess") or {}, [str(p) for p in options.inputs]
    if preprocess.get("kind") == "image":
        x = images(options.inputs, preprocess)
    elif preprocess.get("kind") == "table":
        if len(options.inputs) != 1:
            raise LiteError("pass one CSV file at a time")
        names, x = table(options.inputs[0], preprocess)
    else:
        raise LiteError(
            "the file does not say how its inputs are prepared, so files cannot be turned into "
            "them; use pocketbayes_lite.load(path).predict(x) from Python"
        )
    found = model.predict(x, options.estimator, options.num_samples, options.seed)
    return _rows(names, found, preprocess.get("target", {}))


def _rows(names: list[str], found: Prediction, target: dict[str, Any]) -> list[list[Any]]:
    """Values are in the target's own units."""
    if isinstance(found, ClassPrediction):
        return _class_rows(names, found)
    why = found.why_unsure()
    if isinstance(found, LabelPrediction):
        labels = found.class_names or range(found.probs.shape[1])
        header = ["input", *(f"p({label})" for label in labels), "doubt"]
        parts = zip(names, found.probs, why, strict=True)
        return [header, *([name, *_short(p), words] for name, p, words in parts)]
    mean, scale = target.get("mean", 0.0), target.get("std", 1.0)
    assert isinstance(found, ValuePrediction)
    low, high = found.interval(found.level)
    values, std = found.mean, found.std
    level = f"{found.level:.0%}"
    rows: list[list[Any]] = [["input", "value", "std", f"low {level}", f"high {level}", "doubt"]]
    for i, name in enumerate(names):
        own = [mean + scale * float(part[i].flat[0]) for part in (values, low, high)]
        told = _short([own[0], scale * float(std[i].flat[0]), *own[1:]])
        rows.append([name, *told, why[i]])
    return rows


def _class_rows(names: list[str], found: ClassPrediction) -> list[list[Any]]:
    classes, why = found.class_names, found.why_unsure()
    rows: list[list[Any]] = [
        ["input", "class", "probability", "entropy", "aleatoric", "epistemic", "doubt"]
    ]
    for i, name in enumerate(names):
        label = int(found.label[i])
        parts = (found.confidence, found.entropy, found.aleatoric, found.epistemic)
        word = classes[label] if classes and label < len(classes) else str(label)
        rows.append([name, word, *_short(float(part[i]) for part in parts), why[i]])
    return rows


def _short(numbers: Any) -> list[str]:
    return [f"{float(number):.6g}" for number in numbers]


if __name__ == "__main__":
    sys.exit(main())
