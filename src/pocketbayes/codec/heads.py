"""The one-pass head of a file: there where it is spoken of, and finite."""

import torch
from torch import nn

from pocketbayes.codec.arrays import TYPES
from pocketbayes.codec.contents import Contents
from pocketbayes.codec.header import Header
from pocketbayes.errors import FormatError
from pocketbayes.layers import PREFIX, OnePassHead, set_head, tensors_at


def make_room_for_head(model: nn.Module, header: Header, file: Contents) -> None:
    """A one-pass head whose tensors hold no memory yet."""
    facts = header.model.one_pass
    if facts is None:
        return
    specs = {name: file.specs.get(f"state/{PREFIX}{name}") for name in OnePassHead.names}
    if header.members > 1 or None in specs.values():
        raise FormatError("the file speaks of a one-pass head but does not hold it")
    tensors = {
        name: torch.empty(spec.shape, dtype=TYPES[spec.dtype], device="meta")
        for name, spec in specs.items()
        if spec is not None
    }
    set_head(model, OnePassHead.from_facts(facts), tensors)


def require_sound_head(model: nn.Module) -> None:
    """An error if the head that was filled holds what is no number."""
    for name, tensor in tensors_at(model).items():
        if not bool(tensor.isfinite().all()):
            raise FormatError(f"section state/{PREFIX}{name} holds NaN or infinite numbers")
