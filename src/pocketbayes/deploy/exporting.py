"""`export`: a model as a file for runtimes that know nothing of this library."""

import copy
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pocketbayes.codec import (
    TOLERANCE,
    as_stored,
    described,
    inspect,
    load,
    stored_with,
    write_atomically,
)
from pocketbayes.deploy.c_exporting import export_c
from pocketbayes.deploy.exported import Exported
from pocketbayes.deploy.onnx_models import onnx_model
from pocketbayes.deploy.onnx_running import compared, quantized
from pocketbayes.deploy.plans import planned
from pocketbayes.deploy.web_pages import web_page
from pocketbayes.errors import (
    PocketBayesError,
    optional_module,
    require_choice,
    require_count,
    require_number,
    require_truth,
)
from pocketbayes.layers import require_module

FORMATS = ("onnx", "c", "web")


def export(
    model: nn.Module | str | os.PathLike[str],
    path: str | os.PathLike[str],
    to: str = "onnx",
    *,
    example: Any = None,
    estimator: str | None = None,
    num_samples: int = 30,
    likelihood: str | None = None,
    level: float | None = None,
    tolerance: float = TOLERANCE,
    int8: bool = False,
    exact: bool = False,
) -> Exported:
    """Writes the model as a file whose answers are those of `predict`, for other runtimes.

    The answers are named: of classes and labels `probs`, `entropy`, `aleatoric`, `epistemic` and
    `label`, after `conformal` also `prediction_set`; of values and counts `mean`, `std`,
    `aleatoric`, `epistemic` and, where ONNX has the functions for it, `lower` and `upper`. The
    batch may have any size. What `temperature_`, `calibrate_moments_` and `conformal` found is in.
    Weights are the integers of the .pocket file; `metadata_props` has facts as JSON under
    `pocketbayes`. docs/ship.md says more.

    Args:
        model: a Bayesian model, or the path of a .pocket file of a network that `load` can build.
        path: where to; by habit it ends in `.onnx`. A page is `index.html` in a folder, unless the
            path ends in `.html`.
        to: the format: "onnx"; "c", a .c file with a .h file beside it for a microcontroller; or
            "web", a page that asks the model in a browser.
        example: a batch of inputs as the model sees them: tensor, array, tuple or dict of those. Of
            a file that carries its program a page needs none, and shows some if it has them.
        estimator: as in `predict`; None: one pass if taught, else moments, or the mean where no
            weight is random. "lrt", "weight" and "flipout" draw from an input `seed`, a whole
            number from 0 to 2^31 - 1: equal seeds give equal answers. A page takes "one_pass",
            "moments", "mean" or "weight"; None: as `predict`, but it draws whole weights.
        num_samples: draws, fixed from now on.
        likelihood: as in `predict`.
        level: of the interval from `lower` to `upper`; None: what `conformal` promised, else 0.9.
        tolerance: nats per weight that storing it may cost, as in `save`; of a file, its own.
        exact: of C, means of weights by 16 bits instead of 8.
        int8: of ONNX, also quantise weights and activations, calibrated on the example; the record
            says how much answers change.

    Raises:
        PocketBayesError: an operation that cannot be exported, by its name.

    Example:
        >>> print(export(model, "digits.onnx", example=x[:8]))
    """
    require_choice(to, "to", FORMATS)
    require_truth(int8, "int8")
    require_truth(exact, "exact")
    require_count(num_samples, "num_samples")
    if level is not None and require_number(level, "level", above=0, most=1) == 1:
        raise PocketBayesError("level must be below 1; got 1")
    if to == "web":
        if int8 or exact or likelihood is not None:
            raise PocketBayesError(
                "int8, exact and likelihood: a page runs the .pocket file as it is; leave them out"
            )
        return web_page(
            model, Path(path), example, estimator=estimator, num_samples=num_samples, level=level,
            tolerance=tolerance,
        )  # fmt: skip
    if isinstance(model, nn.Module):
        _require_narrow(model)
    if to == "c":
        if int8:
            raise PocketBayesError("int8 is of ONNX: weights in C have 8 bits by themselves")
        stored, pocket_bytes, _ = _stored(model, tolerance)
        plan = planned(stored, example, estimator, likelihood, num_samples, level, has_sets=False)
        return export_c(stored, Path(path), plan, pocket_bytes, exact)
    for name in ("onnx", "onnxscript", *(["onnxruntime"] if int8 else [])):
        optional_module(name, "onnx")
    stored, pocket_bytes, options = _stored(model, tolerance)
    made_for = (example, estimator, likelihood, num_samples, level)
    return _as_onnx(stored, Path(path), made_for, pocket_bytes, options.get("tolerance"), int8)


def _require_narrow(model: nn.Module) -> None:
    """Runtimes know few operations in other types."""
    first = next(model.parameters(), None)
    if first is not None and first.dtype not in (torch.float32, torch.float16):
        raise PocketBayesError(
            f"the model is in {first.dtype}, which runtimes hardly know: export model.float()"
        )


def _as_onnx(
    stored: nn.Module,
    path: Path,
    made_for: tuple[Any, str | None, str | None, int, float | None],
    pocket_bytes: int,
    tolerance: float | None,
    int8: bool,
) -> Exported:
    """The ONNX file; `made_for` are the arguments of `planned` behind the model."""
    to_trace = copy.deepcopy(stored)  # before anything computed by it is kept
    plan = planned(stored, *made_for)
    made = onnx_model(to_trace, plan, tolerance)
    data, change = made.SerializeToString(), None
    if int8:
        data, change = quantized(data, plan)
    apart = None if int8 else compared(stored, plan, data)
    write_atomically(path, lambda file: file.write(data))
    outputs = tuple(value.name for value in made.graph.output)
    values = outputs if "lower" in outputs or plan.likelihood.kind != "values" else ()
    return Exported(
        path=path,
        to="onnx",
        estimator=plan.estimator,
        num_samples=plan.num_samples,
        outputs=outputs,
        bytes=len(data),
        pocket_bytes=pocket_bytes,
        graph_bytes=made.ByteSize() - sum(c.ByteSize() for c in made.graph.initializer),
        compared=apart,
        int8_change=change,
        left_out="" if values else f"no lower and upper: ONNX has no CDF of {plan.likelihood.name}",
    )


def _stored(
    model: nn.Module | str | os.PathLike[str], tolerance: float
) -> tuple[nn.Module, int, dict[str, Any]]:
    """The model as its file has it, the bytes of that file, and how it is stored."""
    if isinstance(model, str | os.PathLike):
        if described(model).network is None:
            has = "carries a program of its network, which is" if inspect(model).program else "is"
            raise PocketBayesError(
                f"{os.fspath(model)} {has} not enough for ONNX and C: they are made from the "
                "network, which the file does not name. Export pb.load(path, net), or say "
                "--model package.module:factory on the command line"
            )
        return load(model), os.path.getsize(model), stored_with(model)
    require_module(model)
    found, size = as_stored(model, tolerance=tolerance)
    return found, size, {"tolerance": tolerance}
