"""Which channels of a network's tensors must stay: ties, constants and who reads them.

A *cell* is one number for all channels, of whatever tensors, that can only go together: those
that an activation turns into each other, that a residual network adds, that flattening repeats.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

ALWAYS = 0  # the cell of what never goes


@dataclass(frozen=True)
class Channels:
    """The channels of one tensor: their cells, and values where these are always the same.

    Each field has the tensor's dimensions, with size 1 where all places are alike: (1, C, 1, 1)
    after a convolution, (1, heads, 1, each) inside of attention.
    """

    cells: Tensor
    constant: Tensor
    value: Tensor

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes along which channels lie."""
        return tuple(j for j, size in enumerate(self.cells.shape) if size > 1)

    @property
    def zero(self) -> Tensor:
        """The channels that are always 0."""
        return self.constant & (self.value == 0).cpu()

    def image(self, shape: Sequence[int]) -> Tensor:
        """A tensor of this shape in which each channel has its constant; 0 where it has none."""
        known = self.constant.to(self.value.device)
        return torch.where(known, self.value, 0).to(self.value.dtype).expand(shape).clone()

    def lifted(self, dimensions: int) -> "Channels":
        """With more dimensions in front."""
        more = (1,) * (dimensions - self.cells.dim())
        return Channels(*(t.reshape(more + t.shape) for t in self.fields))

    def first(self, axis: int) -> "Channels":
        """One for all along this axis, which go together; a constant, if all are the same one."""
        cells, constant, value = (t.narrow(axis, 0, 1) for t in self.fields)
        alike = (self.value == value).all(axis, keepdim=True).cpu()
        return Channels(cells, constant & alike & self.constant.all(axis, keepdim=True), value)

    def along(self, axis: int) -> "Channels":
        """In one dimension, that of this axis, along which alone they lie."""
        return Channels(*(t.movedim(axis, 0).flatten() for t in self.fields))

    def varying(self, except_for: Tensor | None = None) -> "Channels":
        """The same without constants but these."""
        stays = torch.zeros_like(self.constant) if except_for is None else except_for
        return Channels(self.cells, self.constant & stays, self.value)

    @property
    def fields(self) -> tuple[Tensor, Tensor, Tensor]:
        """All three."""
        return self.cells, self.constant, self.value


def new_channels(cells: Tensor) -> Channels:
    """Channels that vary."""
    return Channels(cells, torch.zeros(cells.shape, dtype=torch.bool), torch.zeros(cells.shape))


class Ref(NamedTuple):
    """A parameter, buffer or posterior by the names of its module and of itself."""

    module: str
    name: str


@dataclass(frozen=True)
class Reader:
    """What sums over channels; `active[o, i]`: whether output o reads input i.

    `weight` is what it sums with; None: a product of two activations, which cannot be rewritten.
    """

    weight: Ref | None
    inputs: Channels
    outputs: Tensor
    active: Tensor

    def reads(self, kept: Tensor) -> Tensor:
        """The inputs that are not simply 0 and that an output to be kept reads."""
        return self.active[kept[self.outputs]].any(0) & ~self.inputs.zero

    def largest_constant(self, among: Tensor) -> int | None:
        """The input of largest |constant| among these; None: all of them are 0 or vary."""
        sizes = self.sizes().where(among, 0)
        best = int(sizes.argmax())
        return best if sizes[best] > 0 else None

    def sizes(self) -> Tensor:
        """|c| of every input; 0 where it varies."""
        return self.inputs.value.abs().cpu().where(self.inputs.constant, 0)


class Cells:
    """All cells of a network, and which of them are one."""

    def __init__(self) -> None:
        self.number = 1
        self._ties: list[tuple[Tensor, Tensor]] = []
        self._pinned: list[Tensor] = [torch.tensor([ALWAYS])]

    def fresh(self, *shape: int) -> Tensor:
        """New cells."""
        count = torch.Size(shape).numel()
        self.number += count
        return torch.arange(self.number - count, self.number).reshape(shape)

    def tie(self, some: Tensor, others: Tensor) -> None:
        """From now on these can only go together, one by one."""
        zeros = torch.zeros_like(some) * others  # of both shapes
        self._ties.append(((some + zeros).flatten(), (others + zeros).flatten()))

    def pin(self, cells: Tensor) -> None:
        """These must stay."""
        self._pinned.append(cells.flatten())

    def fix(self, cells: Tensor, axis: int) -> None:
        """These stay or go together along an axis; where they lie along no other one they stay."""
        if cells.numel() > cells.shape[axis]:
            self.tie(cells, cells.narrow(axis, 0, 1))
        else:
            self.pin(cells)

    def groups(self) -> Tensor:
        """For each cell the number of all that it is tied to; 0 for those that must stay."""
        root = torch.arange(self.number)
        pinned = torch.cat(self._pinned)
        one = torch.cat([*(some for some, _ in self._ties), pinned])
        other = torch.cat([*(others for _, others in self._ties), torch.zeros_like(pinned)])
        while True:
            low = torch.minimum(root[one], root[other])
            new = root.clone()
            for ends in (root[one], root[other], one, other):
                new.scatter_reduce_(0, ends, low, "amin")
            new = new[new]
            if torch.equal(new, root):
                numbers: Tensor = torch.unique(root, return_inverse=True)[1]
                return numbers
            root = new


def needed(groups: Tensor, readers: Sequence[Reader], grids: Sequence[Tensor]) -> Tensor:
    """A mark for each cell that stays; `grids` are the cells of every tensor.

    A cell goes if every reader either does not read it, or sees a 0, or sees a constant c_d of
    which another, c_e, can take the place: w_d c_d = (w_d c_d / c_e) c_e.
    """
    kept = torch.zeros(int(groups.max()) + 1, dtype=torch.bool)
    kept[ALWAYS] = True
    readers = [_regrouped(reader, groups) for reader in readers]
    grids = [groups[cells] for cells in grids]
    while True:
        before = int(kept.sum())
        for reader in reversed(readers):
            reads = reader.reads(kept) & ~reader.inputs.constant
            kept[reader.inputs.cells[reads]] = True
        if int(kept.sum()) == before:
            missing = _missing(kept, readers, grids)
            if missing is None:
                return kept[groups]
            kept[missing] = True


def _regrouped(reader: Reader, groups: Tensor) -> Reader:
    inputs = Channels(groups[reader.inputs.cells], reader.inputs.constant, reader.inputs.value)
    return Reader(reader.weight, inputs, groups[reader.outputs], reader.active)


def _missing(kept: Tensor, readers: Sequence[Reader], grids: Sequence[Tensor]) -> int | None:
    """A cell that must stay as well: to stand for other constants, or as a tensor's last."""
    for reader in readers:
        inputs = reader.inputs
        stays = kept[inputs.cells]
        best = reader.largest_constant(reader.reads(kept) & ~stays)
        if best is not None:
            carrier, sizes = reader.largest_constant(stays), reader.sizes()
            if carrier is None or sizes[carrier] < sizes[best] / 4:  # else weights would explode
                return int(inputs.cells[best])
    for cells in grids:
        if not kept[cells].any():
            return int(cells.flatten()[0])
    return None


def shares(reader: Reader, kept: Tensor) -> tuple[int, Tensor] | None:
    """The input e that stands for constants that go, and c_d / c_e of each; None: there are none.

    The largest constant that stays is taken; its own share is 1, that of all others 0.
    """
    stays = kept[reader.inputs.cells]
    lost = reader.reads(kept) & reader.inputs.constant & ~stays
    carrier = reader.largest_constant(stays)
    if carrier is None or not lost.any():
        return None
    value = reader.inputs.value
    ratio = torch.where(lost.to(value.device), value / value[carrier], 0.0)
    ratio[carrier] = 1.0
    return carrier, ratio


def without_crossings(kept: Tensor, cells: Tensor) -> bool:
    """Whether what is kept of a tensor is all that is on some places of each of its axes."""
    marks = kept[cells]
    whole = torch.ones_like(marks)
    for axis in range(marks.dim()):
        whole = whole & kept_along(marks, axis).reshape(
            [-1 if j == axis else 1 for j in range(marks.dim())]
        )
    return bool((whole == marks).all())


def kept_along(marks: Tensor, axis: int) -> Tensor:
    """The places of an axis at which anything is marked."""
    return marks.movedim(axis, 0).reshape(marks.shape[axis], -1).any(1)
