"""Products of small matrices on ARM, where the library that torch calls for them is slow."""

import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import nn

_LOCK = threading.Lock()
_inside = 0
_before = True


@contextmanager
def small_products(model: nn.Module) -> Iterator[None]:
    """Runs a network without convolutions or recurrence on ARM without oneDNN.

    There oneDNN takes 0.6 ms for a product of 32 x 64 and 64 x 64, torch's own code 0.025 ms, and
    up to 2,048 x 2,048 it is never ahead.
    """
    with without_onednn() if _gains(model) else nullcontext():
        yield


@contextmanager
def one_thread() -> Iterator[None]:
    """Small networks lose more by waiting for another thread than they gain by it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def without_onednn() -> Iterator[None]:
    """The switch is torch's and global: off with the first thread that wants so, on with the last.

    What was set before that comes back.
    """
    global _inside, _before
    with _LOCK:
        if _inside == 0:
            _before = bool(torch.backends.mkldnn.enabled)
            _switch(False)
        _inside += 1
    try:
        yield
    finally:
        with _LOCK:
            _inside -= 1
            if _inside == 0:
                _switch(_before)


def _switch(on: bool) -> None:
    setattr(torch.backends.mkldnn, "enabled", on)  # noqa: B010  typed as what it is not


def _gains(model: nn.Module) -> bool:
    kept = (nn.modules.conv._ConvNd, nn.RNNBase)
    return (
        platform.machine().lower() in ("aarch64", "arm64")
        and all(parameter.device.type == "cpu" for parameter in model.parameters())
        and not any(isinstance(module, kept) for module in model.modules())
    )
