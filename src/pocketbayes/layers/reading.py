"""What a one-pass head reads: inputs of layers, noted while the network runs, as rows."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pocketbayes.errors import DataError, PocketBayesError
from pocketbayes.layers.linear import LinearLayer
from pocketbayes.layers.module import posteriors_of
from pocketbayes.layers.one_pass import PREFIX, OnePassHead, Place
from pocketbayes.posteriors import current_drawing, version_of

_KEY = "_pocketbayes_head"

_noted: ContextVar[dict[int, Tensor] | None] = ContextVar("noted", default=None)


class Note:
    """A hook that notes the input of a layer while someone is `noting`, in that thread alone."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Keeps the first argument."""
        notes = current_notes()
        if notes is not None and args:
            notes[self.number] = args[0]


def current_notes() -> dict[int, Tensor] | None:
    """Where to note; None: nobody wants it."""
    if not torch.compiler.is_dynamo_compiling():
        return _noted.get()
    drawing = current_drawing()
    return _noted.get() if drawing is None else drawing.notes  # None: of one's own torch.compile


@contextmanager
def noting() -> Iterator[dict[int, Tensor]]:
    """Inside, the inputs at a head's places are noted by their numbers."""
    notes: dict[int, Tensor] = {}
    token = _noted.set(notes)
    try:
        yield notes
    finally:
        _noted.reset(token)


def attach_head(root: nn.Module, head: OnePassHead) -> None:
    """Gives the network a head in place of an earlier one, and a hook to each place."""
    detach_head(root)
    for place in head.places:
        try:
            root.get_submodule(place.name)
        except AttributeError as error:
            raise PocketBayesError(
                f"the one-pass head reads the layer {place.name!r}, which the network has not"
            ) from error
    for number, place in enumerate(head.places):
        root.get_submodule(place.name).register_forward_pre_hook(Note(number))
    root.__dict__[_KEY] = head


def detach_head(root: nn.Module) -> None:
    """Takes the head away, if there is one, with its hooks and buffers."""
    root.__dict__.pop(_KEY, None)
    for module in root.modules():  # a place may have been taken out of the network since
        hooks = module._forward_pre_hooks
        for key in [key for key, hook in hooks.items() if isinstance(hook, Note)]:
            del hooks[key]
    for name in OnePassHead.names:
        root._buffers.pop(PREFIX + name, None)


def fill_head(root: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Gives the network's head what it has learned, or is to be filled with."""
    head = head_at(root)
    assert head is not None
    head.require_fitting(tensors)
    for name, tensor in tensors.items():
        root.register_buffer(PREFIX + name, tensor.detach())


def head_at(root: nn.Module) -> OnePassHead | None:
    """The head of this very module."""
    return root.__dict__.get(_KEY)


def as_rows(x: Tensor, place: Place, layer: nn.Module, positions: torch.Size) -> Tensor:
    """A place's input as (rows, channels), one row for each example and position of the outputs.

    Its own positions (pixels, tokens, times) are averaged over, unless they are those of outputs.
    """
    x = x.movedim(place.batch_axis, 0) if place.batch_axis else x
    if x.dim() == 2:
        pooled = x
    else:
        last = 1 if isinstance(layer, nn.modules.conv._ConvNd) else -1
        x = x.movedim(last, -1)
        if positions and x.shape[1:-1] == positions:
            return x.flatten(0, -2)
        pooled = x.mean(tuple(range(1, x.dim() - 1)))
    if positions:
        pooled = pooled.repeat_interleave(positions.numel(), 0)
    return pooled


def last_variance_of(head: OnePassHead, layer: nn.Module, rows: Tensor) -> Tensor | None:
    """Var of (w x + b) for each row x, of a linear layer with random weights."""
    if not isinstance(layer, LinearLayer) or not isinstance(layer, nn.Linear):
        return None
    variances = _variances(head, layer)
    if "weight" not in variances:
        return None
    return F.linear(rows.square(), variances["weight"], variances.get("bias"))


def _variances(head: OnePassHead, layer: LinearLayer) -> dict[str, Tensor]:
    """Of weight and bias in float32, kept while the parameters of the posteriors stay."""
    own = [
        p for q in posteriors_of(layer).values() for p in q._parameters.values() if p is not None
    ]
    key = tuple((id(p), version_of(p), p.device, p.dtype) for p in own)
    known = head.of_last
    if known is None or known[0] != key or not own:
        posteriors = posteriors_of(layer).by_name()
        found = {n: q.moments()[1].detach().float() for n, q in posteriors.items()}
        known = head.of_last = key, found
    return known[1]


class HeadInputs(NamedTuple):
    """What a head is given, one row for each example and position."""

    features: Tensor
    outputs: Tensor
    last_variance: Tensor | None


def head_inputs(
    root: nn.Module, head: OnePassHead, notes: Mapping[int, Tensor], output: Tensor
) -> HeadInputs:
    """From what was noted in a pass, and the network's output (N, K, ...), or (N,)."""
    outputs = output_rows(output)
    positions = output.shape[2:]
    layers = [root.get_submodule(place.name) for place in head.places]
    if len(notes) < len(layers):
        missing = next(p.name for i, p in enumerate(head.places) if i not in notes)
        raise DataError(f"the network did not call {missing!r}, which its one-pass head reads")
    rows = [
        as_rows(notes[i].detach(), place, layer, positions).to(outputs.dtype)
        for i, (place, layer) in enumerate(zip(head.places, layers, strict=True))
    ]
    last = last_variance_of(head, layers[-1], rows[-1]) if head.knows_variance else None
    return HeadInputs(torch.cat([*rows, outputs], 1), outputs, last)


def output_rows(output: Tensor) -> Tensor:
    """(N, K, ...) or (N,) as (rows, K), in float32."""
    wide = output.float()
    if wide.dim() == 1:
        return wide.unsqueeze(1)
    return wide if wide.dim() == 2 else wide.movedim(1, -1).flatten(0, -2)


def like_output(rows: Tensor, output: Tensor) -> Tensor:
    """The inverse of `output_rows`."""
    if output.dim() < 3:
        return rows.view(output.shape)
    return rows.view(len(output), *output.shape[2:], -1).movedim(-1, 1)
