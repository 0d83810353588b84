"""The one-pass head of a file: there where it is spoken of, and finite."""

import torch
from torch import Tensor, nn

from pocketbayes.codec.arrays import TYPES
from pocketbayes.codec.contents import Contents
from pocketbayes.codec.header import Header
from pocketbayes.errors import FormatError
from pocketbayes.layers import PREFIX, OnePassHead, set_head, tensors_at

NAMES = frozenset(PREFIX + name for name in OnePassHead.names)


def make_room_for_head(model: nn.Module, header: Header, file: Contents) -> None:
    """A one-pass head whose tensors hold no memory yet."""
    facts = header.model.one_pass
    if facts is None:
        return
    specs = {name: file.specs[f"state/{PREFIX}{name}"] for name in OnePassHead.names}
    tensors = {
        name: torch.empty(spec.shape, dtype=TYPES[spec.dtype], device="meta")
        for name, spec in specs.items()
    }
    set_head(model, OnePassHead.from_facts(facts), tensors)


def require_head(header: Header) -> None:
    """An error if the file speaks of a head that it does not hold."""
    if header.model.one_pass is not None and (header.members > 1 or NAMES - {*header.state}):
        raise FormatError("the file speaks of a one-pass head but does not hold it")


def require_sound_head(model: nn.Module) -> None:
    """An error if the head that was filled holds what is no number."""
    for name, tensor in tensors_at(model).items():
        require_finite_part(PREFIX + name, tensor)


def require_finite_part(name: str, tensor: Tensor) -> None:
    """An error if this part of a head holds what is no number."""
    if not bool(tensor.isfinite().all()):
        raise FormatError(f"section state/{name} holds NaN or infinite numbers")
