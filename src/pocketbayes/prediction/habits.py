"""How a network may be run: alone, one draw after another, or many at once, and how many.

Only layers and networks of torch and of this library run many draws at once, and in many threads:
code of users may draw, or keep what it saw. What a trial finds is kept for the kind of input.
"""

import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from pocketbayes.layers import (
    BayesianModule,
    Inputs,
    mapped,
    modules_of,
    num_examples,
    posteriors_of,
    run,
    tensors_of,
)
from pocketbayes.posteriors import Drawing
from pocketbayes.prediction.alone import must_be_alone

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
        key: what it was found for.
    """

    is_alone: bool
    takes_many: bool = False
    example_bytes: int = 0
    weight_bytes: int = 0
    key: Hashable = None


ALONE, SIMPLE = Habits(is_alone=True), Habits(is_alone=False)


def habits_of(network: nn.Module, x: Inputs, drawing: Drawing, count: int) -> Habits:
    """How the network may be run on x for so many draws."""
    modules = drawing.modules.get(network) or modules_of(network)
    if drawing.keeps_dropout or must_be_alone(modules):
        return ALONE
    if count == 1:
        return SIMPLE
    key = _key(modules, x, drawing)
    found = _known.get(network, {}).get(key)
    if found is None:
        try:
            found = _tried(network, x, drawing, key)
        except Exception:  # a real prediction will tell, in its own words
            return ALONE
        keep(network, found)
    return found


def without_many(habits: Habits, is_alone: bool) -> Habits:
    """The same, but for many draws at once, which failed."""
    return replace(habits, is_alone=is_alone, takes_many=False)


def _key(modules: Sequence[nn.Module], x: Inputs, drawing: Drawing) -> Hashable:
    """All that decides how inputs are run: one row alone may be run as many are not."""
    kinds = tuple((t.shape[1:], t.dtype, t.device) for t in tensors_of(x))
    return drawing.estimator, num_examples(x) == 1, kinds, tuple(map(id, modules))


def keep(network: nn.Module, found: Habits) -> None:
    """Keeps it in mind for inputs of the same kind."""
    with _LOCK:
        kinds = _known.setdefault(network, {})
        if len(kinds) >= _MOST_KINDS_OF_INPUT:
            kinds.clear()
        kinds[found.key] = found


def _tried(network: nn.Module, x: Inputs, drawing: Drawing, key: Hashable) -> Habits:
    """Runs the mean network on the first rows, and looks how large its tensors are."""
    rows = mapped(lambda tensor: tensor[:2], x)
    sizes = _Sizes()
    with Drawing("mean", 0).here(), sizes:
        sizes.note(run(network, mapped(torch.clone, rows)))
    each = sizes.largest // num_examples(rows)
    weights = _weight_bytes(network, rows, Drawing(drawing.estimator, 0))
    return Habits(False, True, each, weights, key)


def _weight_bytes(network: nn.Module, x: Inputs, drawing: Drawing) -> int:
    """Of the largest weight that is drawn in a pass."""
    with drawing.here():
        sizes = (
            q.shape.numel() * q.prior_std.element_size()
            for module in modules_of(network)
            if isinstance(module, BayesianModule)
            and posteriors_of(module).draws_weights(num_examples(x) == 1)
            for q in posteriors_of(module).by_name().values()
        )
        return max(sizes, default=0)


class _Sizes(TorchFunctionMode):
    """Notes the bytes of the largest tensor that comes out of a function of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 1

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the function."""
        found = func(*args, **(kwargs or {}))
        for leaf in found if isinstance(found, tuple | list) else (found,):
            if isinstance(leaf, Tensor) and not leaf._is_view():  # of a weight, for instance
                self.note(leaf)
        return found

    def note(self, x: Tensor) -> None:
        """The bytes of x."""
        self.largest = max(self.largest, x.numel() * x.element_size())
