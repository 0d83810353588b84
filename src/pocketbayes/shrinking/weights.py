"""The parameters, buffers and posteriors of a network, and the cells that their numbers have."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pocketbayes.layers import OURS, bayesian_modules, posteriors_of
from pocketbayes.posteriors import Shared
from pocketbayes.shrinking.channels import Cells, Channels, Ref
from pocketbayes.shrinking.narrowing import parts_in, source_of

MOST_NUMBERS = 1 << 18  # of a tensor whose numbers have cells of their own


class Matrix(NamedTuple):
    """A weight that sums over channels: its name, and the axes of its outputs and inputs."""

    ref: Ref
    outputs: int
    inputs: int


class Weights:
    """Tells weights by their tensors, as they are while a pass runs, and gives them cells.

    A weight of a product has cells along two of its axes. All others have one for each number:
    what reads them ties these to channels. Of a weight that is used in both ways, tied to others,
    shared or read otherwise, everything stays.
    """

    def __init__(self, model: nn.Module, cells: Cells) -> None:
        self.model, self._cells = model, cells
        self._known: dict[int, tuple[Ref, tuple[int, ...], Tensor]] = {}
        self.grids: dict[Ref, dict[str, Tensor]] = defaultdict(dict)
        self.input_axis: dict[Ref, int] = {}
        self.factors: dict[Ref, Ref] = {}
        self._pinned: set[Ref] = set()
        self._written: set[Ref] = set()
        owners = defaultdict[int, set[Ref]](set)
        for ref, source, tensor in _tensors(model):
            owners[id(source)].add(ref)
            if isinstance(source, Shared) or len(owners[id(source)]) > 1:
                self._pinned |= owners[id(source)]
            self._known.setdefault(id(tensor), (ref, tuple(range(tensor.dim())), tensor))

    def ref_of(self, tensor: object) -> Ref | None:
        """The name of this weight; None: it is none."""
        found = self._known.get(id(tensor))
        return None if found is None else found[0]

    def note_view(self, tensor: Tensor, view: Tensor, axes: tuple[int, ...]) -> None:
        """The weight with its axes in another order, or in another type."""
        ref, order, _ = self._known[id(tensor)]
        self._known[id(view)] = ref, tuple(order[axis] for axis in axes), view

    def note_normalised(self, direction: Tensor, factor: Tensor, made: Tensor) -> None:
        """g v / |v|, a norm for each output: from now on that is v, which g scales."""
        self.note_view(direction, made, tuple(range(made.dim())))
        self.factors[self._known[id(direction)][0]] = self._known[id(factor)][0]

    def factor_of(self, ref: Ref) -> Tensor | None:
        """What scales the outputs of a weight that is normalised; None: it is not."""
        factor = self.factors.get(ref)
        return next((t for own, _, t in self._known.values() if own == factor), None)

    def pin(self, tensor: object) -> None:
        """All of this weight stays."""
        ref = self.ref_of(tensor)
        if ref is not None:
            self.keep(ref)

    def note_written(self, tensor: Tensor) -> None:
        """A pass writes into it: it stays, and is no constant."""
        ref = self._known[id(tensor)][0]
        self.keep(ref)
        self._written.add(ref)

    def keep(self, ref: Ref) -> None:
        """All of the weight of this name stays."""
        self._pinned.add(ref)
        for cells in self.grids[ref].values():
            self._cells.pin(cells)

    def keep_inside(self, module: str) -> None:
        """All weights of a module and of what is inside of it stay."""
        for ref in list(self.grids):
            if not module or f"{ref.module}.".startswith(f"{module}."):
                self.keep(ref)

    def matrix(self, tensor: Tensor, outputs: int, inputs: int) -> Matrix | None:
        """The weight, which sums along `inputs`; None: it is no weight by itself."""
        found = self._known.get(id(tensor))
        if found is None:
            return None
        ref, order, _ = found
        made = Matrix(ref, order[outputs], order[inputs])
        self.input_axis[ref] = made.inputs
        self.along(tensor, outputs)
        self.along(tensor, inputs)
        return made

    def along(self, tensor: Tensor, axis: int) -> Tensor:
        """The cells along one axis."""
        ref, order, _ = self._known[id(tensor)]
        if len(order) == 1:
            return self._of(ref, "each", tensor.numel(), [-1])
        shape = [-1 if j == order[axis] else 1 for j in range(len(order))]
        cells = self._of(ref, f"axis {order[axis]}", tensor.shape[axis], shape)
        return cells.flatten()

    def each(self, tensor: Tensor) -> Channels | None:
        """A cell for every number, each of which is a constant; None: there are too many."""
        ref, order, _ = self._known[id(tensor)]
        buffer = source_of(self.model.get_submodule(ref.module), ref.name) is None
        if tensor.numel() > MOST_NUMBERS or (buffer and tensor.dim() > 1):
            self.keep(ref)
            return None
        back = sorted(range(len(order)), key=order.__getitem__)
        cells = self._of(ref, "each", tensor.numel(), [tensor.shape[j] for j in back])
        return Channels(cells.permute(order), self.certain(tensor), tensor.detach())

    def certain(self, tensor: Tensor) -> Tensor:
        """The numbers of a weight that have no noise."""
        ref, order, _ = self._known[id(tensor)]
        module = self.model.get_submodule(ref.module)
        source = source_of(module, ref.name)
        if source is None or ref in self._written:
            return torch.full(tensor.shape, ref not in self._written)
        return parts_in(module, ref.name).certain.cpu().permute(order)

    def _of(self, ref: Ref, way: str, number: int, shape: list[int]) -> Tensor:
        known = self.grids[ref]
        if way not in known:
            known[way] = self._cells.fresh(number).reshape(shape)
            if ref in self._pinned or len({name[:4] for name in known}) > 1:
                self.keep(ref)
        return known[way]


def _tensors(model: nn.Module) -> Iterator[tuple[Ref, Any, Tensor]]:
    """Name, source and value of all weights; posteriors with the draw that is held."""
    for name, module in model.named_modules():
        if OURS in name.split("."):
            continue
        for table in (module._parameters, module._buffers):
            for key, tensor in table.items():
                if tensor is not None:
                    yield Ref(name, key), tensor, tensor
    for name, layer in bayesian_modules(model):
        held = posteriors_of(layer).held_draw()
        assert held is not None
        for key, source in posteriors_of(layer).by_name().items():
            yield Ref(name, key), source, held[key]
