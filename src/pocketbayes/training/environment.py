"""Where training runs: device, precision, memory, and Ctrl-C."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import torch
from torch import nn

from pocketbayes.errors import PocketBayesError

PRECISIONS = ("auto", "fp32", "bf16")
DEVICES = ("auto", "cpu", "cuda")


def launched_fabric(precision: str, device: str, model: nn.Module) -> Any:
    """Fabric for this process: torchrun's environment says whether there are others."""
    if device == "cuda" and not torch.cuda.is_available():
        raise PocketBayesError('device="cuda", but torch sees no CUDA device; use "cpu" or "auto"')
    accelerator = "cuda" if device != "cpu" and torch.cuda.is_available() else "cpu"
    if precision == "auto":
        single = all(p.dtype == torch.float32 for p in model.parameters())
        fast = accelerator == "cuda" and single and torch.cuda.is_bf16_supported()
        precision = "bf16" if fast else "fp32"
    world, local = (int(os.environ.get(k, 1)) for k in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    fabric = _fabric_module().Fabric(
        accelerator=accelerator,
        devices=local,
        num_nodes=max(1, world // local),
        strategy="ddp" if world > 1 else "auto",
        precision={"fp32": "32-true", "bf16": "bf16-mixed"}[precision],
    )
    fabric.launch()
    return fabric


def peak_memory(device: torch.device) -> int | None:
    """Most bytes held so far: on a GPU by tensors, elsewhere by the process; None: not known."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@contextlib.contextmanager
def tuned_convolutions() -> Iterator[None]:
    """Lets cuDNN time its algorithms once for each shape; afterwards the switch is as it was."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def _fabric_module() -> Any:
    try:
        return import_module("lightning_fabric")
    except ImportError:  # the larger `lightning` package holds the same code
        return import_module("lightning.fabric")


@contextlib.contextmanager
def deferred_interrupt(enabled: bool) -> Iterator[threading.Event]:
    """Ctrl-C sets the event, so that a step is never cut in half; a second one stops at once."""
    interrupted = threading.Event()
    ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN  # a job in the background
    if not enabled or ignored or threading.current_thread() is not threading.main_thread():
        yield interrupted
        return

    def handle(number: int, frame: object) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()

    previous = signal.signal(signal.SIGINT, handle)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, previous)
