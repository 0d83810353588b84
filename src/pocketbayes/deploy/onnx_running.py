"""What onnxruntime says of an exported file: its answers, and those of an int8 version."""

import logging
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from pocketbayes.deploy.plans import Plan
from pocketbayes.errors import PocketBayesError, optional_module
from pocketbayes.layers import tensors_of
from pocketbayes.prediction import predict

Arrays = dict[str, np.ndarray[Any, Any]]
_QUANTIZED = ["Conv", "Gemm", "MatMul"]


def answers_of(data: bytes, plan: Plan) -> Arrays:
    """The answers on the example; of draws, those of seed 0."""
    runtime = optional_module("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, _inputs(plan)), strict=True))


def _inputs(plan: Plan) -> Arrays:
    tensors = zip(plan.names, tensors_of(plan.example), strict=True)
    seed = {"seed": np.zeros((), np.int64)} if plan.is_drawn else {}
    return {name: tensor.numpy() for name, tensor in tensors} | seed


def compared(model: nn.Module, plan: Plan, data: bytes) -> float | None:
    """The largest difference from what `predict` answers; None: it draws, or nothing runs it."""
    try:
        optional_module("onnxruntime", "onnx")
    except PocketBayesError:
        return None
    if plan.is_drawn:
        return None
    found = answers_of(data, plan)
    pred = predict(
        model, plan.example, plan.num_samples, estimator=plan.estimator,
        likelihood=plan.likelihood.name, single=False,
    )  # fmt: skip
    names = [name for name in found if name not in ("label", "prediction_set", "lower", "upper")]
    apart = max(float(np.abs(found[n] - getattr(pred, n).numpy()).max()) for n in names)
    if not math.isfinite(apart):
        raise PocketBayesError(
            "the ONNX file's answers on the example are not finite, those of predict are: pass an "
            "example whose numbers are as in training"
        )
    return apart


class _Batches:
    """The example, once, as onnxruntime's calibration reads it."""

    def __init__(self, plan: Plan) -> None:
        self._left: Iterator[Arrays] = iter([_inputs(plan)])

    def get_next(self) -> Arrays | None:
        """The next batch."""
        return next(self._left, None)


def quantized(data: bytes, plan: Plan) -> tuple[bytes, dict[str, float]]:
    """The same with int8 weights and activations, and how much each answer changes at most."""
    tools = optional_module("onnxruntime.quantization", "onnx")
    prepared = optional_module("onnxruntime.quantization.shape_inference", "onnx")
    with tempfile.TemporaryDirectory() as folder:
        plain, ready, small = (Path(folder) / f"{name}.onnx" for name in ("a", "b", "c"))
        plain.write_bytes(data)
        level = logging.root.manager.disable
        logging.disable(logging.WARNING)
        try:
            prepared.quant_pre_process(plain, ready, skip_symbolic_shape=True)
            tools.quantize_static(
                ready, small, _Batches(plan), quant_format=tools.QuantFormat.QDQ,
                op_types_to_quantize=_QUANTIZED, per_channel=True,
            )  # fmt: skip
        finally:
            logging.disable(level)
        made = small.read_bytes()
    before, after = answers_of(data, plan), answers_of(made, plan)
    change = {
        name: float(np.abs(after[name].astype(np.float64) - before[name]).max()) for name in before
    }
    return made, change
