"""The operations of torch by what they do to channels, and what their arguments say.

An operation is known by its name without underscores around it: `torch.relu`, `F.relu` and
`Tensor.relu_` are all "relu".
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

DROPOUTS = {"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout"}
MULTIPLICATIONS = {"mul", "imul", "rmul", "multiply"}
RANDOM = {
    "rand_like",
    "randn_like",
    "empty_like",
    "bernoulli",
    "normal",
    "uniform",
    "gumbel_softmax",
}
# Number by number, of tensors that broadcast.
ELEMENTWISE = DROPOUTS | MULTIPLICATIONS | {
    "relu", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "mish", "sigmoid",
    "logsigmoid", "tanh", "softplus", "softsign", "hardtanh", "hardswish", "hardsigmoid",
    "tanhshrink", "softshrink", "hardshrink", "threshold", "erf", "erfc", "rrelu",
    "exp", "expm1", "log", "log1p", "log2", "log10", "abs", "absolute", "square", "sqrt", "rsqrt",
    "reciprocal", "neg", "negative", "positive", "pos", "sin", "cos", "tan", "atan", "sinh", "cosh",
    "asin", "acos", "sign", "floor", "ceil", "round", "trunc", "frac", "nan_to_num", "invert",
    "add", "radd", "iadd", "sub", "rsub", "isub", "subtract", "div", "rdiv", "truediv", "rtruediv",
    "itruediv", "divide", "floordiv", "floor_divide", "mod", "remainder", "fmod", "pow", "rpow",
    "ipow", "maximum", "minimum", "fmax", "fmin", "clamp", "clamp_min", "clamp_max", "clip", "lerp",
    "addcmul", "addcdiv", "atan2", "where", "masked_fill", "copy", "heaviside",
    "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "logical_not", "logical_and",
    "logical_or", "logical_xor", "and", "or", "xor", "rand", "ror", "bitwise_not", "bitwise_and",
    "bitwise_or",
    "clone", "contiguous", "detach", "data", "float", "double", "half", "bfloat16", "to", "type",
    "type_as", "cpu", "cuda", "bool", "int", "long", "requires_grad", "zeros_like", "ones_like",
    "full_like", "rand_like", "randn_like", "empty_like", "zero", "fill", "tril", "triu",
}  # fmt: skip
# The same numbers in other places, with no word of which channels these are.
MOVES = {
    "view", "reshape", "flatten", "unflatten", "permute", "transpose", "swapaxes", "swapdims", "t",
    "T", "mT", "adjoint", "movedim", "moveaxis", "squeeze", "unsqueeze", "expand", "expand_as",
    "broadcast_to", "repeat", "tile", "repeat_interleave", "flip", "view_as", "reshape_as", "chunk",
    "split", "split_with_sizes", "tensor_split", "cat", "concat", "concatenate", "stack", "ravel",
    "broadcast_tensors", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "atleast_2d",
    "native_channel_shuffle", "unfold",
}  # fmt: skip
# Places along axes that are named by number, and the place of the axis among the arguments.
PICKS = {
    "select": 1, "narrow": 1, "index_select": 1, "gather": 1, "take_along_dim": 2, "unbind": 1,
    "roll": 2,
}  # fmt: skip
# Each channel of (N, C, ...) alone; over as many dimensions as the name says.
SPATIAL = {
    *(f"{kind}_pool{k}d" for kind in ("max", "avg", "adaptive_avg", "adaptive_max")
      for k in (1, 2, 3)),
    *(f"max_pool{k}d_with_indices" for k in (1, 2, 3)),
    *(f"adaptive_max_pool{k}d_with_indices" for k in (1, 2, 3)),
    "interpolate", "upsample",
}  # fmt: skip
# Along axes, and the place of these among the arguments.
REDUCTIONS = {
    "mean": 1, "sum": 1, "amax": 1, "amin": 1, "max": 1, "min": 1, "std": 1, "var": 1, "prod": 1,
    "logsumexp": 1, "argmax": 1, "argmin": 1, "median": 1, "any": 1, "all": 1, "norm": 2,
}  # fmt: skip
SCANS = {
    "softmax": 1, "log_softmax": 1, "softmin": 1, "cumsum": 1, "cumprod": 1, "sort": 1,
    "argsort": 1, "normalize": 2,
}  # fmt: skip
# A constant is the same for any number of places.
_STEADY = {"mean", "amax", "amin", "max", "min", "median", "any", "all"}
_ADAPTED = (
    "view", "reshape", "unflatten", "expand", "split", "split_with_sizes", "repeat", "broadcast_to",
    "batch_norm", "instance_norm", "prelu",
)  # fmt: skip


@dataclass(frozen=True)
class Call:
    """One operation: its name, the function, its arguments and what came out."""

    name: str
    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors among the arguments."""
        return tensors_in((self.args, self.kwargs))

    @property
    def output(self) -> Tensor:
        """The first tensor that came out."""
        return tensors_in(self.result)[0]

    def option(self, place: int, name: str, default: Any = None) -> Any:
        """An argument by place or name."""
        return self.args[place] if len(self.args) > place else self.kwargs.get(name, default)

    def again(self, args: Any, kwargs: Any) -> Any:
        """The same operation with other arguments."""
        with torch._C.DisableTorchFunctionSubclass():
            return self.func(*args, **{k: v for k, v in kwargs.items() if k != "out"})


def name_of(func: Any) -> str:
    """The operation's name; that of a property for its getter."""
    name = getattr(func, "__name__", "")
    return getattr(func.__self__, "__name__", name) if name == "__get__" else name


def tensors_in(value: Any) -> list[Tensor]:
    """All tensors in nested tuples, lists and dictionaries."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def outputs_in(value: Any) -> list[Tensor]:
    """All tensors in what a network returns, also in objects of classes that torch does not know.

    Caches of keys and values, which transformers return beside, are not looked into.
    """
    found, left, seen = list[Tensor](), [value], set[int]()
    while left:
        for leaf in tree_leaves(left.pop()):
            if isinstance(leaf, Tensor):
                found.append(leaf)
            elif id(leaf) not in seen and not _is_cache(leaf):
                seen.add(id(leaf))
                left.append(dict(getattr(leaf, "__dict__", {})))
    return found


def _is_cache(value: object) -> bool:
    return any("transformers.cache_utils" in kind.__module__ for kind in type(value).__mro__)


def axes_of(call: Call, place: int, dimensions: int) -> tuple[int, ...]:
    """The axes that the operation names, counted from the front; all, if it names none."""
    dims = call.option(place, "dim", call.kwargs.get("axis", call.kwargs.get("dims")))
    dims = (dims,) if isinstance(dims, int) and not isinstance(dims, bool) else dims
    if not isinstance(dims, list | tuple) or not all(isinstance(d, int) for d in dims):
        return tuple(range(dimensions))
    return tuple(d % dimensions for d in dims) or tuple(range(dimensions))


def depends_on_size(call: Call) -> bool:
    """Whether a constant becomes another one, or several, when the input has another size.

    So it is with sums, and with averages that count zeros at the edges.
    """
    if call.name in REDUCTIONS:
        return call.name not in _STEADY
    if not call.name.startswith("avg_pool"):
        return False
    options = (3, "padding"), (4, "ceil_mode"), (5, "count_include_pad"), (6, "divisor_override")
    padding, ceil_mode, counted, divisor = (call.option(*o) for o in options)
    padded = any(p != 0 for p in (padding if isinstance(padding, list | tuple) else [padding or 0]))
    if divisor is not None:
        return padded or ceil_mode not in (None, False)
    return padded and counted is not False


def picked_axes(call: Call) -> tuple[int, ...]:
    """The axes along which places are taken by their numbers."""
    dimensions = call.args[0].dim()
    if call.name in PICKS:
        default = 0 if call.name == "unbind" else None
        if call.option(PICKS[call.name], "dim", default) == 0:
            return (0,)
        return axes_of(call, PICKS[call.name], dimensions)
    return _indexed(call.args[1], dimensions) if call.name == "getitem" else ()


def _indexed(index: Any, dimensions: int) -> tuple[int, ...]:
    items = index if isinstance(index, tuple) else (index,)
    wide = [
        i.dim() if isinstance(i, Tensor) and i.dtype == torch.bool else i is not None for i in items
    ]
    used = sum(int(w) for w, i in zip(wide, items, strict=True) if i is not Ellipsis)
    found, axis = list[int](), 0
    for item, width in zip(items, wide, strict=True):
        if item is Ellipsis:
            axis += dimensions - used
        elif item is not None:
            whole = isinstance(item, slice) and item == slice(None)
            found += [] if whole else range(axis, axis + int(width))
            axis += int(width)
    return tuple(found)


def is_adapted(name: str) -> bool:
    """Whether the operation is told sizes, which a module may keep as numbers."""
    return name in _ADAPTED
