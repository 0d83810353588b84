"""Tensors of which every process holds a part, as FSDP2 makes them of parameters."""

from collections.abc import Callable
from typing import Any

from torch import Tensor


def is_split(tensor: Tensor) -> bool:
    """Whether this process holds a part of it only."""
    return hasattr(tensor, "to_local")  # by its name: importing DTensor takes a second


def summed_over_parts(compute: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """The sum over processes of what `compute` gives for their parts of tensors split alike.

    Of a sum over weights that is the whole sum. Each process has the gradient of its own part.
    """
    from torch.distributed.tensor import DTensor, Partial, Replicate

    split: Any = tensors[0]
    own = compute(*(tensor.to_local() for tensor in tensors))  # type: ignore[attr-defined]
    places = [Partial() if place.is_shard() else Replicate() for place in split.placements]
    total = DTensor.from_local(own.detach(), split.device_mesh, places).full_tensor()
    return own + (total - own.detach())
