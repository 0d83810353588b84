"""A module to an ONNX graph, by torch's own exporter; then what makes that graph small."""

import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pocketbayes.errors import PocketBayesError, optional_module

OPSET = 18  # of runtimes of today the least that has all operations
_MOST_FOLDED = 64  # numbers of a constant that others may be computed from beforehand
_LEAST_NARROWED = 16  # numbers of a constant that is stored in a smaller type
_NAME = re.compile(
    r"op='([^']+)'|(?:operator|target|function) '?((?:aten|prims|torchvision)[.:\w]+)"
)


def traced(
    module: nn.Module,
    args: Sequence[Tensor],
    inputs: Sequence[str],
    outputs: Sequence[str],
    batch_axes: Sequence[int | None],
) -> Any:
    """The ONNX model (a ModelProto) of a module on these arguments, some with a free batch axis."""
    batch = torch.export.Dim.DYNAMIC
    shapes = tuple({} if axis is None else {axis: batch} for axis in batch_axes)
    with _quiet(), torch.no_grad(), _named_failure():
        program = torch.export.export(
            module, tuple(args), dynamic_shapes={"tensors": shapes}, strict=False
        )
        made = torch.onnx.export(
            program,
            input_names=list(inputs),
            output_names=list(outputs),
            opset_version=OPSET,
            optimize=False,
            verbose=False,
            custom_translation_table={torch.ops.aten.split.Tensor: _split},
        )
        assert made is not None
        _fold_(made.model)
        return made.model_proto


def _fold_(model: Any) -> None:
    """Computes what needs no input and is small; never what codes stand for."""
    folding = optional_module("onnxscript.optimizer", "onnx")
    passes = optional_module("onnx_ir.passes.common", "onnx")
    passes.InlinePass()(model)
    folding.fold_constants(
        model, onnx_shape_inference=False, input_size_limit=_MOST_FOLDED, output_size_limit=1024
    )
    for change in (
        passes.RemoveUnusedNodesPass(),
        passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        passes.DeduplicateInitializersPass(),
        passes.CommonSubexpressionEliminationPass(),
        passes.RemoveUnusedNodesPass(),
        passes.OutputFixPass(),
        passes.NameFixPass(),
    ):
        change(model)


def _split(x: Any, size: int, dim: int = 0) -> list[Any]:
    """Slices, since runtimes differ in how they take sequences."""
    operations = optional_module("onnxscript", "onnx").opset18
    ends = range(0, x.shape[dim], size)
    return [operations.Slice(x, [at], [at + size], [dim]) for at in ends]


@contextmanager
def _quiet() -> Iterator[None]:
    """Torch tells its own developers much that is no news to users."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextmanager
def _named_failure() -> Iterator[None]:
    """Turns what torch's exporter says of an operation that it cannot export into a plain error."""
    try:
        yield
    except Exception as error:
        chain, cause = list[BaseException](), error
        while cause is not None and cause not in chain:
            chain.append(cause)
            cause = cause.__cause__ or cause.__context__  # type: ignore[assignment]
        for one in chain:
            if isinstance(one, PocketBayesError):
                raise one from None
        found = next((m for one in chain if (m := _NAME.search(str(one)))), None)
        name = next(filter(None, found.groups())) if found else ""
        what = (
            f"the operation {name!r} has no form in ONNX" if name else str(chain[-1]).split("\n")[0]
        )
        raise PocketBayesError(
            f"this network cannot be exported to ONNX: {what}. Write it by other operations, or "
            'try another estimator, such as "mean"'
        ) from error


def refuse_hidden_draws(model: Any) -> None:
    """An error if some node draws numbers that no seed decides."""
    for node in model.graph.node:
        if node.op_type.startswith(("Random", "Bernoulli", "Multinomial")):
            raise PocketBayesError(
                f"the network draws numbers by itself (ONNX would have {node.op_type}, which no "
                'seed decides): take that out, or export by estimator="mean"'
            )


def slim_(model: Any) -> None:
    """Forgets where nodes came from, and stores constants in smaller types where none is lost."""
    onnx = optional_module("onnx", "onnx")
    _drop_casts_(model)
    graph, casts = model.graph, []
    del graph.value_info[:], model.metadata_props[:], model.functions[:]
    for node in graph.node:
        node.doc_string, node.name = "", ""
        del node.metadata_props[:]
    for constant in graph.initializer:
        values = onnx.numpy_helper.to_array(constant)
        small = _narrowed(values)
        if small is not values:
            cast_to, name = constant.data_type, constant.name
            constant.CopyFrom(onnx.numpy_helper.from_array(small, f"{name}_small"))
            casts.append(onnx.helper.make_node("Cast", [f"{name}_small"], [name], to=cast_to))
        constant.doc_string = ""
    kept = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(kept)
    _shorten_names_(graph)


def _drop_casts_(model: Any) -> None:
    """Without casts of a type to itself: onnxruntime warns where it cannot take them away."""
    onnx = optional_module("onnx", "onnx")
    known = onnx.shape_inference.infer_shapes(model).graph
    types = {v.name: v.type.tensor_type.elem_type for v in (*known.value_info, *known.input)}
    types |= {c.name: c.data_type for c in known.initializer}
    outputs, kept, same = {v.name for v in known.output}, list[Any](), dict[str, str]()
    for node in model.graph.node:
        node.input[:] = [same.get(name, name) for name in node.input]
        is_cast = node.op_type == "Cast" and node.output[0] not in outputs
        if is_cast and types.get(node.input[0]) == node.attribute[0].i:
            same[node.output[0]] = node.input[0]
        else:
            kept.append(node)
    del model.graph.node[:]
    model.graph.node.extend(kept)


def _narrowed(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same numbers in a smaller type; as they are if there is none, or they are few."""
    if values.size < _LEAST_NARROWED or values.dtype not in (np.float32, np.int64):
        return values
    smaller = (np.float16,) if values.dtype == np.float32 else (np.uint8, np.int16, np.int32)
    for kind in smaller:
        with np.errstate(all="ignore"):
            small = values.astype(kind)
        if (small.astype(values.dtype) == values).all():
            return small
    return values


def _shorten_names_(graph: Any) -> None:
    """Numbers in place of the names of what is neither input nor output: names were a third."""
    outside = {value.name for value in (*graph.input, *graph.output)}
    inside = dict.fromkeys(c.name for c in graph.initializer)
    inside |= dict.fromkeys(name for node in graph.node for name in node.output)
    short = {name: str(number) for number, name in enumerate(inside) if name not in outside}
    for constant in graph.initializer:
        constant.name = short.get(constant.name, constant.name)
    for node in graph.node:
        for fields in (node.input, node.output):
            fields[:] = [short.get(name, name) for name in fields]
