"""Training and evaluation mode, and the layers that drop things at random."""

import contextlib
import threading
from collections.abc import Iterator

from torch import nn
from torch.nn.modules.dropout import _DropoutNd

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
def evaluation_mode(model: nn.Module, keeps_dropout: bool = False) -> Iterator[None]:
    """Inside, every module is in evaluation mode; the last thread to leave brings back the old one.

    A model that is in evaluation mode already is not written to. With kept dropout some thread may
    have switched a module on for a while, which another one must not take for the old mode.
    """
    with _LOCK:
        changed = [m for m in model.modules() if keeps_dropout or m.training or m in _predicting]
        for module in changed:
            if module in _predicting:
                threads, before = _predicting[module]
                _predicting[module] = threads + 1, before
            else:
                _predicting[module] = 1, module.training
                module.training = False
    try:
        yield
    finally:
        with _LOCK:
            for module in changed:
                _leave(module)


def _leave(module: nn.Module) -> None:
    threads, before = _predicting.pop(module)
    if threads > 1:
        _predicting[module] = threads - 1, before
    else:
        module.training = before
