"""Draws in a graph: one pass in a loop, the number of the draw being all that changes."""

from typing import Any

from pocketbayes.errors import optional_module


def looped(one_draw: Any, answers: Any, num_samples: int) -> Any:
    """One model from that of one draw and that of its answers, which has the input `draws`.

    The last input of the first is the number of the draw. What does not depend on it is computed
    once, before the loop.
    """
    onnx = optional_module("onnx", "onnx")
    make = onnx.helper
    onnx.compose.add_prefix(one_draw, "d_", rename_inputs=False, rename_outputs=False, inplace=True)
    *inputs, number = one_draw.graph.input
    changing = {number.name}
    inside, before = list[Any](), list[Any]()
    for node in one_draw.graph.node:
        depends = not changing.isdisjoint(node.input)
        (inside if depends else before).append(node)
        if depends:
            changing.update(node.output)
    output = one_draw.graph.output[0]
    inside.append(make.make_node("Identity", ["going"], ["goes_on"]))
    if output.name not in changing:  # no draw is used: repeated as it is
        inside.append(make.make_node("Identity", [output.name], ["same"]))
        output.name = "same"
    going = [
        make.make_tensor_value_info(n, onnx.TensorProto.BOOL, []) for n in ("going", "goes_on")
    ]
    body = make.make_graph(inside, "draw", [number, going[0]], [going[1], output])
    after = onnx.compose.add_prefix(answers, "a_")
    told = {f"a_{old.name}": old.name for old in answers.graph.output} | {"a_draws": "draws"}
    nodes = [*before, make.make_node("Loop", ["times", "always"], ["draws"], body=body)]
    for node in after.graph.node:
        for fields in (node.input, node.output):
            fields[:] = [told.get(name, name) for name in fields]
        nodes.append(node)
    constants = [
        make.make_tensor("times", onnx.TensorProto.INT64, [], [num_samples]),
        make.make_tensor("always", onnx.TensorProto.BOOL, [], [True]),
        *one_draw.graph.initializer,
        *after.graph.initializer,
    ]
    graph = make.make_graph(nodes, "pocketbayes", inputs, answers.graph.output, constants)
    return make.make_model(
        graph, opset_imports=one_draw.opset_import, ir_version=one_draw.ir_version
    )
