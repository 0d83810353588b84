"""One function an operation: the calls that compute it, and its moments."""

from collections.abc import Callable, Sequence
from typing import Any

from pocketbayes.deploy.c_functions import FUNCTIONS
from pocketbayes.deploy.c_memory import At
from pocketbayes.deploy.c_passes import Pass, Shape, Value
from pocketbayes.deploy.c_tables import real
from pocketbayes.moments import positions_regrouped
from pocketbayes.programs import Weight

Rule = Callable[..., None]
RULES: dict[str, Rule] = {}
_SLOPES = {"relu": 0.0, "abs": -1.0}
_FEW_NODES, _MANY_NODES = 16, 64


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def entered(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return entered


def run_operation(body: Pass) -> None:
    """Adds the calls of the operation of this step."""
    operation = body.operation()
    if operation.name not in RULES:
        raise body.refusal()
    RULES[operation.name](body, *operation.fields)


@_rule("linear")
def _linear(body: Pass, x: Any, weight: Weight, bias: Any) -> None:
    value = body.value(x)
    kind = body.row(weight, bias, len(value.shape) == 1)
    outputs, inputs = body.source.mean_of(weight).shape
    sides = value.size // inputs, inputs, outputs
    _product(body, "linear", kind, value, weight, bias, len(value.shape) - 1, sides)


@_rule("conv")
def _conv(body: Pass, x: Any, weight: Weight, bias: Any, groups: int, *lists: Shape) -> None:
    value = body.value(x)
    kind = body.row(weight, bias, True)
    shape = body.source.mean_of(weight).shape
    number = body.step + len(body.source.program.inputs)
    out = body.source.shapes[number]
    window = _window(body, value.shape, out, (shape[2:], *lists), groups, 0)
    _product(body, "conv", kind, value, weight, bias, 0, (), window)


def _product(
    body: Pass, name: str, kind: str, x: Value, weight: Weight, bias: Any, features: int,
    sides: Sequence[int], *before: str,
) -> None:  # fmt: skip
    """Noise is common where it was, and everywhere else if one draw serves all positions."""
    noisy = [w is not None and body.source.variance_of(w) is not None for w in (weight, bias)]
    random = body.source.carries and (x.is_random or any(noisy))
    every = any(noisy) and body.source.is_common(weight)
    common = tuple((every or c) and i != features for i, c in enumerate(x.common))
    y = body.result(random, common)
    table = f"&w{body.step}"
    if random:
        args = (x.mean, x.variance or "0", y.mean, y.variance)
        body.call(f"{name}_{kind}_moments", table, *before, *args, *sides)
    else:
        body.call(f"{name}_{kind}", table, *before, x.mean, y.mean, *sides)


def _window(
    body: Pass, x: Shape, y: Shape, lists: Sequence[Shape], groups: int, counted: int
) -> str:
    """A `window` in C, of kernel, stride, padding and dilation of one or two axes."""
    axes = len(lists[0])
    fillers = (1, 1, 0, 1)
    pairs = [(fill,) * (2 - axes) + tuple(each) for each, fill in zip(lists, fillers, strict=True)]
    around = [(1,) * (2 - axes) + s[len(s) - axes :] for s in (x, y)]
    channels, outputs = (_size(s[: len(s) - axes]) for s in (x, y))
    sides = ", ".join(f"{{{a}, {b}}}" for a, b in (*around, *pairs))
    fields = f"{channels}, {outputs}, {groups}, {sides}, {counted}"
    return body.tables.window(f"g{body.step}", fields)


def _size(shape: Shape) -> int:
    size = 1
    for side in shape:
        size *= side
    return size


@_rule("norm")
def _norm(body: Pass, x: Any, *_: Any) -> None:
    number = body.step + len(body.source.program.inputs)
    if number in body.folded:
        return
    value, tables = body.value(x), body.tables
    scale, shift = body.norm(body.operation())
    names = [tables.floats(f"{n}{body.step}", v) for n, v in (("scale", scale), ("shift", shift))]
    y = body.result(value.is_random, value.common, value)
    sides = value.shape[0], _size(value.shape[1:])
    body.call("norm", *names, value.mean, y.mean, *sides)
    if y.variance is not None:
        body.call("norm", names[0], "0", value.variance, y.variance, *sides)


@_rule("reshape", "dropout")
def _reshape(body: Pass, x: Any, *_: Any) -> None:
    value = body.value(x)
    shape = body.source.shapes[body.step + len(body.source.program.inputs)]
    common = (False,) * len(shape)
    if any(value.common):
        common = positions_regrouped(value.common, value.shape, shape)
    body.alias(x, shape, common)


@_rule("add", "subtract")
def _add(body: Pass, a: Any, b: Any) -> None:
    one, other = body.value(a), body.value(b)
    if one.shape != other.shape:
        raise body.refusal(f"of shapes {one.shape} and {other.shape}")
    if a == b and one.is_random:
        raise body.refusal("of a value and itself")
    common = tuple(map(max, one.common, other.common))
    y = body.result(one.is_random or other.is_random, common, one if one.is_random else other)
    sign = "1" if body.operation().name == "add" else "-1"
    body.call("add", one.mean, other.mean, sign, y.mean, one.size)
    both = [v.variance for v in (one, other) if v.variance is not None]
    if len(both) == 2:
        body.call("add", *both, "1", y.variance, one.size)
    elif both and both[0] is not y.variance:
        body.call("copy", *both, y.variance, one.size)


@_rule(*(name for name in FUNCTIONS if name != "square"))
def _function(body: Pass, x: Any, *constants: float) -> None:
    value, name = body.value(x), body.operation().name
    y = body.result(value.is_random, value.common, value)
    a, b = (real(c) for c in (*constants, 0.0, 0.0)[:2])
    places = value.mean, value.variance, y.mean, y.variance, value.size
    if not value.is_random:
        _applied(body, name, value.mean, y.mean, value.size, a, b)
    elif name == "affine":
        _applied(body, name, value.mean, y.mean, value.size, a, b)
        _applied(body, "square", value.variance, y.variance, value.size, a, b)
    elif name in ("relu", "abs", "leaky_relu"):
        body.call("leaky_moments", *places, real(_SLOPES.get(name, (*constants, 0.0)[0])))
    elif name == "clamp":
        body.call("clipped_moments", *places, a, b, "1", "0")
    elif name == "hardsigmoid":
        body.call("clipped_moments", *places, "-3", "3", "1 / 6.0f", "0.5f")
    else:
        nodes = _MANY_NODES if name == "hardswish" else _FEW_NODES
        body.nodes.add(nodes)
        body.functions.add(name)
        body.call(
            "quadrature", f"nodes{nodes}", f"COUNT(nodes{nodes}) / 2", f"f_{name}", *places, a, b
        )


def _applied(body: Pass, name: str, *args: Any) -> None:
    body.functions.add(name)
    body.call("apply", f"f_{name}", *args)


@_rule("max_pool")
def _max_pool(body: Pass, x: Any, *fields: Any) -> None:
    *lists, _ = fields
    value = body.value(x)
    y = body.result(value.is_random, value.common, _in_place(body, value, lists[2]))
    window, axes = _window(body, value.shape, y.shape, lists, 1, 0), len(lists[0])
    if value.is_random and not all(value.common[-axes:]):
        body.window = max(body.window, _size(lists[0]))
        body.call("max_pool_moments", window, value.mean, value.variance, y.mean, y.variance)
        return
    body.call("max_pool", window, value.mean, value.variance or "0", y.mean, y.variance or "0")


def _in_place(body: Pass, x: Value, padding: Shape) -> Value | None:
    """A pooling may write over its input: number k of the result is made of numbers k and on."""
    shape = body.source.shapes[body.step + len(body.source.program.inputs)]
    smaller = all(a <= b for a, b in zip(shape, x.shape, strict=True))
    return x if smaller and not any(padding) else None


@_rule("avg_pool")
def _avg_pool(
    body: Pass, x: Any, kernel: Shape, stride: Shape, padding: Shape, _: int, n: int
) -> None:
    _averages(body, x, (kernel, stride, padding, (1,) * len(kernel)), n)


@_rule("adaptive_avg_pool")
def _adaptive(body: Pass, x: Any, sizes: Shape) -> None:
    _averages(body, x, _adaptive_lists(len(sizes)), 1)


def _adaptive_lists(axes: int) -> tuple[Shape, ...]:
    """No stride, by which C knows them."""
    return (1,) * axes, (0,) * axes, (0,) * axes, (1,) * axes


def _averages(body: Pass, x: Any, lists: Sequence[Shape], counted: int) -> None:
    value = body.value(x)
    y = body.result(value.is_random, value.common, _in_place(body, value, lists[2]))
    window, axes = _window(body, value.shape, y.shape, lists, 1, counted), len(lists[0])
    body.call("avg_pool", window, value.mean, y.mean, 0)
    if value.is_random:
        how = 2 if all(value.common[-axes:]) else 1
        body.call("avg_pool", window, value.variance, y.variance, how)


@_rule("mean")
def _mean(body: Pass, x: Any, axes: Shape, keep: int) -> None:
    value = body.value(x)
    rank = len(value.shape)
    if not axes or tuple(axes) != tuple(range(rank - len(axes), rank)):
        raise body.refusal(f"over axes {axes} of {value.shape}, which are not the last")
    noise = {value.common[a] for a in axes if value.shape[a] > 1}
    if value.is_random and len(noise) > 1:
        raise body.refusal("over axes along some of which noise is common")
    y = body.result(value.is_random, value.common[: axes[0]] + (False,) * (len(axes) * keep))
    channels = _size(value.shape[: axes[0]])
    flat = (channels, value.size // channels, 1)
    window = _window(body, flat, (channels, 1, 1), _adaptive_lists(2), 1, 1)
    body.call("avg_pool", window, value.mean, y.mean, 0)
    if value.is_random:
        body.call("avg_pool", window, value.variance, y.variance, 2 if noise == {True} else 1)


@_rule("slice")
def _slice(body: Pass, x: Any, axis: int, start: int, step: int, count: int) -> None:
    value = body.value(x)
    steps = list(_steps(value.shape))
    first = start * steps[axis]
    steps[axis] *= step
    kept = [c and not (i == axis and count == 1) for i, c in enumerate(value.common)]
    y = body.result(value.is_random, tuple(kept))
    _moved(body, value, y, y.shape, steps, _steps(y.shape), first, 0)


@_rule("pad")
def _pad(body: Pass, x: Any, axis: int, before: int, _: int) -> None:
    value = body.value(x)
    y = body.result(value.is_random, value.common)
    for place in (y.mean, y.variance) if value.is_random else (y.mean,):
        body.call("zero", place, y.size)
    steps = _steps(y.shape)
    _moved(body, value, y, value.shape, _steps(value.shape), steps, 0, before * steps[axis])


@_rule("permute")
def _permute(body: Pass, x: Any, axes: Shape) -> None:
    value = body.value(x)
    y = body.result(value.is_random, tuple(value.common[a] for a in axes))
    steps = _steps(value.shape)
    _moved(body, value, y, y.shape, [steps[a] for a in axes], _steps(y.shape), 0, 0)


@_rule("concat")
def _concat(body: Pass, parts: Sequence[Any], axis: int) -> None:
    values, offset = [body.value(p) for p in parts], 0
    common = tuple(map(any, zip(*(v.common for v in values), strict=True)))
    y = body.result(any(v.is_random for v in values), common)
    steps = _steps(y.shape)
    for value in values:
        if y.is_random and not value.is_random:
            raise body.refusal("of certain and random parts")
        _moved(body, value, y, value.shape, _steps(value.shape), steps, 0, offset * steps[axis])
        offset += value.shape[axis]


def _steps(shape: Shape) -> list[int]:
    """How far apart neighbours along each axis are."""
    return [_size(shape[i + 1 :]) for i in range(len(shape))]


def _moved(
    body: Pass, x: Value, y: Value, sides: Shape, steps: Sequence[int], to: Sequence[int],
    first: int, start: int,
) -> None:  # fmt: skip
    lists = [f"(const int[]){{{', '.join(map(str, each))}}}" for each in (sides, steps, to)]
    pairs = [(x.mean, y.mean)] + ([(x.variance, y.variance)] if x.is_random else [])
    for a, b in pairs:
        body.call("move", At(a, first), At(b, start), len(sides), *lists)
