"""Products of small matrices and convolutions, where what torch calls for them is slow."""

import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from pocketbayes.layers.walking import first_parameter, modules_of
from pocketbayes.posteriors import current_drawing, is_of_draws

_KEPT = (nn.modules.conv._ConvNd, nn.RNNBase)
_LOCK = threading.Lock()
_inside = 0
_before = True


@contextmanager
def small_products(model: nn.Module, modules: list[nn.Module] | None = None) -> Iterator[None]:
    """Runs a network without convolutions or recurrence on ARM without oneDNN.

    There oneDNN takes 0.6 ms for a product of 32 x 64 and 64 x 64, torch's own code 0.025 ms, and
    up to 2,048 x 2,048 it is never ahead.
    """
    with without_onednn() if _gains(model, modules) else nullcontext():
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


def convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, arguments: tuple[Any, ...]
) -> Tensor:
    """`torch.convolution`; for many draws at once on a CPU, one after another where that is faster.

    30 draws of weights from 16 to 16 channels of 32 x 32 took 9 ms so on ARM, and 71 ms as groups
    of one convolution, which torch would make of them.
    """
    drawing = current_drawing()
    if drawing is None or not drawing.is_at_once or x.device.type != "cpu":
        return torch.convolution(x, weight, bias, *arguments)
    if is_of_draws(weight):
        convolve = partial(_convolved, arguments)
        return drawing.one_by_one(convolve, x, weight, bias)
    if is_of_draws(x) and _suits_nnpack(x, weight, *arguments):
        convolve = partial(_convolved_by_nnpack, arguments[1])
        return drawing.as_rows(convolve, x, weight, bias)
    return torch.convolution(x, weight, bias, *arguments)


def _convolved(arguments: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.convolution(x, weight, bias, *arguments)


def _convolved_by_nnpack(padding: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    found: Tensor = torch._nnpack_spatial_convolution(x, weight, bias, padding)
    return found


def _suits_nnpack(
    x: Tensor,
    weight: Tensor,
    stride: Any,
    _: Any,
    dilation: Any,
    transposed: bool,
    __: Any,
    groups: int,
) -> bool:
    """Whether torch's other library is faster: on ARM, 3 times for 32 channels of 16 x 16."""
    return (
        _is_arm()
        and tuple(stride) == tuple(dilation) == (1, 1)
        and not transposed
        and groups == 1
        and 3 <= min(weight.shape[2:]) <= max(weight.shape[2:]) <= 5
        and x.dtype == weight.dtype == torch.float32
        and torch.backends.nnpack.is_available()  # type: ignore[no-untyped-call]
    )


@cache
def _is_arm() -> bool:
    return platform.machine().lower() in ("aarch64", "arm64")


def _switch(on: bool) -> None:
    setattr(torch.backends.mkldnn, "enabled", on)  # noqa: B010  typed as what it is not


def _gains(model: nn.Module, modules: list[nn.Module] | None) -> bool:
    if not _is_arm() or first_parameter(model).device.type != "cpu":
        return False
    modules = modules_of(model) if modules is None else modules
    return not any([isinstance(module, _KEPT) for module in modules])  # noqa: C419  half the time
