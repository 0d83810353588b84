"""Where training runs: device, precision, memory."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

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
    if world == 1 and accelerator == "cpu":
        return OneProcess(precision == "bf16")
    fabric = fabric_module().Fabric(
        accelerator=accelerator,
        devices=local,
        num_nodes=max(1, world // local),
        strategy="ddp" if world > 1 else "auto",
        precision={"fp32": "32-true", "bf16": "bf16-mixed"}[precision],
    )
    fabric.launch()
    return fabric


class OneProcess:
    """What Fabric does for one process on a CPU, without the 5 seconds that importing it takes."""

    device, world_size, global_rank, is_global_zero = torch.device("cpu"), 1, 0, True

    def __init__(self, mixed: bool) -> None:
        self._mixed = mixed

    def autocast(self) -> AbstractContextManager[object]:
        """Half precision, where it is wanted."""
        return torch.autocast("cpu", torch.bfloat16) if self._mixed else contextlib.nullcontext()

    def setup_module(self, module: nn.Module) -> Callable[..., Any]:
        """The module on its device, to be called in its precision."""
        module.to(self.device)

        def call(*inputs: Any) -> Any:
            with self.autocast():
                return module(*inputs)

        return call

    def backward(self, loss: Tensor) -> None:
        """Gradients."""
        loss.backward()  # type: ignore[no-untyped-call]


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


def compiled_loss(objective: nn.Module, wanted: bool | str, replays_graphs: bool) -> Any:
    """The loss as it is run: compiled or not.

    On one GPU its kernels are replayed as a CUDA graph: launching them one by one takes the
    host longer than running them takes a fast GPU.
    """
    if isinstance(wanted, str):
        return torch.compile(objective, backend=wanted)
    if not wanted:
        return objective
    return torch.compile(objective, mode="reduce-overhead" if replays_graphs else None)


@contextlib.contextmanager
def tuned_convolutions() -> Iterator[None]:
    """Lets cuDNN time its algorithms once for each shape; afterwards the switch is as it was."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def fabric_module(part: str = "") -> Any:
    """Fabric, or a part of it; the larger `lightning` package holds the same code."""
    ending = f".{part}" if part else ""
    try:
        return import_module(f"lightning_fabric{ending}")
    except ImportError:
        return import_module(f"lightning.fabric{ending}")
