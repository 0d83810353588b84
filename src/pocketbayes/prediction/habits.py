"""What is found out about a network before its first prediction: how it may be run."""

import random
import threading
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from pocketbayes.layers import Inputs, bayesian_modules, mapped, num_examples, run, tensors_of
from pocketbayes.posteriors import DEFAULT_GENERATORS, Drawing, isolated_randomness

_MOST_KINDS_OF_INPUT = 64
_LOCK = threading.Lock()
_known: WeakKeyDictionary[nn.Module, dict[Hashable, "Habits"]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Habits:
    """How a network may be run on inputs of one kind.

    Attributes:
        is_alone: it draws from default generators, or in threads of its own: one at a time.
        takes_many: many draws can be made at once.
        input_bytes: of the largest input of a layer, for one example.
        weight_bytes: of the largest weight that is drawn.
    """

    is_alone: bool
    takes_many: bool = False
    input_bytes: int = 0
    weight_bytes: int = 0


def habits_of(network: nn.Module, x: Inputs, drawing: Drawing) -> Habits:
    """How the network may be run on inputs like x; found out with the first rows, and kept."""
    kind = _kind(x, drawing)
    found = _known.get(network, {}).get(kind)
    if found is None:
        found = _tried(network, mapped(lambda tensor: tensor[:2].clone(), x), drawing)
        _keep(network, kind, found)
    return found


def forget_many(network: nn.Module, x: Inputs, drawing: Drawing) -> None:
    """Keeps in mind that many draws at once failed where one by one did not."""
    _keep(network, _kind(x, drawing), Habits(is_alone=False))


def _kind(x: Inputs, drawing: Drawing) -> Hashable:
    """All that decides how inputs are run: one row alone may be run as many are not."""
    is_one = num_examples(x) == 1
    return drawing.estimator, is_one, *((t.shape[1:], t.dtype, t.device) for t in tensors_of(x))


def _keep(network: nn.Module, kind: Hashable, found: Habits) -> None:
    with _LOCK:
        kinds = _known.setdefault(network, {})
        if len(kinds) >= _MOST_KINDS_OF_INPUT:
            kinds.clear()
        kinds[kind] = found


def _tried(network: nn.Module, x: Inputs, drawing: Drawing) -> Habits:
    """Runs the network on x as predictions would, and looks what happens."""
    device = next(network.parameters()).device
    with DEFAULT_GENERATORS, isolated_randomness(device):
        trial, before = Drawing(drawing.estimator, 0), _states(device)
        try:
            trial.note_input(_run(network, x, trial))
        except Exception:  # a real prediction will tell, in its own words
            return Habits(is_alone=True)
        all_asked = all(layer in trial.asked for _, layer in bayesian_modules(network))
        if not all_asked or not _equal(before, _states(device)):
            return Habits(is_alone=True)
        takes_many = _takes_many(network, x, trial.again())
        if not takes_many:
            _run(network, x, trial.again())  # over what the failure may have left in the network
        each = trial.largest_input // num_examples(x)
        return Habits(False, takes_many, each, trial.largest_weight)


def _run(network: nn.Module, x: Inputs, trial: Drawing) -> Tensor:
    with trial.here():
        return run(network, mapped(torch.clone, x))


def _takes_many(network: nn.Module, x: Inputs, trial: Drawing) -> bool:
    """Whether two draws at once succeed, and leave nothing of themselves in the network."""
    try:
        with trial.here():
            found = trial.at_once(2, lambda: run(network, mapped(torch.clone, x)))
    except Exception:
        return False
    left = (leaf for module in network.modules() for leaf in tree_leaves(vars(module)))
    return found.dim() > 0 and not any(isinstance(leaf, Tensor) and _is_dead(leaf) for leaf in left)


def _is_dead(x: Tensor) -> bool:
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(x))


def _states(device: torch.device) -> list[Any]:
    """Where the default generators stand."""
    on_gpu = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *on_gpu, np.random.get_state(legacy=False), random.getstate()]


def _equal(left: list[Any], right: list[Any]) -> bool:
    return all(
        torch.equal(a, b) if isinstance(a, Tensor) else str(a) == str(b)
        for a, b in zip(left, right, strict=True)
    )
