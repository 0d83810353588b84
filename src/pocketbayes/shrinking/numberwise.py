"""Rules of operations that leave channels where they are: number by number, along other axes."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pocketbayes.shrinking.channels import Channels
from pocketbayes.shrinking.following import Follower, Found, LostTrackError, rule
from pocketbayes.shrinking.merging import Operand, merged, operand, steady, with_constants
from pocketbayes.shrinking.operations import (
    DROPOUTS,
    ELEMENTWISE,
    RANDOM,
    REDUCTIONS,
    SCANS,
    SPATIAL,
    Call,
    axes_of,
    depends_on_size,
)

_VIEWS = {
    "data", "detach", "to", "float", "double", "half", "bfloat16", "contiguous", "type", "type_as",
    "cpu", "cuda", "clone",
}  # fmt: skip
_VECTORS = {"batch_norm": (1, 2, 3, 4), "instance_norm": (1, 2, 3, 4), "prelu": (1,)}
_NAMES = ("input", "running_mean", "running_var", "weight", "bias")


@rule(*ELEMENTWISE)
def _number_by_number(follower: Follower, call: Call) -> Found:
    out = call.output
    first = call.args[0] if call.args else None
    if isinstance(first, Tensor) and call.name in _VIEWS and follower.weights.ref_of(first):
        follower.weights.note_view(first, out, tuple(range(out.dim())))
        return None
    operands = [operand(follower, tensor, out.dim()) for tensor in call.tensors]
    made = merged(follower, operands)
    if call.name in RANDOM or call.name in ("tril", "triu", "copy"):
        return _fixed(follower, made, operands, call)
    if call.name in DROPOUTS and first in follower.sums_to_one and not follower.keeps_dropout:
        follower.sums_to_one[out] = True
    return with_constants(follower, call, made, operands)


def _fixed(follower: Follower, made: Channels, operands: list[Operand], call: Call) -> Channels:
    """What comes out has no constants, and where it depends on places keeps these."""
    if call.name in ("tril", "triu"):
        for axis in {made.cells.dim() - 1, made.cells.dim() - 2} & set(made.axes):
            follower.cells.fix(made.cells, axis)
    return made.varying()


@rule("batch_norm", "instance_norm", "prelu")
def _with_vectors(follower: Follower, call: Call) -> Found:
    """Each channel by numbers of its own."""
    out = call.output
    x = operand(follower, call.args[0], out.dim())
    names = _NAMES if call.name != "prelu" else ("input", "weight")
    vectors = [call.option(place, name) for place, name in enumerate(names)][1:]
    operands = [x]
    for vector in vectors:
        if isinstance(vector, Tensor):
            operands.append(operand(follower, vector, out.dim(), axis=1 if out.dim() > 1 else 0))
    made = merged(follower, operands)
    if made.axes != (1,):
        for axis in set(made.axes) - {1}:
            follower.cells.fix(made.cells, axis)
    if call.name == "batch_norm" and vectors[0] is None:
        return made.varying()  # statistics of the batch make noise of a constant
    if call.name == "instance_norm":
        return _of_each_example(follower, call, made, operands)
    return with_constants(follower, call, made, operands)


def _of_each_example(
    follower: Follower, call: Call, made: Channels, operands: list[Operand]
) -> Channels:
    """A constant has the mean of its channel, and becomes the shift, if there is one."""
    if not call.option(5, "use_input_stats", True):
        return with_constants(follower, call, made, operands)
    shift = call.option(4, "bias")
    if shift is None:
        return Channels(made.cells, made.constant, torch.zeros_like(made.value))
    if follower.weights.ref_of(shift) is None:
        return made.varying()
    shape = made.cells.shape
    certain = follower.weights.certain(shift).reshape(shape)
    return Channels(made.cells, made.constant & certain, shift.detach().reshape(shape))


@rule(*SPATIAL)
def _over_positions(follower: Follower, call: Call) -> list[Found]:
    """Channels lie along the one axis before those of positions."""
    x = operand(follower, call.args[0], call.output.dim())
    if x.channels is None:
        raise LostTrackError
    digits = [int(c) for c in call.name if c.isdigit()]
    dimensions = digits[0] if digits else len(x.shape) - 2
    if x.axes != (len(x.shape) - dimensions - 1,):
        raise LostTrackError
    made = with_constants(follower, call, x.channels, [x])
    return [made, made.varying()]


@rule(*REDUCTIONS)
def _reduced(follower: Follower, call: Call) -> list[Found]:
    """Other axes than those of the channels become one number, or go."""
    source, out = call.args[0], call.output
    channels = follower.of(source)
    if channels is None or (call.name in ("max", "min") and len(call.tensors) > 1):
        raise LostTrackError
    axes = axes_of(call, REDUCTIONS[call.name], source.dim())
    if set(channels.axes) <= set(axes):
        raise LostTrackError
    for axis in set(channels.axes) & set(axes):
        follower.cells.fix(channels.cells, axis)
        channels = channels.first(axis).varying()
    gone = out.dim() < source.dim()
    shape = [n for j, n in enumerate(channels.cells.shape) if not (gone and j in axes)]
    made = Channels(*(t.reshape(shape) for t in channels.fields))
    whole = Channels(channels.cells, channels.constant, channels.value)
    found = _reduced_constants(follower, call, made, whole)
    return [found, found.varying()]


def _reduced_constants(follower: Follower, call: Call, made: Channels, whole: Channels) -> Channels:
    constant = (whole.zero if depends_on_size(call) else whole.constant).reshape(made.cells.shape)
    if not constant.any():
        return made.varying()
    image = whole.image(call.args[0].shape)
    outputs = call.again((image, *call.args[1:]), call.kwargs)
    found = steady(made, constant, outputs if isinstance(outputs, Tensor) else outputs[0])
    if depends_on_size(call):  # as log(n) is of n zeros
        found = replace(found, constant=found.constant & (found.value == 0).cpu())
    return found


@rule(*SCANS)
def _scanned(follower: Follower, call: Call) -> Any:
    """Along other axes than those of the channels."""
    source, out = call.args[0], call.output
    axes = axes_of(call, SCANS[call.name], source.dim())
    if call.name == "softmax" and axes == (source.dim() - 1,):
        follower.sums_to_one[out] = True
    channels = follower.of(source)
    if channels is None:
        raise LostTrackError
    for axis in set(channels.axes) & set(axes):
        follower.cells.fix(channels.cells, axis)
    return [channels.varying()] * 2


@rule("layer_norm", "rms_norm")
def _normalised(follower: Follower, call: Call) -> Found:
    """Along the last axes, which stay whole."""
    source = call.args[0]
    channels = follower.of(source)
    for place, name in ((2, "weight"), (3, "bias")):
        follower.weights.pin(call.option(place, name))
    normal = range(source.dim() - len(call.option(1, "normalized_shape")), source.dim())
    if channels is None or set(channels.axes) <= set(normal):
        raise LostTrackError
    for axis in set(channels.axes) & set(normal):
        follower.cells.fix(channels.cells, axis)
    return channels.varying()
