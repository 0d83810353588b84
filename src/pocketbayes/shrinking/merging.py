"""Tensors of which each channel is made from the same channels of others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from pocketbayes.shrinking.channels import Channels
from pocketbayes.shrinking.following import Follower, LostTrackError
from pocketbayes.shrinking.operations import DROPOUTS, MULTIPLICATIONS, Call, depends_on_size

_STEADY = 1e-5  # relative; an average of equal numbers is that number but for rounding


@dataclass(frozen=True)
class Operand:
    """A tensor as it takes part: its shape and channels in the dimensions of what comes out."""

    tensor: Tensor
    shape: tuple[int, ...]
    channels: Channels | None
    is_weight: bool = False

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes of its channels."""
        return () if self.channels is None else self.channels.axes


def operand(
    follower: Follower, tensor: Tensor, dimensions: int, axis: int | None = None
) -> Operand:
    """The tensor with more dimensions in front, or a vector along this axis."""
    shape = (1,) * (dimensions - tensor.dim()) + tuple(tensor.shape)
    if axis is not None:
        shape = tuple(tensor.numel() if j == axis else 1 for j in range(dimensions))
    channels = follower.of(tensor)
    if channels is not None:
        channels = Channels(*(t.reshape(_broad(t, shape, axis)) for t in channels.fields))
    is_weight = follower.weights.ref_of(tensor) is not None and tensor.numel() > 1
    return Operand(tensor, shape, channels, is_weight)


def _broad(t: Tensor, shape: tuple[int, ...], axis: int | None) -> tuple[int, ...]:
    return shape if axis is not None else (1,) * (len(shape) - t.dim()) + tuple(t.shape)


def merged(follower: Follower, operands: Sequence[Operand]) -> Channels:
    """The channels of tensors that broadcast, which from now on go together.

    Along an axis of channels another tensor has one number, or the same channels, or it has
    numbers of its own: then none can go. Of channels along several axes, (heads, each), what is
    the same for all heads keeps each head whole.
    """
    base = _base(follower, operands)
    made = base.channels
    assert made is not None
    fixed = set[int]()
    for other in operands:
        if other.tensor is base.tensor:
            continue
        other = _with_cells(follower, other, base)
        fixed |= {axis for axis in base.axes if other.shape[axis] > 1 and axis not in other.axes}
        if other.channels is not None:
            _tie(follower, other, base.axes, other.channels, made)
    for axis in sorted(fixed):
        follower.cells.fix(made.cells, axis)
        made = made.first(axis) if len(made.axes) > 1 else made
    return made


def _tie(
    follower: Follower, other: Operand, axes: tuple[int, ...], own: Channels, channels: Channels
) -> None:
    for axis in set(other.axes) - set(axes):
        if not other.is_weight:
            follower.cells.fix(own.cells, axis)
    if other.is_weight or set(other.axes) & set(axes):
        follower.cells.tie(own.cells, channels.cells)


def _base(follower: Follower, operands: Sequence[Operand]) -> Operand:
    """The one with most axes of channels, which what comes out has, too."""
    best = max(operands, key=lambda o: len(o.axes), default=None)
    if best is not None and best.channels is not None:
        return best
    weights = [o for o in operands if o.is_weight]
    if len(weights) != 1:
        raise LostTrackError
    (only,) = weights
    alone = all(o is only or _is_single(o.shape, only.shape) for o in operands)
    channels = follower.weights.each(only.tensor) if alone else None
    if channels is None:
        raise LostTrackError
    return _with_channels(only, channels)


def _is_single(shape: Sequence[int], other: Sequence[int]) -> bool:
    return all(one == 1 for one, size in zip(shape, other, strict=True) if size > 1)


def _with_cells(follower: Follower, other: Operand, base: Operand) -> Operand:
    """A weight along the first axis of channels gets cells; what is not there stays as it is."""
    if other.shape[base.axes[0]] == 1 and len(other.axes) < len(base.axes):
        follower.weights.pin(other.tensor)
        if other.channels is not None:
            follower.cells.pin(other.channels.cells)
        return replace(other, is_weight=False, channels=None)
    if not other.is_weight:
        return other
    channels = follower.weights.each(other.tensor)
    return replace(other, is_weight=False) if channels is None else _with_channels(other, channels)


def _with_channels(weight: Operand, channels: Channels) -> Operand:
    return replace(weight, channels=Channels(*(t.reshape(weight.shape) for t in channels.fields)))


def onto(mask: Tensor, shape: Sequence[int]) -> Tensor:
    """Marks in the shape of a grid: where it has one place for several, whether all are marked."""
    full = mask & torch.ones(tuple(shape), dtype=torch.bool)
    for axis, size in enumerate(shape):
        if size == 1 and full.shape[axis] > 1:
            full = full.all(axis, keepdim=True)
    return full


def with_constants(
    follower: Follower, call: Call, made: Channels, operands: Sequence[Operand], axes: Any = None
) -> Channels:
    """The channels with the constants that come of constants.

    The operation runs on tensors of them, and what comes out must be alike at all places. `axes`
    are those of what went in, if they are others.
    """
    grid = made.cells.shape
    constant, zero = _known_constants(follower, call, operands, grid)
    if depends_on_size(call) or (call.name in DROPOUTS and follower.keeps_dropout):
        constant = constant & zero
    if not constant.any():
        return made.varying()
    args, kwargs = tree_map(lambda leaf: _image(follower, leaf), (call.args, dict(call.kwargs)))
    outputs = call.again(args, kwargs)
    image = outputs if isinstance(outputs, Tensor) else outputs[0]
    return steady(made, constant, image)


def steady(made: Channels, constant: Tensor, image: Tensor) -> Channels:
    """The channels with constants where these are marked and an image has one value."""
    others = [j for j, size in enumerate(made.cells.shape) if size == 1 and j < image.dim()]
    if not image.is_floating_point():
        image = image.float()
    low, high = (f(others, keepdim=True) if others else image for f in (image.amin, image.amax))
    alike = (high - low) <= _STEADY * torch.maximum(high.abs(), low.abs())
    return Channels(made.cells, constant & alike.cpu(), low)


def _image(follower: Follower, leaf: Any) -> Any:
    channels = follower.of(leaf)
    return leaf if channels is None else channels.image(leaf.shape)


def _known_constants(
    follower: Follower, call: Call, operands: Sequence[Operand], grid: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Which channels are made of constants alone, and which of zeros."""
    shape = tuple(grid)
    constant, zero = torch.ones(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool)
    for each in operands:
        if follower.weights.ref_of(each.tensor) is not None:
            certain = follower.weights.certain(each.tensor).reshape(each.shape)
            constant = constant & onto(certain, shape)
        elif each.channels is not None:
            constant = constant & onto(each.channels.constant, shape)
            zero = zero | onto(each.channels.zero, shape)
        else:
            constant = torch.zeros_like(constant)
    if call.name in MULTIPLICATIONS:
        constant = constant | zero
    return constant, zero
