"""Weights that a network keeps beside its parameters, where no draw would reach them."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from pocketbayes.errors import ConversionError
from pocketbayes.layers.normalised import computed_attributes
from pocketbayes.layers.selection import library_type

_REGISTERED = {"_parameters", "_modules"}
_OF_RECURRENT = {"_flat_weights", "_flat_weight_refs"}
_DEPTH = 5


def require_no_aliases(net: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Refuses an attribute, buffer, list or dict that holds one of them or a view of it."""
    names = {_memory(weight): name for name, weight in weights.items()}
    owners = {name.rpartition(".")[0]: name for name in weights}
    for path, module in net.named_modules():
        if path in owners and library_type(module) is None:
            _require_no_cache(owners[path], module)
        known = _REGISTERED | (_OF_RECURRENT if isinstance(module, nn.RNNBase) else set())
        known |= computed_attributes(module)
        for attribute in vars(module).keys() - known:
            for tensor in _tensors_in(vars(module)[attribute], _DEPTH):
                if _memory(tensor) in names:
                    _refuse(names[_memory(tensor)], f"{path}.{attribute}".lstrip("."))


def _require_no_cache(weight: str, module: nn.Module) -> None:
    """Refuses what timm's attention has: in evaluation it keeps what it computed of its biases."""
    for attribute, value in vars(module).items():
        if "cache" in attribute and isinstance(value, dict):
            raise ConversionError(
                f"the module of {weight} has {attribute}, where it may keep what it computed from "
                f"one draw, so that no other would reach it: leave {weight} out of include, or "
                f"exclude={weight.rpartition('.')[0]!r}"
            )


def _refuse(weight: str, place: str) -> None:
    raise ConversionError(
        f"{place} keeps {weight} beside the parameters of the network, so that no draw would reach "
        "it: let forward read the weight from its layer, or "
        f"exclude={weight.rpartition('.')[0]!r} to keep that deterministic"
    )


def _memory(tensor: Tensor) -> tuple[str, int]:
    """Where the numbers of a tensor begin; of one without memory, itself."""
    start = tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided else 0
    return ("memory", start) if start else ("object", id(tensor))


def _tensors_in(value: object, depth: int) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple | set | dict) and depth:
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors_in(item, depth - 1)
