"""A network cut to the channels that it needs."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from pocketbayes.layers import keep_heads_, leave_nested_tensors, narrow_head
from pocketbayes.shrinking.channels import (
    Reader,
    Ref,
    kept_along,
    needed,
    shares,
    without_crossings,
)
from pocketbayes.shrinking.following import Follower
from pocketbayes.shrinking.narrowing import narrow_, parts_in, rescale_, set_widths
from pocketbayes.shrinking.operations import is_adapted

# Numbers that modules keep of the widths of their tensors, and read in `forward`.
_OWN_NUMBERS = {
    "num_heads", "num_attention_heads", "n_head", "n_heads", "nhead", "heads", "num_kv_heads",
    "num_key_value_heads", "all_head_size", "attn_dim", "inner_dim", "split_size", "embed_dim",
    "hidden_dim", "num_features", "num_parameters",
}  # fmt: skip


_READING = ("weight", "in_proj_weight", "q_proj_weight")


def kept_cells(follower: Follower) -> Tensor:
    """A mark for each cell that must stay; what stays of every tensor is a smaller tensor."""
    readers, grids = _rewritable(follower.readers), list(_grids(follower))
    crossing = [cells for cells in grids if sum(n > 1 for n in cells.shape) > 1]
    while True:
        kept = needed(follower.cells.groups(), readers, grids)
        wrong = [cells for cells in crossing if not without_crossings(kept, cells)]
        if not wrong:
            return kept
        for cells in wrong:
            first = next(j for j, n in enumerate(cells.shape) if n > 1)
            flat = cells.movedim(first, 0).flatten(1)
            follower.cells.tie(flat, flat[:, :1])


def _grids(follower: Follower) -> Iterator[Tensor]:
    yield from follower.grids.values()
    for known in follower.weights.grids.values():
        yield from known.values()


def _rewritable(readers: list[Reader]) -> list[Reader]:
    """Weights that sum several times keep all constants but zeros: one weight cannot fit all."""
    times = Counter(reader.weight for reader in readers)
    return [
        reader
        if reader.weight is not None and times[reader.weight] == 1
        else replace(reader, inputs=reader.inputs.varying(reader.inputs.zero))
        for reader in readers
    ]


def cut_(model: nn.Module, follower: Follower, kept: Tensor) -> None:
    """Takes out of the model, a copy of the one that was followed, all that does not stay."""
    for name, padded in follower.shortcuts.items():
        shortcut: Any = model.get_submodule(name)
        shortcut.before, shortcut.after = (int(kept[cells].sum()) for cells in padded)
    _narrow_head(model, follower, kept)
    masks = {ref: _masks(follower, ref, kept) for ref in follower.weights.grids}
    readers = {reader.weight: reader for reader in _rewritable(follower.readers)}
    for ref, along in masks.items():
        if not all(bool(mask.all()) for mask in along.values()):
            reader = readers.get(ref)
            merge = None if reader is None else shares(reader, kept)
            input_axis = follower.weights.input_axis.get(ref, 0)
            module = model.get_submodule(ref.module)
            narrow_(module, ref.name, along, merge and (input_axis, *merge))
            set_widths(_owner(model, ref), ref.name, along)
    for ref, factor in follower.weights.factors.items():
        before = parts_in(follower.weights.model.get_submodule(ref.module), ref.name).mean
        rows = masks[ref].get(0, torch.ones(len(before), dtype=torch.bool))
        rescale_(model.get_submodule(ref.module), ref.name, factor.name, before[rows])
    _set_numbers(model, follower, kept)
    for name, cells in follower.attentions.items():
        heads = kept[cells].all(1)
        if not heads.all():
            keep_heads_(model.get_submodule(name), int(heads.sum()))
            leave_nested_tensors(model)


def _owner(model: nn.Module, ref: Ref) -> nn.Module:
    """The layer that a weight is of, also if it is parametrised."""
    return model.get_submodule(ref.module.partition(".parametrizations.")[0])


def _masks(follower: Follower, ref: Ref, kept: Tensor) -> dict[int, Tensor]:
    """For each axis of a weight the places that stay."""
    found: dict[int, Tensor] = {}
    for cells in follower.weights.grids[ref].values():
        marks = kept[cells]
        for axis in range(marks.dim()):
            if marks.shape[axis] > 1 or marks.dim() == 1:
                along = kept_along(marks, axis)
                found[axis] = found[axis] & along if axis in found else along
    return found


def _narrow_head(model: nn.Module, follower: Follower, kept: Tensor) -> None:
    """A one-pass head looks at what layers are given."""
    inputs = {
        reader.weight.module: kept[reader.inputs.cells]
        for reader in follower.readers
        if reader.weight is not None and reader.weight.name in _READING
    }
    narrow_head(model, inputs | {n: kept[c] for n, c in follower.depthwise.items()})


def _set_numbers(model: nn.Module, follower: Follower, kept: Tensor) -> None:
    """Sizes of a kind that only one has changed to become those that they are now."""
    wanted = defaultdict[tuple[str, str], set[int]](set)
    for step in follower.steps:
        if not is_adapted(step.name):
            continue
        numbers = vars(model.get_submodule(step.module))
        for cells in step.cells:
            marks = kept[cells]
            for axis in range(marks.dim()):
                for name in _OWN_NUMBERS & numbers.keys():
                    if numbers[name] == marks.shape[axis] > 1:
                        wanted[step.module, name].add(int(kept_along(marks, axis).sum()))
    for (module, name), sizes in wanted.items():
        new = sizes - {getattr(model.get_submodule(module), name)}
        if len(new) == 1:
            setattr(model.get_submodule(module), name, new.pop())
