"""When a loss is not finite: notice it without waiting for the device, and say where it began."""

from collections import deque
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pocketbayes.layers import BayesianModule, Inputs, named_tensors, run
from pocketbayes.likelihoods import Objective
from pocketbayes.prediction import fault_in_numbers


class Suspect(NamedTuple):
    """A step whose loss has not been looked at yet, and its batch."""

    step: int
    x: Inputs
    y: Tensor
    finite: Tensor
    copied: torch.cuda.Event | None


class LossWatch:
    """Looks at every loss, at once on the CPU and a few steps later on a device that runs ahead."""

    def __init__(self, device: torch.device) -> None:
        self.on_gpu = device.type == "cuda"
        self.waiting: deque[Suspect] = deque()

    def add(self, step: int, loss: Tensor, x: Inputs, y: Tensor) -> None:
        """Notes the loss of a step."""
        finite, copied = torch.isfinite(loss.detach()), None
        if self.on_gpu:
            finite = torch.empty((), dtype=torch.bool, pin_memory=True).copy_(finite, True)
            copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            copied.record()
        self.waiting.append(Suspect(step, x, y, finite, copied))

    def first_bad(self, everything: bool = False) -> Suspect | None:
        """The first step known to have had a loss that is not finite."""
        lag = 8 if self.on_gpu and not everything else 0
        while len(self.waiting) > lag:
            suspect = self.waiting.popleft()
            if suspect.copied is not None:
                suspect.copied.synchronize()
            if not bool(suspect.finite):
                return suspect
        return None


def fault_in_batch(objective: Objective, x: Inputs, y: Tensor) -> str | None:
    """Which row of a batch the network cannot learn from: inputs or targets; or None."""
    found = fault_in_numbers([*named_tensors(x), ("the target", y)])
    if found is not None:
        return found
    return objective.likelihood.complaint(_first_bad_layer(objective.model, x)[0], y)


def where_not_finite(objective: Objective, x: Inputs) -> str:
    """Names the first cause in the network that can be seen: parameter or layer."""
    _, layer = _first_bad_layer(objective.model, x)
    for name, parameter in objective.model.named_parameters():
        if not parameter.isfinite().all():
            return f"parameter {name} is not finite"
    if layer is not None:
        return f"layer {layer} is the first whose output is not finite"
    return "every layer's output is finite for the same batch: the loss itself overflowed"


@torch.no_grad()
def _first_bad_layer(model: nn.Module, x: Inputs) -> tuple[Tensor, str | None]:
    found: list[str] = []

    def look(name: str, module: nn.Module) -> None:
        def hook(_: nn.Module, __: object, output: object) -> None:
            tensors = output if isinstance(output, list | tuple) else [output]
            if any(isinstance(t, Tensor) and not t.isfinite().all() for t in tensors):
                found.append(f"{name or '(root)'} ({type(module).__name__})")

        handles.append(module.register_forward_hook(hook))

    handles: list[torch.utils.hooks.RemovableHandle] = []
    for name, module in model.named_modules():
        if isinstance(module, BayesianModule) or not any(True for _ in module.children()):
            look(name, module)
    try:
        output = run(model, x)
    finally:
        for handle in handles:
            handle.remove()
    return output, found[0] if found else None
