"""What a module's `get_extra_state` gives, as the bytes of a JSON text: never a pickle."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from pocketbayes.codec.json_texts import DEEPEST, parsed, written
from pocketbayes.errors import FormatError, PocketBayesError

MOST_BYTES = 1 << 20
_NAME = "_extra_state"
_REMEDY = (
    "a file holds None, True and False, numbers, text, and lists and dicts (with text as keys) of "
    "these. Keep tensors in buffers (register_buffer), which a file holds as they are, and let "
    "get_extra_state return the rest as such values"
)


def is_extra(name: str) -> bool:
    """Whether this entry of a state dict is a module's extra state."""
    return name.rpartition(".")[2] == _NAME


def home_of(model: nn.Module, name: str) -> nn.Module:
    """The module whose extra state this entry is."""
    return model.get_submodule(name.rpartition(".")[0])


def as_bytes(name: str, value: Any) -> Tensor:
    """The value as JSON, one number for each byte; what would come back otherwise is refused."""
    fault = _fault_in(value, name, 0)
    if fault is not None:
        raise PocketBayesError(f"{fault}: {_REMEDY}")
    try:
        text = written(value).encode()
    except FormatError as error:
        raise PocketBayesError(f"{name} is {error}: {_REMEDY}") from error
    if len(text) > MOST_BYTES:
        raise PocketBayesError(
            f"{name} takes {len(text):,} bytes as JSON, more than the {MOST_BYTES:,} that a file "
            "holds for a module: keep arrays of numbers in buffers (register_buffer)"
        )
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)


def value_in(name: str, array: Tensor) -> Any:
    """The value that these bytes of a file stand for."""
    if array.dtype != torch.uint8 or array.dim() != 1 or not 0 < len(array) <= MOST_BYTES:
        raise FormatError(
            f"section state/{name} is {array.dtype} of shape {tuple(array.shape)}; it must be up "
            f"to {MOST_BYTES:,} bytes of JSON"
        )
    try:
        return parsed(array.numpy(force=True).tobytes().decode())
    except (FormatError, UnicodeDecodeError) as error:
        raise FormatError(f"section state/{name}: {error}") from error


def give_back(model: nn.Module, name: str, value: Any) -> None:
    """Hands a module its extra state; whatever it says against that is a fault of the file."""
    try:
        home_of(model, name).set_extra_state(value)
    except Exception as error:
        raise FormatError(
            f"section state/{name}: set_extra_state refuses it: {type(error).__name__}: {error}"
        ) from error


def _fault_in(value: Any, place: str, depth: int) -> str | None:
    """The first place that JSON does not hold as it is, in words; None: there is none."""
    if depth > DEEPEST:
        return f"{place.partition('[')[0]} is nested more than {DEEPEST} deep"
    if type(value) is dict:
        for key, item in value.items():
            if type(key) is not str:
                return f"{place} has the key {key!r}"
            fault = _fault_in(item, f"{place}[{key!r}]", depth + 1)
            if fault is not None:
                return fault
        return None
    if type(value) is list:
        faults = (_fault_in(v, f"{place}[{n}]", depth + 1) for n, v in enumerate(value))
        return next((fault for fault in faults if fault is not None), None)
    if type(value) is float and not math.isfinite(value):
        return f"{place} is {value}"
    if value is None or type(value) in (bool, int, float, str):
        return None
    return f"{place} is a {type(value).__name__}"
