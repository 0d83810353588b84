"""Training and evaluation mode, and the layers that drop things at random."""

import contextlib
import threading
from collections.abc import Iterator
from functools import cache

from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from pocketbayes.layers.walking import modules_of

# Beside these, attention and recurrent layers drop inside their own forward.
_WITH_DROPOUT = (nn.MultiheadAttention, nn.RNNBase)
_LOCK = threading.Lock()
_predicting: dict[nn.Module, tuple[int, bool]] = {}  # in how many threads, and the mode before


def dropout_modules(model: nn.Module) -> Iterator[nn.Module]:
    """Every module whose training mode switches some dropout on."""
    for module in model.modules():
        if (isinstance(module, _DropoutNd) and module.p > 0) or (
            isinstance(module, _WITH_DROPOUT) and module.dropout > 0
        ):
            yield module


@contextlib.contextmanager
def restored_mode(model: nn.Module) -> Iterator[None]:
    """Afterwards every module is in training or evaluation mode as it was."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextlib.contextmanager
def evaluation_mode(
    model: nn.Module, keeps_dropout: bool = False, modules: list[nn.Module] | None = None
) -> Iterator[None]:
    """Inside, the model is in evaluation mode; the last thread to leave brings back the old one.

    A model that is in evaluation mode already is not written to, unless some module has a `train`
    or `eval` of its own, which may do anything. With kept dropout some thread may have switched a
    module on for a while, which another one must not take for the old mode. `modules` are those of
    the model, where they are known.
    """
    modules = modules_of(model) if modules is None else modules
    with _LOCK:
        has_own = any([_has_own_mode(m) for m in modules])  # noqa: C419  half the time
        is_on = [m for m in modules if m.training or m in _predicting]
        changed = modules if has_own or keeps_dropout else is_on
        fresh = [module for module in changed if module not in _predicting]
        for module in changed:
            threads, before = _predicting.get(module, (0, module.training))
            _predicting[module] = threads + 1, before
        if has_own and len(fresh) == len(modules):
            model.eval()
        elif not has_own:
            for module in fresh:
                module.training = False
    try:
        yield
    finally:
        if changed:
            with _LOCK:
                for module in changed:
                    _leave(module)


def _has_own_mode(module: nn.Module) -> bool:
    own = module.__dict__
    return _is_own_mode(type(module)) or "train" in own or "eval" in own  # type: ignore[arg-type]


@cache
def _is_own_mode(kind: type[nn.Module]) -> bool:
    return kind.train is not nn.Module.train or kind.eval is not nn.Module.eval


def _leave(module: nn.Module) -> None:
    threads, before = _predicting.pop(module)
    if threads > 1:
        _predicting[module] = threads - 1, before
    else:
        module.training = before
