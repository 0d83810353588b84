"""Networks that may draw from torch's default generators themselves: one prediction at a time."""

import functools
import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from types import BuiltinFunctionType
from typing import TypeVar

import torch
from torch import nn
from torch.nn.modules import module as hooks

from pocketbayes.errors import PocketBayesError
from pocketbayes.layers import Note, drawing_by, dropout_modules, first_parameter, restored_mode
from pocketbayes.posteriors import (
    DEFAULT_GENERATORS,
    Drawing,
    current_drawing,
    isolated_randomness,
    mixed_seed,
    no_drawing,
    passes_of,
    seed_everything,
)

Batch = TypeVar("Batch")
_HARMLESS = (int, float, str, tuple, list, dict, set, type(None), BuiltinFunctionType)
_USUAL = frozenset((*_HARMLESS, bool, OrderedDict))  # of these very classes almost all values are
_DRAWING = (nn.FractionalMaxPool2d, nn.FractionalMaxPool3d)  # also in evaluation mode
_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def must_be_alone(modules: Iterable[nn.Module]) -> bool:
    """Whether what a prediction sets has to be written into the network of these modules.

    Code of users and hooks may do anything; compiled code and wrappers for several devices do not
    see what a thread draws by; what is in training mode by an `eval` of its own may draw.
    """
    if hooks._global_forward_hooks or hooks._global_forward_pre_hooks:
        return True
    for module in modules:
        if (
            module.training
            or _is_of_a_kind_alone(type(module))  # type: ignore[arg-type]
            or _is_patched(module)
            or module._forward_hooks
            or module._compiled_call_impl is not None
            or "_orig_mod" in module._modules
        ):
            return True
        before = module._forward_pre_hooks
        if before and not all(isinstance(hook, Note) for hook in before.values()):
            return True
    return False


@functools.cache
def _is_of_a_kind_alone(kind: type) -> bool:
    """Whether modules of this class may do anything, wrap a network or draw."""
    return not is_known(kind) or issubclass(kind, (*_WRAPPERS, *_DRAWING))


@functools.cache
def is_known(kind: type) -> bool:
    """Whether modules of this class are of torch or of this library, not of a user."""
    if "_plain_class" in vars(kind):  # a Bayesian layer, made of that class
        return is_known(vars(kind)["_plain_class"])
    known = kind.__module__.startswith(("torch.nn.modules.", "pocketbayes."))
    return known and getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is kind


def _is_patched(module: nn.Module) -> bool:
    """Whether it holds a function of a user, such as a `forward` or an activation."""
    if _USUAL.issuperset(map(type, module.__dict__.values())):
        return False
    return any(
        callable(value) and not str(getattr(value, "__module__", "")).startswith("torch")
        for value in module.__dict__.values()
        if not isinstance(value, _HARMLESS)
    )


@contextmanager
def alone(network: nn.Module, drawing: Drawing) -> Iterator[None]:
    """Where the network itself draws, as the drawing says; other threads wait that want so, too.

    Afterwards the network and the default generators are as they were.
    """
    device = first_parameter(network).device
    with (
        DEFAULT_GENERATORS,
        no_drawing(),
        drawing_by(network, drawing.estimator),
        restored_mode(network),
        isolated_randomness(device),
        passes_of(network),
    ):
        seed_everything(drawing.seed, device)
        if drawing.keeps_dropout and drawing.estimator != "mean":
            for module in dropout_modules(network):
                module.training = True
        yield


@contextmanager
def seeded(generator: torch.Generator | None, device: torch.device) -> Iterator[None]:
    """The default generators, for this thread alone; with a generator a fork, seeded by it."""
    with DEFAULT_GENERATORS:
        seed = seed_of(generator)
        if seed is None:
            yield
            return
        with isolated_randomness(device):
            seed_everything(seed, device)
            yield


def fetched(batches: Iterable[Batch], device: torch.device) -> Iterator[Batch]:
    """The batches of a loader, of which shuffling and augmentation repeat if the prediction does.

    Where the prediction of this thread has a seed of its own, the default generators are forked
    and seeded by it and the batch's number for as long as a batch is fetched.
    """
    drawing = current_drawing()
    if drawing is None or not drawing.repeats:
        yield from batches
        return
    waiting: Iterator[Batch] | None = None
    for number in count():
        with DEFAULT_GENERATORS, isolated_randomness(device):
            seed_everything(mixed_seed(drawing.seed, number), device)
            waiting = iter(batches) if waiting is None else waiting
            try:
                batch = next(waiting)
            except StopIteration:
                return
        yield batch


def seed_of(generator: torch.Generator | None) -> int | None:
    """The next number of a generator."""
    if generator is None:
        return None
    if not isinstance(generator, torch.Generator):
        raise PocketBayesError(f"generator must be a torch.Generator; got {generator!r}")
    number = torch.empty((), dtype=torch.int64, device=generator.device)
    return int(number.random_(generator=generator))
