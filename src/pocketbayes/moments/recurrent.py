"""Rules of recurrent layers: the recurrence, step by step, by the rules of its operations."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pocketbayes.moments.value import Moments, no_rule, rule

Weights = list[Any]
Cell = Callable[[Any, Any, Weights, bool], Any]


@rule("lstm")
def _lstm(_: Any, x: Any, state: Any, *settings: Any) -> tuple[Any, Any, Any]:
    if isinstance(state, Tensor):
        raise no_rule("lstm of a packed sequence")
    output, (h, c) = _recurrent(_lstm_cell, x, list(state), *settings)
    return output, h, c


@rule("gru")
def _gru(_: Any, x: Any, state: Any, *settings: Any) -> tuple[Any, Any]:
    if not isinstance(settings[0], list | tuple):
        raise no_rule("gru of a packed sequence")
    output, (h,) = _recurrent(_gru_cell, x, [state], *settings)
    return output, h


def _lstm_cell(inputs: Any, state: list[Any], weights: Weights, biased: bool) -> list[Any]:
    """I, f, o = sigmoid, g = tanh of W x + U h; c' = f c + i g, h' = o tanh(c')."""
    h, c = state
    total = inputs + F.linear(h, weights[1], weights[3] if biased else None)
    i, f, g, o = total.chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    projection = weights[(4 if biased else 2) :]
    return [F.linear(h, projection[0]) if projection else h, c]


def _gru_cell(inputs: Any, state: list[Any], weights: Weights, biased: bool) -> list[Any]:
    """R, z = sigmoid of W x + U h; n = tanh(W x + r U h); h' = (1 - z) n + z h."""
    (h,) = state
    hidden = F.linear(h, weights[1], weights[3] if biased else None)
    (r, z, n), (hr, hz, hn) = inputs.chunk(3, -1), hidden.chunk(3, -1)
    r, z = torch.sigmoid(r + hr), torch.sigmoid(z + hz)
    n = torch.tanh(n + r * hn)
    return [torch.lerp(n, h, z)]


def _recurrent(
    cell: Cell, x: Any, state: list[Any], flat: Weights, biased: bool, layers: int,
    dropout: float, training: bool, both_ways: bool, batch_first: bool,
) -> tuple[Any, list[Any]]:  # fmt: skip
    """(output, final states) as torch's recurrent layers give them."""
    if training and dropout > 0:
        raise no_rule("dropout inside of a recurrent layer")
    directions = 2 if both_ways else 1
    each = len(flat) // (layers * directions)
    x = x.transpose(0, 1) if batch_first else x
    last = list[list[Any]]()
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            number = layer * directions + direction
            weights = flat[number * each : (number + 1) * each]
            first = [part[number] for part in state]
            output, end = _one_way(cell, x, first, weights, biased, direction == 1)
            outputs.append(output)
            last.append(end)
        x = torch.cat(outputs, -1) if both_ways else outputs[0]
    x = x.transpose(0, 1) if batch_first else x
    return x, [torch.stack(part) for part in zip(*last, strict=True)]


def _one_way(
    cell: Cell, x: Any, state: list[Any], weights: Weights, biased: bool, backwards: bool
) -> tuple[Any, list[Any]]:
    """All inputs are projected at once; the steps follow each other."""
    projected = F.linear(x, weights[0], weights[2] if biased else None)
    steps = list(torch.unbind(projected))
    outputs = []
    for step in reversed(steps) if backwards else steps:
        state = cell(step, state, weights, biased)
        outputs.append(state[0])
    stacked = torch.stack(outputs[::-1] if backwards else outputs)
    if isinstance(stacked, Moments):  # one draw of the weights serves all steps
        common = any(isinstance(weight, Moments) for weight in weights)
        stacked.positions = (common, *stacked.positions[1:])
    return stacked, state
