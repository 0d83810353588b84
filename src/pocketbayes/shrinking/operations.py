"""The operations of traced networks, by what they do to channels, and what their arguments say.

An operation is a module's type, a function, or the name of a tensor's method.
"""

import operator
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from pocketbayes.layers import BayesianModule, LinearLayer, plain_class_of, posteriors_of
from pocketbayes.posteriors import Shared
from pocketbayes.shrinking.narrowing import source_of

SUMMING = (
    nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d,
    nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
)  # fmt: skip
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
DROPOUTS: set[Any] = {
    nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d,
    F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, torch.dropout,
}  # fmt: skip
MULTIPLICATIONS: set[Any] = {
    operator.mul, operator.imul, torch.mul, torch.multiply, "mul", "mul_", "multiply",
}  # fmt: skip
# A whole tensor of the same shape, value by value.
ELEMENTWISE: set[Any] = DROPOUTS | MULTIPLICATIONS | {
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish,
    nn.Sigmoid, nn.LogSigmoid, nn.Tanh, nn.Softplus, nn.Softsign, nn.Hardtanh, nn.Hardswish,
    nn.Hardsigmoid, nn.Tanhshrink, nn.Softshrink, nn.Hardshrink, nn.Threshold, nn.Identity,
    F.relu, F.relu_, F.relu6, F.leaky_relu, F.elu, F.selu, F.celu, F.gelu, F.silu, F.mish,
    F.sigmoid, F.logsigmoid, F.tanh, F.softplus, F.softsign, F.hardtanh, F.hardswish,
    F.hardsigmoid, F.tanhshrink, F.softshrink, F.hardshrink, F.threshold,
    torch.relu, torch.relu_, torch.sigmoid, torch.tanh, torch.exp, torch.abs, torch.square,
    torch.neg, torch.sin, torch.cos, torch.pow, torch.clamp, torch.selu, torch.celu,
    torch.add, torch.sub, torch.div, torch.maximum, torch.minimum, torch.clone,
    operator.add, operator.sub, operator.truediv, operator.neg, operator.pos, operator.abs,
    operator.pow,
    operator.iadd, operator.isub, operator.itruediv,
    "relu", "relu_", "sigmoid", "sigmoid_", "tanh", "tanh_", "exp", "abs", "square", "neg", "sin",
    "cos", "clamp", "clamp_", "add", "add_", "sub", "sub_", "div", "div_", "clone", "contiguous",
    "detach", "pow", "float", "double", "half", "bfloat16", "maximum", "minimum",
}  # fmt: skip
# Each channel of (N, C, ...) alone, and over how many dimensions; 0: any number.
SPATIAL: dict[Any, int] = {
    nn.MaxPool1d: 1, nn.MaxPool2d: 2, nn.MaxPool3d: 3,
    nn.AvgPool1d: 1, nn.AvgPool2d: 2, nn.AvgPool3d: 3,
    nn.AdaptiveAvgPool1d: 1, nn.AdaptiveAvgPool2d: 2, nn.AdaptiveAvgPool3d: 3,
    nn.AdaptiveMaxPool1d: 1, nn.AdaptiveMaxPool2d: 2, nn.AdaptiveMaxPool3d: 3,
    nn.ZeroPad1d: 1, nn.ZeroPad2d: 2, nn.ZeroPad3d: 3, nn.ConstantPad2d: 2,
    nn.ReflectionPad1d: 1, nn.ReflectionPad2d: 2, nn.ReplicationPad1d: 1, nn.ReplicationPad2d: 2,
    nn.Upsample: 0, nn.UpsamplingNearest2d: 2, nn.UpsamplingBilinear2d: 2,
    F.max_pool1d: 1, F.max_pool2d: 2, F.max_pool3d: 3,
    F.avg_pool1d: 1, F.avg_pool2d: 2, F.avg_pool3d: 3,
    F.adaptive_avg_pool1d: 1, F.adaptive_avg_pool2d: 2, F.adaptive_avg_pool3d: 3,
    F.adaptive_max_pool1d: 1, F.adaptive_max_pool2d: 2, F.adaptive_max_pool3d: 3,
    F.interpolate: 0,
}  # fmt: skip
_AVERAGES: set[Any] = {
    nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, F.avg_pool1d, F.avg_pool2d, F.avg_pool3d,
}  # fmt: skip
REDUCTIONS: set[Any] = {
    torch.mean, torch.sum, torch.amax, torch.amin, "mean", "sum", "amax", "amin",
    torch.squeeze, "squeeze",
}  # fmt: skip
UNSQUEEZES: set[Any] = {torch.unsqueeze, "unsqueeze"}
FLATTENINGS: set[Any] = {nn.Flatten, torch.flatten, "flatten"}
RESHAPES: set[Any] = FLATTENINGS | {torch.reshape, "view", "reshape"}
CONCATENATIONS: set[Any] = {torch.cat, torch.concat, torch.concatenate}
# These read a size, which is still right when the tensor is smaller.
SIZES: set[Any] = {"size", "dim", "numel", "sizes of a tensor"}
_OVERWRITING = (operator.iadd, operator.isub, operator.imul, operator.itruediv)
_SIZE_ATTRIBUTES = ("shape", "ndim", "device", "dtype", "is_cuda")


def operation_of(node: fx.Node, modules: Mapping[str, nn.Module]) -> Any:
    """What the node does; None: nothing that has a rule."""
    if node.op == "call_module":
        return _kind_of(modules[str(node.target)])
    if node.op == "call_function" and node.target is getattr:
        return "sizes of a tensor" if node.args[1] in _SIZE_ATTRIBUTES else None
    return node.target if node.op in ("call_function", "call_method") else None


def _kind_of(module: nn.Module) -> Any:
    if isinstance(module, LinearLayer):
        return next(kind for kind in SUMMING if isinstance(module, kind))
    if isinstance(module, BayesianModule):
        return plain_class_of(module) if plain_class_of(module) in NORMS else None
    if isinstance(module, nn.PReLU) and module.num_parameters != 1:
        return None
    return type(module)


def is_inplace(node: fx.Node, modules: Mapping[str, nn.Module]) -> bool:
    """Whether the node overwrites its first input."""
    if node.op == "call_module":
        return bool(getattr(modules[str(node.target)], "inplace", False))
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if node.op == "call_function" and node.target in _OVERWRITING:
        return True
    return (name.endswith("_") and name[-2:] != "__") or bool(node.kwargs.get("inplace"))


def argument(node: fx.Node, place: int, name: str) -> Any:
    """An argument by place or name; None: it is not given."""
    return node.args[place] if len(node.args) > place else node.kwargs.get(name)


def dims_of(node: fx.Node, dimensions: int) -> tuple[int, ...] | None:
    """The dimensions that the node names, counted from the front; None: not in so many words."""
    dims = argument(node, 1, "dim")
    dims = (dims,) if isinstance(dims, int) else dims
    if not isinstance(dims, list | tuple) or not all(isinstance(d, int) for d in dims):
        return None
    return tuple(d % dimensions for d in dims)


def follows_width(node: fx.Node, modules: Mapping[str, nn.Module]) -> bool:
    """Whether a reshape takes the size of axis 1 from its input, and not from a number."""
    if operation_of(node, modules) in FLATTENINGS:
        return True
    sizes: Any = node.args[1:] if len(node.args) > 1 else (node.kwargs.get("shape"),)
    sizes = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], list | tuple) else sizes
    return len(sizes) > 1 and (sizes[1] == -1 or isinstance(sizes[1], fx.Node))


def depends_on_size(node: fx.Node, modules: Mapping[str, nn.Module]) -> bool:
    """Whether a constant becomes another one, or several, when the input has another size.

    So it is with sums, and with averages that count zeros at the edges.
    """
    kind = operation_of(node, modules)
    if kind not in _AVERAGES:
        return kind in (torch.sum, "sum")
    options = (3, "padding"), (4, "ceil_mode"), (5, "count_include_pad"), (6, "divisor_override")
    padding, ceil_mode, counted, divisor = (_option(node, modules, *o) for o in options)
    padded = any(p != 0 for p in (padding if isinstance(padding, list | tuple) else [padding or 0]))
    if divisor is not None:
        return padded or ceil_mode not in (None, False)
    return padded and counted is not False


def _option(node: fx.Node, modules: Mapping[str, nn.Module], place: int, name: str) -> Any:
    """What a module or a function was told; None: nothing."""
    if node.op == "call_module":
        return getattr(modules[str(node.target)], name, None)
    return argument(node, place, name)


def pads_axis(node: fx.Node, axis: int, dimensions: int) -> bool:
    """Whether F.pad makes this axis longer, or may do so."""
    pads = argument(node, 1, "pad")
    if not isinstance(pads, list | tuple):
        return True
    place = 2 * (dimensions - 1 - axis)
    return any(p != 0 for p in pads[place : place + 2])


def picks_from_axis(node: fx.Node, axis: int) -> bool:
    """Whether an index does more than to take all of this axis, or moves it."""
    index = node.args[1]
    index = index if isinstance(index, tuple) else (index,)
    if not all(isinstance(item, slice) for item in index):
        return True
    return len(index) > axis and index[axis] != slice(None)


def left_whole(modules: Mapping[str, nn.Module], graph: fx.Graph) -> set[nn.Module]:
    """Modules that are used twice, or whose weights are shared, computed or read by others."""
    calls = Counter(modules[str(n.target)] for n in graph.nodes if n.op == "call_module")
    unique = set(modules.values())
    uses = Counter(id(source) for module in unique for source in _sources(module))
    read = {str(n.target).rpartition(".")[0] for n in graph.nodes if n.op == "get_attr"}
    found = {modules[name] for name in read & set(modules)}
    for module in unique:
        tied = any(uses[id(s)] > 1 or isinstance(s, Shared) for s in _sources(module))
        computed = isinstance(module, SUMMING) and source_of(module, "weight") is None
        if calls[module] > 1 or tied or computed:
            found.add(module)
    return found


def _sources(module: nn.Module) -> list[Any]:
    own: list[Any] = [p for p in module._parameters.values() if p is not None]
    if isinstance(module, BayesianModule):
        own += posteriors_of(module).by_name().values()
    return own
