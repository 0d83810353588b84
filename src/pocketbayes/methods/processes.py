"""What several processes must hold in common: tensors, decisions, averages."""

from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Value = TypeVar("Value")


def agreed(tensor: Tensor) -> Tensor:
    """The first process's tensor, on every process; all must hold one of the same shape."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.broadcast(tensor, src=0)
    return tensor


def agree_on_state(model: nn.Module) -> None:
    """Gives every process the first one's numbers, which DDP would do when it is set up."""
    for tensor in [*model.parameters(), *model.buffers()]:
        if tensor.is_floating_point():
            agreed(tensor.data)


def averaged(tensor: Tensor) -> Tensor:
    """The mean over all processes, in place."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.all_reduce(tensor)
        tensor /= torch.distributed.get_world_size()
    return tensor


def summed(tensor: Tensor) -> Tensor:
    """The sum over all processes, in place."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.all_reduce(tensor)
    return tensor


def gathered(value: Value) -> list[Value]:
    """The values of all processes, on each of them; pickled between them."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return [value]
    held: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(held, value)
    return held


def agreed_object(value: Value) -> Value:
    """The first process's value, on every process; pickled between them."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return value
    held = [value]
    torch.distributed.broadcast_object_list(held, src=0)
    return held[0]


def never_broadcast(module: nn.Module, buffers: list[str]) -> None:
    """Keeps DDP from sending these buffers, equal on every process, before every step."""
    ddp: Any = nn.parallel.DistributedDataParallel
    ddp._set_params_and_buffers_to_ignore_for_model(module, buffers)
