"""Runs a network and follows its channels through every operation of torch."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from pocketbayes.models import PaddedShortcut
from pocketbayes.moments import METADATA
from pocketbayes.posteriors import inside_vmap
from pocketbayes.shrinking.channels import ALWAYS, Cells, Channels, Reader
from pocketbayes.shrinking.operations import Call, name_of, outputs_in, tensors_in
from pocketbayes.shrinking.steps import Running, Step, calling_line, digest
from pocketbayes.shrinking.weights import Matrix, Weights

Found = Channels | None
Rule = Callable[["Follower", Call], Found | list[Found]]
RULES: dict[str, Rule] = {}
_READS = {
    "item", "tolist", "numpy", "equal", "allclose", "is_nonzero", "__bool__", "__int__",
    "__float__", "__complex__", "__index__", "__contains__", "__array__",
}  # fmt: skip
_TIMES = count()


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Enters a function for the operations of these names."""

    def entered(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return entered


class LostTrackError(Exception):
    """Raised by a rule that cannot tell what becomes of the channels: all of them stay."""


class Follower(TorchFunctionMode):
    """Notes what becomes of the channels while a network runs inside of it.

    Afterwards `readers` and `weights` say what can be cut, `cells` which channels go together,
    `grids` the channels of all tensors, and `steps` what was done, one after the other.
    """

    def __init__(self, model: nn.Module, keeps_dropout: bool) -> None:
        super().__init__()
        self.keeps_dropout = keeps_dropout
        self.cells = Cells()
        self.weights = Weights(model, self.cells)
        self.readers: list[Reader] = []
        self.grids: dict[int, Tensor] = {}
        self.steps: list[Step] = []
        self.running = Running(model)
        self.shortcuts: dict[str, list[Tensor]] = {}
        self.depthwise: dict[str, Tensor] = {}
        self.attentions: dict[str, Tensor] = {}
        self._known: Any = WeakTensorKeyDictionary()
        self._unsure: Any = WeakTensorKeyDictionary()
        self._data: Any = WeakTensorKeyDictionary()
        self._constants_hold = True
        self.sums_to_one: Any = WeakTensorKeyDictionary()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Does what is asked, and follows the channels through it."""
        name, kwargs = name_of(func), kwargs or {}
        if name in METADATA or inside_vmap():
            return func(*args, **kwargs)
        given = tensors_in((args, kwargs))
        versions = [_version(t) for t in given]
        result = func(*args, **kwargs)
        written = [t for t, was in zip(given, versions, strict=True) if _version(t) != was]
        call = Call(name.strip("_"), func, args, kwargs, result)
        self._follow(call, written)
        if any(t in self._data or self._is_data(t) for t in given):
            self._note_data(name, tensors_in(result))
        return result

    def _follow(self, call: Call, written: list[Tensor]) -> None:
        self._keep_unsure(call.tensors)
        before = [c.cells for c in map(self.of, call.tensors) if c is not None]
        outputs = tensors_in(call.result)
        try:
            known = outputs and call.name in RULES
            found = RULES[call.name](self, call) if known else self._lost(call)
        except (LostTrackError, LookupError, TypeError, ValueError, RuntimeError):
            found = self._lost(call)  # also if it is called in a way that its rule does not know
        each = found if isinstance(found, list) else [found, *[None] * (len(outputs) - 1)]
        for tensor, channels in zip(outputs, each, strict=False):
            self._note(tensor, channels)
        for tensor in written:
            self._note_overwritten(tensor, outputs)
        if self.running.counts(call.name):
            self._note_step(call, before, outputs)

    def _is_data(self, tensor: Tensor) -> bool:
        return tensor.is_floating_point() and self.weights.ref_of(tensor) is None

    def _note_data(self, name: str, outputs: list[Tensor]) -> None:
        """After numbers of an example were read, whatever the code does may be due to them."""
        for tensor in outputs:
            self._data[tensor] = True
        if name in _READS:
            self._constants_hold = False
            for tensor, channels in list(self._known.items()):
                self._note(tensor, channels)

    def _keep_unsure(self, tensors: list[Tensor]) -> None:
        for tensor in tensors:
            if tensor in self._unsure:
                self.cells.pin(self._unsure[tensor])

    def of(self, tensor: object) -> Found:
        """The channels of an activation; None: it has none that could go."""
        return self._known.get(tensor) if isinstance(tensor, Tensor) else None

    def keep(self, tensor: object) -> None:
        """All channels of an activation, or all of a weight, stay."""
        channels = self.of(tensor)
        if channels is not None:
            self.cells.pin(channels.cells)
        self.weights.pin(tensor)

    def keep_if_used(self, tensor: Tensor, cells: Tensor) -> None:
        """These cells stay if anything is done with the tensor."""
        self._unsure[tensor] = cells

    def end(self, result: Any) -> None:
        """What the network returns stays."""
        found = outputs_in(result)
        self._keep_unsure(found)
        for tensor in found:
            self.keep(tensor)

    def keep_at(self, number: int) -> bool:
        """Whatever takes part in a step stays, there and wherever the same line does the same.

        Where that is so already, the module's weights stay, then those of the one around it.
        False: nothing is left to keep.
        """
        step = self.steps[min(number, len(self.steps) - 1)]
        before = self._number_of_free()
        for other in self.steps:
            if (other.name, other.line) == (step.name, step.line):
                for cells in other.cells:
                    self.cells.pin(cells)
        module: str | None = step.module
        while self._number_of_free() == before and module is not None:
            self.weights.keep_inside(module)
            module = module.rpartition(".")[0] if module else None
        return self._number_of_free() < before

    def _number_of_free(self) -> int:
        return int((self.cells.groups() != ALWAYS).sum())

    def padding(self, shape: tuple[int, ...], side: int) -> Tensor:
        """Cells of what is put before (0) or after (1) others; only a shortcut's can go."""
        name = self.running.name
        if not isinstance(self.weights.model.get_submodule(name), PaddedShortcut):
            return torch.full(shape, ALWAYS)
        known = self.shortcuts.setdefault(name, [])
        if len(known) == side:
            known.append(self.cells.fresh(*shape))
        return known[side]

    def add_reader(
        self, matrix: Matrix | None, inputs: Channels, outputs: Tensor, active: Tensor
    ) -> None:
        """Notes that these channels are summed up."""
        self.readers.append(Reader(matrix and matrix.ref, inputs, outputs, active))

    def _lost(self, call: Call) -> Found:
        for tensor in call.tensors:
            self.keep(tensor)
        return None

    def _note(self, tensor: Tensor, channels: Found) -> None:
        if self.weights.ref_of(tensor) is not None:
            return
        if channels is not None and channels.cells.numel() == 1:
            self.cells.pin(channels.cells)
            channels = None
        if channels is None:
            self._known.pop(tensor, None)
        else:
            kind = tensor.dtype if tensor.is_floating_point() else channels.value.dtype
            channels = replace(channels, value=channels.value.to(tensor.device, kind))
            channels = channels if self._constants_hold else channels.varying()
            self._known[tensor] = channels
            self.grids[id(channels.cells)] = channels.cells

    def _note_overwritten(self, target: Tensor, outputs: list[Tensor]) -> None:
        """What shares memory with it has the constants that it has now, or none."""
        if self.weights.ref_of(target) is not None:
            self.weights.note_written(target)
        if not any(target is output for output in outputs):
            known = self.of(target)
            self._note(target, known and known.varying())
        made = self.of(target)
        for other in list(self.sums_to_one):
            if _memory(other) == _memory(target):
                self.sums_to_one.pop(other)
        for other, known in list(self._known.items()):
            if other is not target and _memory(other) == _memory(target):
                same = _place(other) == _place(target)
                self._note(other, made if made and same else known.varying())

    def _note_step(self, call: Call, cells: list[Tensor], outputs: list[Tensor]) -> None:
        grids = [None if (c := self.of(t)) is None else c.cells for t in outputs]
        cells = cells + [g for g in grids if g is not None]
        digests = [
            digest(tensor, grid) if self._is_compared(tensor) else None
            for tensor, grid in zip(outputs, grids, strict=True)
        ]
        step = Step(call.name, calling_line(), self.running.name, cells, grids, digests)
        self.steps.append(step)

    def _is_compared(self, tensor: Tensor) -> bool:
        """Not views of weights, nor what may be other numbers later as nobody reads it."""
        return tensor not in self._unsure and self.weights.ref_of(tensor) is None


def _version(tensor: Tensor) -> int:
    """How often it was written into; another number each time where torch does not count."""
    return next(_TIMES) if tensor.is_inference() else tensor._version


def _memory(tensor: Tensor) -> object:
    """Where its numbers are."""
    if tensor.layout != torch.strided or tensor.is_nested:
        return object()
    return tensor.untyped_storage().data_ptr()


def _place(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.storage_offset()
