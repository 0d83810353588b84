"""What a network does when it runs, step by step, so that two runs can be compared."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from pocketbayes.moments import METADATA
from pocketbayes.posteriors import inside_vmap
from pocketbayes.shrinking.channels import kept_along
from pocketbayes.shrinking.operations import RANDOM, name_of, tensors_in

_SAME = 1e-3  # of the largest output; in float32 rounding is far below, a wrong cut far above


class Digest(NamedTuple):
    """The shape of a tensor, and for each of its channels the sums of numbers and of sizes."""

    shape: tuple[int, ...]
    sums: Tensor
    sizes: Tensor


@dataclass(frozen=True)
class Step:
    """What was done once, where, and with which cells; `grids` are the cells of what came out."""

    name: str
    line: object
    module: str
    cells: list[Tensor]
    grids: list[Tensor | None]
    digests: list[Digest | None]


class Running:
    """Inside, `name` is that of the innermost module that runs."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        named = model.named_modules()
        self._attentions = {n for n, m in named if isinstance(m, nn.MultiheadAttention)}
        self._names: list[str] = []
        self._hooks: list[Any] = []

    @property
    def name(self) -> str:
        """The innermost module's; "" is the network's own."""
        return self._names[-1] if self._names else ""

    def counts(self, operation: str) -> bool:
        """Whether this is a step: what torch's attention does around its function is none."""
        inside = self.name in self._attentions
        return not inside or operation == "multi_head_attention_forward"

    def __enter__(self) -> None:
        for name, module in self._model.named_modules():
            if isinstance(module, torch.jit.ScriptModule):
                continue
            self._hooks.append(module.register_forward_pre_hook(self._entered(name)))
            self._hooks.append(module.register_forward_hook(self._left, always_call=True))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for hook in self._hooks:
            hook.remove()

    def _entered(self, name: str) -> Any:
        return lambda *_: self._names.append(name)

    def _left(self, *_: Any) -> None:
        self._names.pop()


def calling_line() -> object:
    """The line of a module's code that runs at this moment."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if isinstance(frame.f_locals.get("self"), nn.Module):
            return frame.f_code, frame.f_lineno
        frame = frame.f_back
    return None


def digest(tensor: Tensor, grid: Tensor | None) -> Digest:
    """A tensor in short."""
    axes = range(tensor.dim())
    others = [j for j in axes if grid is None or grid.shape[j] == 1]
    if tensor.layout != torch.strided or tensor.is_complex() or tensor.is_meta:
        return Digest(tuple(tensor.shape), torch.zeros(()), torch.zeros(()))
    numbers = tensor.detach().double().nan_to_num(0, 0, 0)
    both = (t.sum(others, keepdim=True) if others else t for t in (numbers, numbers.abs()))
    return Digest(tuple(tensor.shape), *(t.cpu() for t in both))


class DifferenceError(Exception):
    """A step of a second run is not what it was in the first."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Comparison(TorchFunctionMode):
    """Raises `DifferenceError` where a smaller network does something else than the larger did.

    What came out must be what came out then, without the channels that are gone.
    """

    def __init__(self, model: nn.Module, steps: Sequence[Step], kept: Tensor) -> None:
        super().__init__()
        self.running = Running(model)
        self._steps, self._kept = steps, kept
        self.number = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Does what is asked and looks at what comes out."""
        name, kwargs = name_of(func), kwargs or {}
        if name in METADATA or inside_vmap():
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
        if not self.running.counts(name):
            return result
        if self.number >= len(self._steps) or self._steps[self.number].name != name.strip("_"):
            raise DifferenceError(self.number)
        if tensors_in((args, kwargs)) and name.strip("_") not in RANDOM:
            self._compare(self._steps[self.number], tensors_in(result))
        self.number += 1
        return result

    def _compare(self, step: Step, outputs: list[Tensor]) -> None:
        if len(outputs) != len(step.digests):
            raise DifferenceError(self.number)
        for tensor, grid, known in zip(outputs, step.grids, step.digests, strict=True):
            if known is not None and not _fits(tensor, grid, known, self._kept):
                raise DifferenceError(self.number)


def _fits(tensor: Tensor, grid: Tensor | None, known: Digest, kept: Tensor) -> bool:
    shape, (sums, sizes) = list(known.shape), known[1:]
    if tensor.dim() != len(shape):
        return False
    if grid is not None:
        marks = kept[grid]
        for axis in range(marks.dim()):
            if marks.shape[axis] > 1:
                places = kept_along(marks, axis).nonzero().flatten()
                sums, sizes = (t.index_select(axis, places) for t in (sums, sizes))
                shape[axis] = len(places)
    if tuple(tensor.shape) != tuple(shape):
        return False
    new = _digest_along(tensor, grid)
    scale = sizes.max() if sizes.numel() else torch.zeros(())
    return bool(((new.sums - sums).abs() <= rounding_of(tensor) * scale + 1e-12).all())


def _digest_along(tensor: Tensor, grid: Tensor | None) -> Digest:
    """As that of the larger tensor, whose channels may be a single one by now."""
    return digest(tensor, grid if grid is None else torch.empty(grid.shape, device="meta"))


def rounding_of(tensor: Tensor) -> float:
    """By how much of the largest number two may differ that should be equal."""
    small = torch.finfo(tensor.dtype).eps if tensor.is_floating_point() else 0.0
    return max(_SAME, 32 * small)
