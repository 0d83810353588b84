"""`pocketbayes export`: a run or file as a file for other runtimes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from pocketbayes.codec import TOLERANCE, described, inspect, prepare_directory, stored_with
from pocketbayes.commands.evaluate import require_target
from pocketbayes.commands.flags import UsageError, options_in
from pocketbayes.commands.opening import opened_data, opened_model
from pocketbayes.commands.runs import MODEL, read_run_config
from pocketbayes.data import DATASETS, table_from_file
from pocketbayes.deploy import Exported, export
from pocketbayes.layers import Description, describe

_EXAMPLES = 64
_TABLES = ("csv", "parquet")


@dataclass(frozen=True)
class ExportOptions:
    """Options of `export`.

    Attributes:
        to: the format: onnx; c, a .c file with its .h file, for a microcontroller; or web, a page
            that asks the model in a browser.
        estimator: one_pass, moments, mean, weight, lrt or flipout; default one_pass of a distilled
            model, else moments.
        num_samples: draws behind each answer.
        level: of the interval; default as conformal promised, else 0.9.
        exact: of C, 16 bits for the mean of a weight instead of 8.
        int8: of ONNX, quantise weights and activations, calibrated on 64 examples of --data.
        data: data set whose test part gives the examples; without it they are noise, and a page
            shows none.
        file: CSV or Parquet file whose rows are the examples, read as the model's file says; its
            target may be missing.
        root: folder that holds the data; else $POCKETBAYES_DATA.
        model: your own network, package.module:factory, if the file cannot name it.
    """

    to: str = "onnx"
    estimator: str | None = None
    num_samples: int = 30
    level: float | None = None
    exact: bool = False
    int8: bool = False
    data: str | None = None
    file: Path | None = None
    root: Path | None = None
    model: str | None = None


def run_export(target: Path, out: Path, options: ExportOptions) -> Exported:
    """Writes the file; the record says how large it is, and how near."""
    require_target(target)
    prepare_directory(out.parent)
    if options.int8 and options.data is None and options.file is None:
        raise UsageError("--int8 needs examples to calibrate on: say --data NAME")
    if options.to == "web":
        return _exported_page(target, out, options)
    model = opened_model(target, options.model)
    path = target / MODEL if target.is_dir() else target
    stored, example = stored_with(path), _examples(target, describe(model), options)
    return export(
        model, out, options.to, example=example, estimator=options.estimator,
        num_samples=options.num_samples, level=options.level, int8=options.int8,
        exact=options.exact, tolerance=stored.get("tolerance", TOLERANCE),
    )  # fmt: skip


def _exported_page(target: Path, out: Path, options: ExportOptions) -> Exported:
    """The file goes into the page as it is, if it carries its program."""
    path = target / MODEL if target.is_dir() else target
    is_whole = inspect(path).program is not None
    model = path if is_whole else opened_model(target, options.model)
    has_examples = options.data is not None or options.file is not None  # noise is not shown
    example = _examples(target, described(path), options) if has_examples else None
    return export(
        model, out, options.to, example=example, estimator=options.estimator,
        num_samples=options.num_samples, level=options.level, int8=options.int8,
        exact=options.exact, tolerance=stored_with(path).get("tolerance", TOLERANCE),
    )  # fmt: skip


def _examples(target: Path, known: Description, options: ExportOptions) -> Tensor:
    path = target / MODEL if target.is_dir() else target
    own = trained_on(target, options.data)
    if options.file is not None:
        return rows_of(options.file, known, options.data)
    return example_of(known, path, options.data, options.root, own=own)


def rows_of(table: Path, known: Description, data: str | None, most: int = _EXAMPLES) -> Tensor:
    """The first rows of a file, as the model wants them."""
    preprocess = known.preprocess or {}
    if preprocess.get("kind") != "table" or data not in (None, *_TABLES):
        raise UsageError(
            "--file is the table of --data csv or parquet, for a model of rows"
            + (f"; --data is {data}" if data not in (None, *_TABLES) else "; this model has others")
        )
    return table_from_file(table, preprocess).inputs[:most]


def trained_on(target: Path, data: str | None) -> dict[str, Any]:
    """Options of the data set that a run was trained on, such as its file."""
    config = read_run_config(target) if target.is_dir() else {}
    if data is None or data != config.get("data") or data not in DATASETS:
        return {}
    accepted = options_in(DATASETS[data], skip=("split", "root", "like", "classes"))
    given = {name: config[name] for name in accepted if config.get(name) is not None}
    return {name: accepted[name].parsed(value, "") for name, value in given.items()}


def example_of(
    known: Description,
    file: Path,
    data: str | None,
    root: Path | None,
    most: int = _EXAMPLES,
    own: Mapping[str, Any] = MappingProxyType({}),
) -> Tensor:
    """Inputs of a data set; else noise of the shape that the file tells."""
    if data is not None:
        if data in _TABLES and "file" not in own:
            raise UsageError(
                f"{file} does not tell which table it was trained on: say --file TABLE, whose "
                "rows become the examples, or give the directory of its run in its place"
            )
        dataset = opened_data(data, "test", root, own, known)
        x: Tensor = dataset.batch(torch.arange(min(most, len(dataset))))[0]
        return x
    shape: Any = (known.network or {}).get("options", {}).get("input_shape")
    shape = (known.preprocess or {}).get("shape") or shape
    program = inspect(file).program if shape is None else None
    shape = program["inputs"][0] if program is not None else shape
    if shape is None:
        raise UsageError(
            "the file does not tell the shape of its inputs: say --data NAME, or write it by "
            "save(model, path, example=x)"
        )
    return torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
