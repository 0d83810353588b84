"""Which channels of a network's tensors must stay: ties, constants and who reads them.

A *cell* is one number for all channels, of whatever tensors, that can only go together: those
that an activation turns into each other, that a residual network adds, that flattening repeats.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Channels:
    """The channels of one tensor: their axis, cell, and value where that is always the same."""

    axis: int
    cells: Tensor
    constant: Tensor
    value: Tensor

    @property
    def zero(self) -> Tensor:
        """The channels that are always 0."""
        return self.constant & (self.value == 0).cpu()

    def image(self, shape: torch.Size) -> Tensor:
        """A tensor of this shape in which each channel has its constant; 0 where it has none."""
        broad = [1] * len(shape)
        broad[self.axis] = -1
        return self.value.view(broad).expand(shape).clone()


@dataclass(frozen=True)
class Reader:
    """A layer that sums over its input channels; `active[o, i]`: whether output o reads input i."""

    name: str
    inputs: Channels
    outputs: Channels
    active: Tensor

    def reads(self, kept: Tensor) -> Tensor:
        """The inputs that are not simply 0 and that an output to be kept reads."""
        return self.active[kept[self.outputs.cells]].any(0) & ~self.inputs.zero

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
        self._parent: list[int] = []
        self._pinned: list[Tensor] = []

    def fresh(self, number: int) -> Tensor:
        """New cells."""
        start = len(self._parent)
        self._parent += range(start, start + number)
        return torch.arange(start, start + number)

    def tie(self, some: Tensor, others: Tensor) -> None:
        """From now on these can only go together, one by one."""
        for one, other in zip(some.tolist(), others.tolist(), strict=True):
            self._parent[self._root(one)] = self._root(other)

    def pin(self, cells: Tensor) -> None:
        """These must stay."""
        self._pinned.append(cells)

    def roots(self) -> Tensor:
        """For each cell the one that stands for all it is tied to."""
        return torch.tensor([self._root(i) for i in range(len(self._parent))], dtype=torch.long)

    def pinned(self) -> Tensor:
        """A mark for each cell that must stay."""
        marks = torch.zeros(len(self._parent), dtype=torch.bool)
        for cells in self._pinned:
            marks[cells] = True
        return marks

    def _root(self, cell: int) -> int:
        while self._parent[cell] != cell:
            self._parent[cell] = self._parent[self._parent[cell]]
            cell = self._parent[cell]
        return cell


def needed(cells: Cells, readers: list[Reader], tensors: Iterable[Channels]) -> Tensor:
    """A mark for each cell that stays.

    A cell goes if every reader either does not read it, or sees a 0, or sees a constant c_d of
    which another, c_e, can take the place: w_d c_d = (w_d c_d / c_e) c_e.
    """
    roots, tensors = cells.roots(), list(tensors)
    kept = _whole(cells.pinned(), roots)
    while True:
        before = int(kept.sum())
        for reader in reversed(readers):
            reads = reader.reads(kept) & ~reader.inputs.constant
            kept[reader.inputs.cells[reads]] = True
            kept = _whole(kept, roots)
        if int(kept.sum()) == before:
            missing = _missing(kept, readers, tensors)
            if missing is None:
                return kept
            kept[missing] = True
            kept = _whole(kept, roots)


def _whole(kept: Tensor, roots: Tensor) -> Tensor:
    """Keeps all that is tied to what is kept."""
    marks = torch.zeros_like(kept).index_fill_(0, roots[kept], True)
    return marks[roots]


def _missing(kept: Tensor, readers: list[Reader], tensors: list[Channels]) -> int | None:
    """A cell that must stay as well: to stand for other constants, or as a tensor's last."""
    for reader in readers:
        inputs = reader.inputs
        stays = kept[inputs.cells]
        best = reader.largest_constant(reader.reads(kept) & ~stays)
        if best is not None:
            carrier, sizes = reader.largest_constant(stays), reader.sizes()
            if carrier is None or sizes[carrier] < sizes[best] / 4:  # else weights would explode
                return int(inputs.cells[best])
    for channels in tensors:
        if not kept[channels.cells].any():
            return int(channels.cells[0])
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
