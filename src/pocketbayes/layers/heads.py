"""The one-pass head that a model has: given, narrowed, kept, forgotten."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from pocketbayes.errors import warn
from pocketbayes.layers.description import (
    describe,
    has_stale_head,
    home,
    known_weights,
    update_description,
)
from pocketbayes.layers.one_pass import OnePassHead, Place, numbers_in, tensors_at
from pocketbayes.layers.reading import attach_head, detach_head, fill_head, head_at


def head_of(model: nn.Module) -> OnePassHead | None:
    """What `distill_` taught the model; None: nothing."""
    return head_at(home(model))


def set_head(
    model: nn.Module, head: OnePassHead | None, tensors: Mapping[str, Tensor] | None = None
) -> None:
    """Gives the model this head, with what it has learned; None: takes away what it has."""
    root = home(model)
    if head is None:
        detach_head(root)
    else:
        attach_head(root, head)
    if tensors:
        fill_head(root, tensors)
    if describe(model).one_pass is not None or head is not None:
        update_description(model, one_pass=None if head is None else head.facts())


def head_knows_weights(model: nn.Module) -> None:
    """From now on the head, if there is one, is one of the weights as they are."""
    head = head_of(model)
    if head is not None:
        head.weights = known_weights(model)


@contextmanager
def head_kept(model: nn.Module) -> Iterator[None]:
    """Around a change of weights that a head bears; a stale one stays so."""
    stale = has_stale_head(model)
    yield
    if not stale:
        head_knows_weights(model)


def usable_head(model: nn.Module) -> bool:
    """Whether the model has a head of its weights; of a stale one it warns, once."""
    head = head_of(model)
    if head is None or not has_stale_head(model):
        return head is not None
    assert head.weights is not None
    if not head.weights.told:
        head.weights.told = True
        warn(
            "the weights have changed since distill_, so the one-pass head is not used, and "
            "predictions draw: call distill_ again",
        )
    return False


def narrow_head(model: nn.Module, kept: Mapping[str, Tensor]) -> None:
    """Keeps only some channels at the head's places of these names, by a mask for each.

    It is dropped if it was stale, or needs another channel.
    """
    head = head_of(model)
    if head is None:
        return
    found = None if has_stale_head(model) else _narrowed(head, tensors_at(home(model)), kept)
    if found is None:
        forget_head(model)
    else:
        set_head(model, *found)


def _narrowed(
    head: OnePassHead, tensors: Mapping[str, Tensor], kept: Mapping[str, Tensor]
) -> tuple[OnePassHead, dict[str, Tensor]] | None:
    """The head with some of the channels at places of these names, by a mask for each.

    Those that go must be constant or unread; None: the head needs another one.
    """
    masks = [_mask(place, kept).to(tensors["center"].device) for place in head.places]
    numbers = numbers_in(tensors, head.gone is not None)
    stays = torch.cat([*masks, torch.ones_like(numbers.slope, dtype=torch.bool)])
    if bool((~stays & ((numbers.scale > 0) | (head.gone is None))).any()):
        return None
    lost = torch.where(stays, 0, numbers.counts)
    pairs = torch.stack([lost, lost * numbers.center.square()])
    sums = [part.sum(1).tolist() for part in torch.split(pairs, head.widths(len(numbers.slope)), 1)]
    gone = [
        [g.number + int(n), g.square + square]
        for g, (n, square) in zip(head.gone or (), sums, strict=False)
    ]
    places = [[p.name, p.batch_axis, int(m.sum())] for p, m in zip(head.places, masks, strict=True)]
    facts = head.facts() | {"places": places} | ({} if head.gone is None else {"gone": gone})
    cut = {name: tensors[name][stays] for name in ("center", "log_scale")}
    cut["inner_rows"] = tensors["inner_rows"][:, stays]
    return OnePassHead.from_facts(facts), {**tensors, **cut}


def _mask(place: Place, kept: Mapping[str, Tensor]) -> Tensor:
    mask = kept.get(place.name)
    return torch.ones(place.width, dtype=torch.bool) if mask is None else mask


def forget_head(model: nn.Module) -> None:
    """Drops the head, since it knows nothing of what the weights become."""
    if head_of(model) is not None:
        set_head(model, None)
        warn(
            "the model changes, so its one-pass head was dropped: predictions draw again, until "
            "you call distill_ afterwards",
        )
