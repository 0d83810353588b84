"""Rules of operations that sum over channels, and make new ones."""

from typing import Any

import torch
from torch import Tensor

from pocketbayes.shrinking.channels import ALWAYS, Channels, new_channels
from pocketbayes.shrinking.following import Follower, Found, LostTrackError, rule
from pocketbayes.shrinking.narrowing import parts_in
from pocketbayes.shrinking.operations import Call
from pocketbayes.shrinking.weights import Matrix


@rule("linear")
def _linear(follower: Follower, call: Call) -> Found:
    x, weight, bias = (
        call.option(place, name) for place, name in enumerate(("input", "weight", "bias"))
    )
    return project(follower, x, x.dim() - 1, (weight, 0, 1), bias)


@rule("addmm")
def _addmm(follower: Follower, call: Call) -> Found:
    if set(call.kwargs) & {"beta", "alpha"}:
        raise LostTrackError
    bias, x, weight = call.args[:3]
    return project(follower, x, 1, (weight, 1, 0), bias)


@rule("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _convolved(follower: Follower, call: Call) -> Found:
    x, weight, bias = (
        call.option(place, name) for place, name in enumerate(("input", "weight", "bias"))
    )
    turned = "transpose" in call.name
    groups = call.option(6, "groups", 1)
    return _convolution(follower, (x, weight, bias), groups, turned)


@rule("convolution")
def _general_convolution(follower: Follower, call: Call) -> Found:
    return _convolution(follower, call.args[:3], call.args[8], call.args[6])


def _convolution(follower: Follower, tensors: Any, groups: int, turned: bool) -> Found:
    x, weight, bias = tensors
    axis = x.dim() - weight.dim() + 1
    if groups == 1:
        return project(follower, x, axis, (weight, 1, 0) if turned else (weight, 0, 1), bias)
    if turned or weight.shape[1] != 1:
        raise LostTrackError
    return _depthwise(follower, x, axis, weight, bias)


def _depthwise(follower: Follower, x: Tensor, axis: int, weight: Tensor, bias: Any) -> Found:
    """A group for each input: its outputs come and go with it."""
    inputs, ref = follower.of(x), follower.weights.ref_of(weight)
    if inputs is None or inputs.axes != (axis,) or ref is None:
        raise LostTrackError
    inputs = inputs.along(axis)
    follower.depthwise[ref.module] = inputs.cells
    several = weight.shape[0] // len(inputs.cells)
    cells = inputs.cells.repeat_interleave(several)
    follower.cells.tie(follower.weights.along(weight, 0), cells)
    active = parts_in(follower.weights.model.get_submodule(ref.module), ref.name).active
    dead = ~active.flatten(1).any(1).cpu() | inputs.zero.repeat_interleave(several)
    return placed(_with_bias(follower, cells, dead, bias), x.dim(), axis)


def project(
    follower: Follower, x: Tensor, axis: int, weight: tuple[Tensor, int, int], bias: Tensor | None
) -> Found:
    """y_o = sum_i w_oi x_i + b_o along an axis; `weight` comes with its axes of o and i."""
    known = follower.of(x)
    if follower.weights.ref_of(weight[0]) is None or (known is not None and known.axes != (axis,)):
        follower.weights.pin(bias)
        return _apart(follower, known, axis, weight[0])
    found = project_channels(follower, known and known.along(axis), weight, bias)
    return placed(found, x.dim(), axis)


def _apart(follower: Follower, known: Found, axis: int, weight: Tensor) -> Found:
    """What is left of channels along other axes."""
    follower.keep(weight)
    if known is None or known.axes == (axis,):
        raise LostTrackError
    if axis in known.axes:
        follower.cells.fix(known.cells, axis)
    return known.first(axis).varying()


def project_channels(
    follower: Follower,
    inputs: Found,
    weight: tuple[Tensor, int, int],
    bias: Tensor | None,
    rows: slice = slice(None),
    bias_rows: slice = slice(None),
) -> Channels:
    """Notes that some outputs of a weight read these inputs; in one dimension each."""
    (tensor, output_axis, input_axis), weights = weight, follower.weights
    matrix = weights.matrix(*weight)
    assert matrix is not None
    if inputs is None:
        inputs = new_channels(torch.full((tensor.shape[input_axis],), ALWAYS))
    follower.cells.tie(weights.along(tensor, input_axis), inputs.cells)
    outputs, active = weights.along(tensor, output_axis)[rows], active_in(follower, matrix)[rows]
    factor = weights.factor_of(matrix.ref)
    if factor is not None:
        inputs, active = _scaled(follower, inputs, tensor, factor, outputs, active)
    follower.add_reader(matrix, inputs, outputs, active)
    dead = ~(active & ~inputs.zero).any(1)
    return _with_bias(follower, outputs, dead, bias, bias_rows)


def _scaled(
    follower: Follower,
    inputs: Channels,
    weight: Tensor,
    factor: Tensor,
    outputs: Tensor,
    active: Tensor,
) -> tuple[Channels, Tensor]:
    """Inputs and what is read of them by rows of norm 1, times a factor each.

    Of a random row the norm is random: what it reads must stay.
    """
    own = follower.weights.each(factor)
    if own is None:
        raise LostTrackError
    follower.cells.tie(own.cells.flatten(), outputs)
    certain = bool(follower.weights.certain(weight).all() and own.constant.all())
    if certain:
        active = active & (factor.flatten() != 0).cpu()[:, None]
    return (inputs if certain else inputs.varying()), active


@rule("weight_norm")
def _normalised(follower: Follower, call: Call) -> Found:
    direction, factor, dim = call.args[0], call.args[1], call.option(2, "dim", 0)
    known = all(follower.weights.ref_of(t) is not None for t in (direction, factor))
    if not known or dim != 0 or factor.numel() != direction.shape[0]:
        raise LostTrackError
    follower.weights.note_normalised(direction, factor, call.output)
    return None


def active_in(follower: Follower, matrix: Matrix) -> Tensor:
    """`[o, i]`: whether output o reads input i."""
    module = follower.weights.model.get_submodule(matrix.ref.module)
    active = parts_in(module, matrix.ref.name).active
    active = active.movedim((matrix.outputs, matrix.inputs), (0, 1))
    return active.reshape(*active.shape[:2], -1).any(2).cpu()


def _with_bias(
    follower: Follower, cells: Tensor, dead: Tensor, bias: Tensor | None, rows: slice = slice(None)
) -> Channels:
    """Outputs that read nothing are their bias: a constant, unless that has noise."""
    if bias is None:
        return Channels(cells, dead, torch.zeros(len(cells)))
    if follower.weights.ref_of(bias) is None:
        follower.keep(bias)
        follower.cells.pin(cells)
        return new_channels(cells)
    follower.cells.tie(follower.weights.along(bias, 0)[rows], cells)
    return Channels(cells, dead & follower.weights.certain(bias)[rows], bias.detach()[rows])


def placed(channels: Channels, dimensions: int, axis: int) -> Channels:
    """Channels of one dimension along an axis of several."""
    shape = [-1 if j == axis else 1 for j in range(dimensions)]
    return Channels(*(t.reshape(shape) for t in channels.fields))
