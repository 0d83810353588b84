"""How a network may be run: alone, one draw after another, or many at once, and how many.

What its code can do is read anew for each prediction; what is found out by a trial is kept for its
modules, their settings and the kind of input.
"""

import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pocketbayes.layers import (
    BayesianModule,
    Inputs,
    mapped,
    modules_of,
    num_examples,
    run,
    tensors_of,
)
from pocketbayes.posteriors import Drawing
from pocketbayes.prediction.alone import must_be_alone
from pocketbayes.prediction.own_code import OwnCode, own_code_of

_MOST_KINDS_OF_INPUT = 64
_LOCK = threading.Lock()
_known: WeakKeyDictionary[nn.Module, dict[Hashable, "Habits"]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Habits:
    """How a network may be run on inputs of one kind.

    Attributes:
        is_alone: it may draw from default generators, or keep what it saw: one at a time.
        takes_many: many draws can be made at once, as far as is known.
        example_bytes: of the largest tensor in a pass, for one example.
        weight_bytes: of the largest weight that is drawn.
        has_own_code: it consists not only of layers that are known.
        key: what it was found for.
    """

    is_alone: bool
    takes_many: bool = False
    example_bytes: int = 0
    weight_bytes: int = 0
    has_own_code: bool = False
    key: Hashable = None


ALONE, SIMPLE = Habits(is_alone=True), Habits(is_alone=False)


def habits_of(network: nn.Module, x: Inputs, drawing: Drawing, count: int) -> Habits:
    """How the network may be run on x for so many draws."""
    modules = drawing.modules.get(network) or modules_of(network)
    if drawing.keeps_dropout or must_be_alone(modules):
        return ALONE
    code = own_code_of(modules)
    if code is not None and not code.is_pure:
        return ALONE
    if count == 1 and (code is None or not code.may_draw):
        return SIMPLE
    key = _key(modules, x, drawing, code)
    found = _known.get(network, {}).get(key)
    if found is None:
        try:
            found = _tried(network, x, drawing, code, key)
        except Exception:  # a real prediction will tell, in its own words
            return ALONE
        keep(network, found)
    return found


def without_many(habits: Habits, is_alone: bool) -> Habits:
    """The same, but for many draws at once, which failed."""
    return replace(habits, is_alone=is_alone, takes_many=False)


def _key(
    modules: Sequence[nn.Module], x: Inputs, drawing: Drawing, code: OwnCode | None
) -> Hashable:
    """All that decides how inputs are run: one row alone may be run as many are not."""
    kinds = tuple((t.shape[1:], t.dtype, t.device) for t in tensors_of(x))
    own = tuple(map(id, modules)), None if code is None else code.mark
    return drawing.estimator, num_examples(x) == 1, kinds, own


def keep(network: nn.Module, found: Habits) -> None:
    """Keeps it in mind for inputs of the same kind."""
    with _LOCK:
        kinds = _known.setdefault(network, {})
        if len(kinds) >= _MOST_KINDS_OF_INPUT:
            kinds.clear()
        kinds[found.key] = found


def _tried(
    network: nn.Module, x: Inputs, drawing: Drawing, code: OwnCode | None, key: Hashable
) -> Habits:
    """Runs the network on the first rows, and looks what happens."""
    rows = mapped(lambda tensor: tensor[:2], x)
    trial = Drawing(drawing.estimator, 0)
    if code is not None and not _does_as_before(network, rows, trial, code.may_draw):
        return replace(ALONE, key=key)
    sizes = _Sizes()
    with Drawing("mean", 0).here(), sizes:
        sizes.note(run(network, mapped(torch.clone, rows)))
    each, weights = sizes.largest // num_examples(rows), _weight_bytes(network, rows, trial)
    return Habits(False, True, each, weights, code is not None, key)


def _does_as_before(network: nn.Module, x: Inputs, trial: Drawing, may_draw: bool) -> bool:
    """Whether the same draws give the same outputs, and nothing that the network holds changes."""

    def ran() -> Tensor:
        return run(network, mapped(torch.clone, x))

    def versions() -> list[int]:
        return [t._version for t in (*network.parameters(), *network.buffers())]

    before = versions()
    if may_draw:
        with trial.again().here() as drawing:
            drawing.at_once(1, ran)  # an error if it draws
    with trial.again().here():
        first = ran()
    with trial.again().here():
        return torch.equal(first, ran()) and versions() == before


def _weight_bytes(network: nn.Module, x: Inputs, drawing: Drawing) -> int:
    """Of the largest weight that is drawn in a pass."""
    with drawing.here():
        sizes = (
            module.posterior(name).shape.numel() * module.posterior(name).prior_std.element_size()
            for module in modules_of(network)
            if isinstance(module, BayesianModule) and module.draws_weights(num_examples(x) == 1)
            for name in module.posteriors
        )
        return max(sizes, default=0)


class _Sizes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the bytes of the largest tensor that comes out of an operation."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.largest = 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operation."""
        found = func(*args, **(kwargs or {}))
        if func.is_view:  # of a weight, for instance
            return found
        for leaf in (found,) if isinstance(found, Tensor) else tree_leaves(found):
            if isinstance(leaf, Tensor):
                self.note(leaf)
        return found

    def note(self, x: Tensor) -> None:
        """The bytes of x."""
        self.largest = max(self.largest, x.numel() * x.element_size())
