"""Multi-head attention that is narrower inside than outside, since some of its heads are gone."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function

from pocketbayes.layers.module import BayesianModule, bayesian_class, posteriors_of


class FewerHeads(nn.MultiheadAttention):
    """`nn.MultiheadAttention` without some of its heads.

    Averages of attention weights are those of the heads that are left.
    """

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As torch's; a mask says all, so that `is_causal`, a hint, is not looked at."""
        turned = self.batch_first and query.dim() == 3
        if turned:
            first = query.transpose(0, 1)
            same = query is key is value
            query, key, value = first, *(first if same else x.transpose(0, 1) for x in (key, value))
        names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        output, weights = multi_head_attention_forward(
            query, key, value, self.num_heads * self.head_dim, self.num_heads, self.in_proj_weight,
            self.in_proj_bias, None, None, False, self.dropout, self.out_proj.weight,
            self.out_proj.bias, training=self.training, key_padding_mask=key_padding_mask,
            need_weights=need_weights, attn_mask=attn_mask,
            average_attn_weights=average_attn_weights,
            use_separate_proj_weight=self.in_proj_weight is None,
            **{name: getattr(self, name) for name in names},
        )  # fmt: skip
        return (output.transpose(0, 1) if turned else output), weights


def multi_head_attention_forward(
    query: Tensor, key: Tensor, value: Tensor, width: int, heads: int, in_weight: Tensor | None,
    in_bias: Tensor | None, bias_k: None, bias_v: None, add_zero: bool, dropout: float,
    out_weight: Tensor, out_bias: Tensor | None, **options: Any,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """torch's function of this name, where `width` is that of all heads, not of the inputs."""
    tensors = (query, key, value, in_weight, in_bias, out_weight, out_bias)
    if has_torch_function(tensors):
        return handle_torch_function(
            multi_head_attention_forward, tensors, query, key, value, width, heads, in_weight,
            in_bias, bias_k, bias_v, add_zero, dropout, out_weight, out_bias, **options,
        )  # fmt: skip
    inputs = [x if x.dim() == 3 else x.unsqueeze(1) for x in (query, key, value)]
    own = [options.get(f"{name}_proj_weight") for name in "qkv"]
    weights = own if in_weight is None else torch.split(in_weight, width)
    biases = [None] * 3 if in_bias is None else torch.split(in_bias, width)
    q, k, v = (
        _in_heads(F.linear(x, w, b), heads)  # type: ignore[arg-type]
        for x, w, b in zip(inputs, weights, biases, strict=True)
    )
    mask = _merged(options.get("attn_mask"), options.get("key_padding_mask"), q, k)
    rate = dropout if options.get("training", True) else 0.0
    scores = None
    if options.get("need_weights", True):
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        scores = F.dropout((scores if mask is None else scores + mask).softmax(-1), rate)
    mixed = F.scaled_dot_product_attention(q, k, v, mask, rate) if scores is None else scores @ v
    output = F.linear(mixed.permute(2, 0, 1, 3).flatten(2), out_weight, out_bias)
    if scores is not None and options.get("average_attn_weights", True):
        scores = scores.mean(1)
    if query.dim() == 3:
        return output, scores
    return output.squeeze(1), None if scores is None else scores.squeeze(0)


def _in_heads(x: Tensor, heads: int) -> Tensor:
    """(T, N, width) as (N, heads, T, each)."""
    return x.reshape(*x.shape[:2], heads, -1).permute(1, 2, 0, 3)


def _merged(mask: Tensor | None, padding: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """Both masks as one that is added to scores (N, heads, T, S); True may not be seen."""
    found = None
    if mask is not None:
        found = _as_sum(mask, q)
        found = found if mask.dim() == 2 else found.view(*q.shape[:2], *mask.shape[1:])
    if padding is not None:
        hidden = _as_sum(padding, q).reshape(k.shape[0], 1, 1, k.shape[2])
        found = hidden if found is None else found + hidden
    return found


def _as_sum(mask: Tensor, q: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=q.dtype).masked_fill(mask, -math.inf)


def keep_heads_(attention: Any, number: int) -> None:
    """Makes this one that has so many heads; its weights are cut already."""
    attention.num_heads = number
    attention._qkv_same_embed_dim = False  # keeps torch from its kernels for whole ones
    if isinstance(attention, BayesianModule):
        names = tuple(posteriors_of(attention).by_name())
        kind = bayesian_class(attention._behaviour, FewerHeads, names)  # type: ignore[arg-type]
        attention.__class__ = kind
    else:
        attention.__class__ = FewerHeads
