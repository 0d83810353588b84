"""Draws in a graph: one pass in a loop, the number of the draw being all that changes."""

import math
from typing import Any

from pocketbayes.errors import optional_module

LARGEST_SEED = 2**31 - 1
# Names of values that a drawn graph has of its own.
NAMES = (
    "seed", "number", "output", "draws", "times", "always", "going", "goes_on", "same",
    "least_seed", "largest_seed", "seed_fits", "seed_fails", "seed_inside", "seed_is_good",
    "seed_shape", "seed_shaped", "seed_checked", "nan", "zero", "nan_or_0", "draws_made",
)  # fmt: skip


def looped(one_draw: Any, answers: Any, num_samples: int) -> Any:
    """One model from that of one draw and that of its answers, which has the input `draws`.

    The last input of the first is the number of the draw. What does not depend on it is computed
    once, before the loop.
    """
    onnx = optional_module("onnx", "onnx")
    make = onnx.helper
    onnx.compose.add_prefix(one_draw, "d_", rename_inputs=False, rename_outputs=False, inplace=True)
    before, body = _split_at_the_loop(onnx, one_draw.graph)
    after = onnx.compose.add_prefix(answers, "a_")
    told = {f"a_{old.name}": old.name for old in answers.graph.output} | {"a_draws": "draws"}
    for node in after.graph.node:
        for fields in (node.input, node.output):
            fields[:] = [told.get(name, name) for name in fields]
    nodes = [
        *_checked_seed(make),
        *before,
        make.make_node("Loop", ["times", "always"], ["draws_made"], body=body),
        make.make_node("Add", ["draws_made", "nan_or_0"], ["draws"]),
        *after.graph.node,
    ]
    constants = [
        *_constants(onnx, num_samples),
        *one_draw.graph.initializer,
        *after.graph.initializer,
    ]
    inputs = list(one_draw.graph.input)[:-1]
    graph = make.make_graph(nodes, "pocketbayes", inputs, answers.graph.output, constants)
    return make.make_model(
        graph, opset_imports=one_draw.opset_import, ir_version=one_draw.ir_version
    )


def _split_at_the_loop(onnx: Any, graph: Any) -> tuple[list[Any], Any]:
    """The nodes before the loop, and its body: what depends on the number of the draw."""
    make, number, output = onnx.helper, graph.input[-1], graph.output[0]
    changing, inside, before = {number.name}, list[Any](), list[Any]()
    single = {c.name for c in graph.initializer if not any(n > 1 for n in c.dims)}
    for node in graph.node:
        # Copies of one number are made where they are read: onnxruntime tries to take the places of
        # those before the loop, and warns that it cannot.
        is_fill = node.op_type == "Expand" and node.input[0] in single
        depends = is_fill or not changing.isdisjoint(node.input)
        (inside if depends else before).append(node)
        if depends:
            changing.update(node.output)
        node.input[:] = ["seed_checked" if name == "seed" else name for name in node.input]
    inside.append(make.make_node("Identity", ["going"], ["goes_on"]))
    if output.name not in changing:  # no draw is used: repeated as it is
        inside.append(make.make_node("Identity", [output.name], ["same"]))
        output.name = "same"
    going = [
        make.make_tensor_value_info(n, onnx.TensorProto.BOOL, []) for n in ("going", "goes_on")
    ]
    return before, make.make_graph(inside, "draw", [number, going[0]], [going[1], output])


def _constants(onnx: Any, num_samples: int) -> list[Any]:
    """What a loop and the check of its seed read."""
    kinds = onnx.TensorProto
    return [
        onnx.helper.make_tensor(name, kind, shape, [value])
        for name, kind, shape, value in (
            ("least_seed", kinds.INT64, [], 0), ("largest_seed", kinds.INT64, [], LARGEST_SEED),
            ("seed_fits", kinds.INT64, [1], 1), ("seed_fails", kinds.INT64, [1], 2),
            ("zero", kinds.FLOAT, [], 0.0), ("nan", kinds.FLOAT, [], math.nan),
            ("times", kinds.INT64, [], num_samples), ("always", kinds.BOOL, [], True),
        )
    ]  # fmt: skip


def _checked_seed(make: Any) -> list[Any]:
    """Nodes from the seed to itself, of which one fails if it is out of bounds.

    ONNX has no errors of its own: one number does not fit the shape (2,), and onnxruntime then
    tells the name of the node. OpenVINO lets it pass, so answers become NaN, too.
    """
    name = "seed must be a whole number from 0 to 2^31 - 1"
    return [
        make.make_node("Clip", ["seed", "least_seed", "largest_seed"], ["seed_inside"]),
        make.make_node("Equal", ["seed", "seed_inside"], ["seed_is_good"]),
        make.make_node("Where", ["seed_is_good", "zero", "nan"], ["nan_or_0"]),
        make.make_node("Where", ["seed_is_good", "seed_fits", "seed_fails"], ["seed_shape"]),
        make.make_node("Reshape", ["seed", "seed_shape"], ["seed_shaped"], name=name),
        make.make_node("Squeeze", ["seed_shaped"], ["seed_checked"]),
    ]
