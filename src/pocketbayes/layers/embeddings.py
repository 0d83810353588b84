"""Embeddings: tables of which a pass draws the rows that it looks up."""

from collections.abc import Mapping
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pocketbayes.layers.module import BayesianModule, LayerPosteriors, plain_class_of, posteriors_of
from pocketbayes.moments import is_carrying
from pocketbayes.posteriors import Gaussian, Posterior, inside_vmap

_LOOKUPS = (nn.Embedding.forward, nn.EmbeddingBag.forward)


class _Table(LayerPosteriors):
    """Of an embedding; the padding row, which never learns, has no noise either."""

    padding_idx: int | None

    @classmethod
    def of(cls, layer: nn.Module, posteriors: Mapping[str, Posterior]) -> Self:
        found = super().of(layer, posteriors)
        found.padding_idx = layer.padding_idx  # type: ignore[assignment]
        return found

    def value(self, name: str) -> Tensor:
        draw = super().value(name)
        exact = self.estimator_now() == "mean" or not self[name].is_random
        if name != "weight" or exact or self.held_draw() is not None or self.padding_idx is None:
            return draw
        rows = torch.arange(draw.shape[0], device=draw.device).unsqueeze(1)
        return torch.where(rows == self.padding_idx, self[name].expectation(), draw)

    def rows(self, index: Tensor) -> Tensor:
        """A draw of these rows."""
        posterior: Gaussian = self["weight"]  # type: ignore[assignment]
        draw = posterior.sample_rows(index)
        if self.padding_idx is None:
            return draw
        padding = (index == self.padding_idx).unsqueeze(1)
        return torch.where(padding, posterior.mean[index].detach(), draw)


class EmbeddingLayer(BayesianModule):
    """Embedding and EmbeddingBag: the same token has the same draw everywhere in a pass."""

    _kind_of_posteriors = _Table

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:  # noqa: A002
        """The plain lookup in one draw of the table, or of its rows where they are few."""
        own: _Table = posteriors_of(self)  # type: ignore[assignment]
        if not _draws_rows(self, own, input):
            with own.one_draw():
                return super().forward(input, *args, **kwargs)  # type: ignore[no-any-return]
        index, places = torch.unique(input, return_inverse=True)
        if isinstance(self, nn.Embedding):
            return F.embedding(places, own.rows(index))
        return _bags(self, own, index, places.to(input.dtype), *args, **kwargs)


def _draws_rows(layer: nn.Module, own: _Table, x: Tensor) -> bool:
    """Whether few rows of a table of independent Gaussians are looked up in torch's own way."""
    return (
        type(own["weight"]) is Gaussian
        and own.estimator_now() != "mean"
        and own.held_draw() is None
        and not is_carrying()
        and 2 * x.numel() < own["weight"].shape[0]
        and plain_class_of(layer).forward in _LOOKUPS
        and layer.max_norm is None
        and not layer.scale_grad_by_freq
        and not torch.compiler.is_compiling()
        and not torch._C._len_torch_dispatch_stack()
        and not inside_vmap()
    )


def _bags(
    layer: Any,
    own: _Table,
    index: Tensor,
    places: Tensor,
    offsets: Tensor | None = None,
    per_sample_weights: Tensor | None = None,
) -> Tensor:
    """What `EmbeddingBag` gives, by the rows of this index; rows of padding do not count."""
    padding = None
    if layer.padding_idx is not None:
        found = (index == layer.padding_idx).nonzero().flatten().tolist()
        padding = found[0] if found else None
    return F.embedding_bag(
        places, own.rows(index), offsets, mode=layer.mode, per_sample_weights=per_sample_weights,
        include_last_offset=layer.include_last_offset, padding_idx=padding,
    )  # fmt: skip
