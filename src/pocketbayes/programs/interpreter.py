"""The reference: what a program computes, in numpy, one function an operation.

It is written to be read and carried over to other languages, not to be fast.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from pocketbayes.errors import FormatError
from pocketbayes.programs.elementwise import FUNCTIONS as ELEMENTWISE
from pocketbayes.programs.elementwise import sigmoid
from pocketbayes.programs.program import Buffer, Program, Weight
from pocketbayes.programs.windows import FUNCTIONS as WINDOWS

Array = NDArray[np.float32]
Ints = tuple[int, ...]
Function = TypeVar("Function", bound=Callable[..., Any])

FUNCTIONS: dict[str, Callable[..., Any]] = ELEMENTWISE | WINDOWS


class Outputs(NamedTuple):
    """The output for one example, and what goes into each place of a one-pass head."""

    output: Array
    places: tuple[Array, ...]


def run(program: Program, weights: Mapping[int, Array], *inputs: Array) -> Outputs:
    """Runs a program on one example; `weights` has the means of those that it reads."""
    buffers: dict[int, Array] = {}
    for number, (given, said) in enumerate(zip(inputs, program.inputs, strict=True)):
        if given.shape != said.shape:
            raise FormatError(f"input {number} has shape {given.shape}, not {said.shape}")
        buffers[number] = np.asarray(given, np.float32)

    def value(operand: Buffer | Weight) -> Array:
        return (buffers if isinstance(operand, Buffer) else weights)[operand.number]

    first, ends = len(inputs), _last_uses(program)
    for number, operation in enumerate(program.operations):
        made = FUNCTIONS[operation.name](*operation.with_operands(value))
        buffers[first + number] = np.asarray(made, np.float32)
        for gone in ends.get(number, ()):
            del buffers[gone]
    return Outputs(value(program.output), tuple(value(p.operand) for p in program.places))


def _last_uses(program: Program) -> dict[int, list[int]]:
    """The buffers that are read for the last time by each operation."""
    last: dict[int, int] = {}
    for number, operation in enumerate(program.operations):
        read = (operand for operand in operation.operands() if isinstance(operand, Buffer))
        last |= {operand.number: number for operand in read}
    for operand in (program.output, *(place.operand for place in program.places)):
        last.pop(operand.number, None)
    found: dict[int, list[int]] = {}
    for buffer, number in last.items():
        found.setdefault(number, []).append(buffer)
    return found


def _operation(*names: str) -> Callable[[Function], Function]:
    def entered(function: Function) -> Function:
        FUNCTIONS.update(dict.fromkeys(names, function))
        return function

    return entered


@_operation("linear")
def _linear(x: Array, weight: Array, bias: Array | None) -> Any:
    return x @ weight.T + (0 if bias is None else bias)


def _along_first(vector: Array, x: Array) -> Array:
    return vector.reshape(-1, *(1,) * (x.ndim - 1))


@_operation("norm")
def _norm(
    x: Array, weight: Array | None, bias: Array | None, mean: Array, variance: Array, eps: float
) -> Any:
    scale = 1 / np.sqrt(variance + np.float32(eps)) * (1 if weight is None else weight)
    shift = (0 if bias is None else bias) - mean * scale
    return x * _along_first(scale, x) + _along_first(shift, x)


@_operation("layer_norm")
def _layer_norm(x: Array, weight: Array | None, bias: Array | None, axes: int, eps: float) -> Any:
    over = tuple(range(x.ndim - axes, x.ndim))
    standard = _standardised(x, over, eps)
    return standard * (1 if weight is None else weight) + (0 if bias is None else bias)


@_operation("group_norm")
def _group_norm(x: Array, weight: Array | None, bias: Array | None, groups: int, eps: float) -> Any:
    standard = _standardised(x.reshape(groups, -1), (1,), eps).reshape(x.shape)
    scale = 1 if weight is None else _along_first(weight, x)
    return standard * scale + (0 if bias is None else _along_first(bias, x))


def _standardised(x: Array, axes: Ints, eps: float) -> Any:
    centred: Array = x - x.mean(axes, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axes, keepdims=True) + np.float32(eps))


@_operation("embedding")
def _embedding(x: Array, weight: Array) -> Any:
    index = x.astype(np.int64)
    if index.size and not 0 <= index.min() <= index.max() < len(weight):
        raise FormatError(f"an index is not among the {len(weight)} rows of an embedding")
    return weight[index]


@_operation("lstm")
def _lstm(
    x: Array, inner: Array, outer: Array, b: Array | None, c: Array | None, backwards: int
) -> Any:
    """I, f, o = sigmoid, g = tanh of W x + U h; m' = f m + i g, h' = o tanh(m')."""
    inputs = _linear(x, inner, b)
    h = memory = np.zeros(outer.shape[1], np.float32)
    found = np.empty((len(x), len(h)), np.float32)
    for t in reversed(range(len(x))) if backwards else range(len(x)):
        i, f, g, o = np.split(inputs[t] + _linear(h, outer, c), 4)
        memory = sigmoid(f) * memory + sigmoid(i) * np.tanh(g)
        h = found[t] = sigmoid(o) * np.tanh(memory)
    return found


@_operation("gru")
def _gru(
    x: Array, inner: Array, outer: Array, b: Array | None, c: Array | None, backwards: int
) -> Any:
    """R, z = sigmoid of W x + U h; n = tanh(W x + r U h); h' = (1 - z) n + z h."""
    inputs = _linear(x, inner, b)
    h = np.zeros(outer.shape[1], np.float32)
    found = np.empty((len(x), len(h)), np.float32)
    for t in reversed(range(len(x))) if backwards else range(len(x)):
        (ir, iz, i), (hr, hz, own) = np.split(inputs[t], 3), np.split(_linear(h, outer, c), 3)
        z, new = sigmoid(iz + hz), np.tanh(i + sigmoid(ir + hr) * own)
        h = found[t] = (1 - z) * new + z * h
    return found


@_operation("attention")
def _attention(q: Array, k: Array, v: Array, mask: Array | None, causal: int, scale: float) -> Any:
    scores: Any = np.float32(scale) * q @ k.swapaxes(-1, -2)
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, np.float32(-np.inf))
    return _softmax(scores if mask is None else scores + mask, -1) @ v


@_operation("softmax")
def _softmax(x: Array, axis: int) -> Any:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


@_operation("log_softmax")
def _log_softmax(x: Array, axis: int) -> Any:
    centred = x - x.max(axis, keepdims=True)
    return centred - np.log(np.exp(centred).sum(axis, keepdims=True))


@_operation("concat")
def _concat(parts: Sequence[Array], axis: int) -> Any:
    return np.concatenate(parts, axis)


@_operation("reshape")
def _reshape(x: Array, shape: Ints) -> Any:
    return x.reshape(shape)


@_operation("permute")
def _permute(x: Array, axes: Ints) -> Any:
    return x.transpose(axes)


@_operation("slice")
def _slice(x: Array, axis: int, start: int, step: int, count: int) -> Any:
    return x.take(start + step * np.arange(count), axis)


@_operation("pad")
def _pad(x: Array, axis: int, before: int, after: int) -> Any:
    return np.pad(x, [(before, after) if i == axis else (0, 0) for i in range(x.ndim)])


@_operation("expand")
def _expand(x: Array, shape: Ints) -> Any:
    return np.broadcast_to(x, shape)


@_operation("mean")
def _mean(x: Array, axes: Ints, keep: int) -> Any:
    return x.mean(axes, keepdims=bool(keep))


@_operation("sum")
def _sum(x: Array, axes: Ints, keep: int) -> Any:
    return x.sum(axes, keepdims=bool(keep))


@_operation("amax")
def _amax(x: Array, axes: Ints, keep: int) -> Any:
    return x.max(axes, keepdims=bool(keep))


@_operation("constant")
def _constant(shape: Ints, values: Sequence[float]) -> Any:
    return np.array(values, np.float32).reshape(shape)


@_operation("dropout")
def _dropout(x: Array, rate: float, channels: int) -> Any:
    return x


@_operation("upsample")
def _upsample(x: Array, times: Ints) -> Any:
    for axis, count in enumerate(times, x.ndim - len(times)):
        x = x.repeat(count, axis)
    return x
