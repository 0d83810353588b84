"""Rules of operations that move numbers: what a channel is moves along with it."""

from typing import Any

import torch
from torch import Tensor

from pocketbayes.shrinking.channels import ALWAYS, Channels, new_channels
from pocketbayes.shrinking.following import Follower, Found, LostTrackError, rule
from pocketbayes.shrinking.merging import Operand, merged, operand, with_constants
from pocketbayes.shrinking.operations import MOVES, PICKS, Call, picked_axes, tensors_in

_PERMUTATIONS = {
    "t", "T", "mT", "adjoint", "transpose", "swapaxes", "swapdims", "permute", "movedim",
    "moveaxis",
}  # fmt: skip
_SIDES = (3, 5, 7, 11, 13, 17, 19, 23)
_CONTIGUOUS = ("view", "unflatten", "view_as")


class Marks:
    """Numbers for the channels of some tensors, to be moved as these are, and to be read again."""

    def __init__(self) -> None:
        self._channels = [new_channels(torch.tensor([ALWAYS]))]
        self._number = 1

    def of(self, tensor: Tensor, channels: Found) -> Tensor:
        """A tensor that has at each place the number of its channel."""
        if channels is None:
            return torch.zeros((), dtype=torch.int32).expand(tensor.shape)
        count = channels.cells.numel()
        numbers = torch.arange(self._number, self._number + count, dtype=torch.int32)
        self._number += count
        self._channels.append(Channels(*(t.flatten() for t in channels.fields)))
        return numbers.reshape(channels.cells.shape).expand(tensor.shape)

    def read(self, numbers: Tensor) -> Found:
        """The channels of what these have become."""
        for axis in range(numbers.dim()):
            first = numbers.narrow(axis, 0, min(1, numbers.shape[axis]))
            if numbers.shape[axis] > 1 and bool((numbers == first).all()):
                numbers = first
        if not bool(numbers.any()):
            return None
        values = [c.value for c in self._channels]
        kind, device = values[-1].dtype, values[-1].device
        tables = (
            torch.cat([c.cells for c in self._channels]),
            torch.cat([c.constant for c in self._channels]),
            torch.cat([value.to(device, kind) for value in values]),
        )
        return Channels(*(table[numbers.long().to(table.device)] for table in tables))


@rule(*MOVES - {"cat", "concat", "concatenate", "stack", "broadcast_tensors"}, *PICKS, "getitem")
def _moved(follower: Follower, call: Call) -> list[Found]:
    """Runs the operation on a tensor that says at each place which channel it is."""
    source = call.args[0] if call.args else None
    if not isinstance(source, Tensor):
        raise LostTrackError
    if follower.weights.ref_of(source) is not None and call.name in _PERMUTATIONS:
        follower.weights.note_view(source, call.output, _order(call, source.dim()))
        return [None]
    channels = _channels_of(follower, source)
    if channels is None:
        raise LostTrackError
    for axis in set(picked_axes(call)) & set(channels.axes):
        follower.cells.fix(channels.cells, axis)
    marks = Marks()
    numbers = marks.of(source, channels)
    return [marks.read(t) for t in tensors_in(_again(call, numbers))]


def _channels_of(follower: Follower, tensor: Tensor) -> Found:
    """The channels of an activation, or those of a weight."""
    if follower.weights.ref_of(tensor) is None:
        return follower.of(tensor)
    return follower.weights.each(tensor)


def _again(call: Call, numbers: Tensor) -> Any:
    if call.name in _CONTIGUOUS:
        numbers = numbers.contiguous()
    try:
        return call.again((numbers, *call.args[1:]), call.kwargs)
    except (RuntimeError, TypeError, ValueError) as error:
        raise LostTrackError from error


def _order(call: Call, dimensions: int) -> tuple[int, ...]:
    """Which axis each axis of the output was before."""
    sides = _SIDES[:dimensions]
    turned = call.again((torch.empty(sides, device="meta"), *call.args[1:]), call.kwargs)
    return tuple(sides.index(side) for side in turned.shape)


@rule("cat", "concat", "concatenate", "stack")
def _joined(follower: Follower, call: Call) -> Found:
    """Channels one after the other, or other places of the same channels."""
    parts: Any = [p for p in call.option(0, "tensors") if p.shape != (0,)]  # as torch leaves out
    out, is_new = call.output, call.name == "stack"
    axis = call.option(1, "dim", call.kwargs.get("axis", 0)) % out.dim()
    known = [_channels_of(follower, part) for part in parts]
    channels = [c for c in known if c is not None]
    if not channels:
        raise LostTrackError
    if not is_new and any(axis in c.axes for c in channels):
        marks = Marks()
        return marks.read(
            torch.cat([marks.of(p, c) for p, c in zip(parts, known, strict=True)], axis)
        )
    operands = [
        Operand(
            part, tuple(1 if j == axis and not is_new else n for j, n in enumerate(part.shape)), c
        )
        for part, c in zip(parts, known, strict=True)
    ]
    made = merged(follower, operands)
    alike = torch.zeros_like(made.constant)
    if all(c is not None and c.cells.shape == made.cells.shape for c in known):
        alike = torch.stack([c.constant & (c.value == made.value).cpu() for c in channels]).all(0)
    made = made.varying(alike)
    return Channels(*(t.unsqueeze(axis) for t in made.fields)) if is_new else made


@rule("broadcast_tensors")
def _broadcast(follower: Follower, call: Call) -> list[Found]:
    dimensions = call.output.dim()
    return [operand(follower, tensor, dimensions).channels for tensor in call.tensors]


@rule("pad")
def _padded(follower: Follower, call: Call) -> Found:
    source, out = call.args[0], call.output
    channels, pads = follower.of(source), call.option(1, "pad")
    if channels is None:
        raise LostTrackError
    sides = {out.dim() - 1 - place // 2 for place, size in enumerate(pads) if size}
    if not sides & set(channels.axes):
        return with_constants(follower, call, channels, [operand(follower, source, out.dim())])
    (axis, *more) = channels.axes
    if more or sides != {axis} or call.option(2, "mode", "constant") != "constant":
        raise LostTrackError
    place = 2 * (out.dim() - 1 - axis)
    return _with_more(follower, channels, axis, pads[place : place + 2], call.option(3, "value"))


def _with_more(
    follower: Follower, channels: Channels, axis: int, sides: tuple[int, int], value: float | None
) -> Channels:
    """Constant channels before and after others; those of He's option A may go."""
    shapes = [tuple(n if j == axis else 1 for j in range(channels.cells.dim())) for n in sides]
    before, after = (follower.padding(shape, side) for side, shape in enumerate(shapes))
    true, number = torch.ones, value or 0.0
    return Channels(
        torch.cat([before, channels.cells, after], axis),
        torch.cat([true(shapes[0]).bool(), channels.constant, true(shapes[1]).bool()], axis),
        torch.cat([channels.value.new_full(s, number) if side != 1 else channels.value
                   for side, s in ((0, shapes[0]), (1, ()), (2, shapes[1]))], axis),
    )  # fmt: skip
