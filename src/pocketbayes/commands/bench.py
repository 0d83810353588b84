"""`pocketbayes bench`: what an answer costs, through every runtime that is installed."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from pocketbayes.codec import inspect
from pocketbayes.commands.evaluate import require_target
from pocketbayes.commands.export import example_of, rows_of, trained_on
from pocketbayes.commands.flags import UsageError
from pocketbayes.commands.opening import opened_model
from pocketbayes.commands.runs import MODEL
from pocketbayes.deploy import RUNTIMES, Timing, export, installed, reads_onnx, timed
from pocketbayes.errors import (
    PocketBayesError,
    require_choice,
    require_count,
    require_number,
    warn,
)
from pocketbayes.layers import describe
from pocketbayes.likelihoods import likelihood_of
from pocketbayes.prediction import chosen_estimator

ESTIMATORS = ("one_pass", "moments", "mean", "weight", "lrt", "flipout")


@dataclass(frozen=True)
class BenchOptions:
    """Options of `bench`.

    Attributes:
        estimator: one_pass, moments, mean or weight; default as predict takes it.
        runtimes: torch, engine, onnxruntime, openvino, with commas; default those installed.
        batch_sizes: how many examples at a time, with commas.
        threads: of torch, onnxruntime and OpenVINO; the engine has one.
        seconds: to spend on each runtime and batch size.
        data: data set whose test part gives the examples; without it they are noise.
        file: CSV or Parquet file whose rows are the examples.
        root: folder that holds the data; else $POCKETBAYES_DATA.
        model: your own network, package.module:factory, if the file cannot name it.
    """

    estimator: str | None = None
    runtimes: str | None = None
    batch_sizes: str = "1,64"
    threads: int = 1
    seconds: float = 1.0
    data: str | None = None
    file: Path | None = None
    root: Path | None = None
    model: str | None = None


def run_bench(target: Path, options: BenchOptions) -> tuple[str, list[Timing]]:
    """The estimator, and what each runtime takes."""
    require_target(target)
    require_count(options.threads, "threads")
    require_number(options.seconds, "seconds", above=0, most=60)
    if options.estimator is not None:
        require_choice(options.estimator, "estimator", ESTIMATORS)
    names, sizes = _wanted(options.runtimes), _sizes(options.batch_sizes)
    file = target / MODEL if target.is_dir() else target
    model = opened_model(target, options.model)
    by = options.estimator or chosen_estimator(model, None, likelihood_of(model, None))
    by = by or describe(model).estimator or "weight"
    if options.file is not None:
        x = rows_of(options.file, describe(model), options.data, max(sizes))
    else:
        own = trained_on(target, options.data)
        x = example_of(describe(model), file, options.data, options.root, max(sizes), own)
    x = x.repeat(-(-max(sizes) // len(x)), *(1 for _ in x.shape[1:]))
    with tempfile.TemporaryDirectory() as folder:
        files = {name: file for name in names if not reads_onnx(name)}
        if inspect(file).program is None and "engine" in files:
            del files["engine"]
            warn("engine is left out: the file has no program; write it by save(..., example=x)")
        if any(map(reads_onnx, names)):
            files |= _exported(model, Path(folder), x, by, names)
        found = timed(
            files, x.numpy(), estimator=by, network=options.model, batches=sizes,
            threads=options.threads, seconds=options.seconds,
        )  # fmt: skip
    if not found:
        raise PocketBayesError("no runtime could be measured: see the warnings above")
    return by, found


def _exported(
    model: nn.Module, folder: Path, x: Tensor, by: str, names: list[str]
) -> dict[str, Path]:
    """The model as ONNX, for the runtimes that read it; none if it cannot be."""
    try:
        made = export(model, folder / "model.onnx", example=x[:8], estimator=by)
    except PocketBayesError as error:
        warn(f"ONNX is left out: {error}")
        return {}
    return dict.fromkeys(filter(reads_onnx, names), made.path)


def _wanted(runtimes: str | None) -> list[str]:
    if runtimes is None:
        return installed()
    names = [require_choice(name.strip(), "runtimes", RUNTIMES) for name in runtimes.split(",")]
    missing = sorted({*names} - {*installed(names)})
    if missing:
        raise UsageError(f"not installed: {', '.join(missing)}")
    return names


def _sizes(text: str) -> list[int]:
    try:
        sizes = [int(word) for word in text.split(",")]
    except ValueError as error:
        raise UsageError(
            f"--batch-sizes takes numbers with commas, such as 1,64; got {text}"
        ) from error
    for size in sizes:
        require_count(size, "batch_sizes")
    return sizes
