"""Rules of attention: its weights are those of the means, its values are random."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pocketbayes.moments.value import Moments, no_rule, parts_of, rule


@rule("scaled_dot_product_attention")
def _scaled_dot_product_attention(
    _: Any, query: Any, key: Any, value: Any, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False,
) -> Moments:  # fmt: skip
    """softmax(E q E k^T / sqrt(d) + mask) v."""
    q, k = parts_of(query)[0], parts_of(key)[0]
    if enable_gqa:
        times = q.shape[-3] // k.shape[-3]
        k, value = (t.repeat_interleave(times, -3) for t in (k, value))
    scores = q @ k.mT * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if is_causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~allowed, -math.inf)
    if attn_mask is not None:
        masked = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -math.inf) if masked else scores + attn_mask
    return scores.softmax(-1) @ value  # type: ignore[no-any-return]


@rule("multi_head_attention_forward")
def _multi_head_attention(
    func: Any, query: Any, key: Any, value: Any, width: int, heads: int, in_weight: Any,
    in_bias: Any, bias_k: Any, bias_v: Any, add_zero: bool, dropout: float, out_weight: Any,
    out_bias: Any, **options: Any,
) -> tuple[Any, Tensor | None]:  # fmt: skip
    """The whole layer on the means gives the attention; values go through their own projection."""
    if options.get("static_k") is not None or options.get("static_v") is not None:
        raise no_rule("multi_head_attention_forward with static keys")
    wanted = options.pop("need_weights", True)
    averaged = options.pop("average_attn_weights", True)
    names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
    plain = options | {name: parts_of(options.get(name))[0] for name in names}
    means = (parts_of(t)[0] for t in (query, key, value))
    _, weights = func(
        *means, width, heads, parts_of(in_weight)[0], parts_of(in_bias)[0], parts_of(bias_k)[0],
        parts_of(bias_v)[0], add_zero, 0.0, parts_of(out_weight)[0], parts_of(out_bias)[0],
        need_weights=True, average_attn_weights=False, **plain,
    )  # fmt: skip
    separate = options.get("use_separate_proj_weight", False)
    weight = options["v_proj_weight"] if separate else in_weight[2 * width :]
    bias = None if in_bias is None else in_bias[2 * width :]
    values = F.linear(value, weight, bias)
    mixed = _mixed(weights, _with_extra_rows(values, bias_v, add_zero), heads)
    output = F.linear(mixed, out_weight, out_bias)
    head_dim = weights.dim() - 3
    shown = weights.mean(head_dim) if averaged else weights
    return output, shown if wanted else None


def _with_extra_rows(values: Any, bias_v: Any, add_zero: bool) -> Any:
    """(tokens, batch, width) or (tokens, width), with what attention may also look at."""
    rows = list[Any]([values])
    if bias_v is not None:
        bias_v = bias_v.reshape(*(1 for _ in values.shape[:-1]), -1)
        rows.append(bias_v.expand(1, *values.shape[1:]))
    if add_zero:
        rows.append(parts_of(values)[0].new_zeros(1, *values.shape[1:]))
    return torch.cat(rows) if len(rows) > 1 else values


def _mixed(weights: Tensor, values: Any, heads: int) -> Any:
    """Weights (batch, heads, to, from) times values (from, batch, width), as (to, batch, width)."""
    if values.dim() == 2:
        return _mixed(weights.unsqueeze(0), values.unsqueeze(1), heads).squeeze(1)
    tokens, batch, width = values.shape
    split = values.view(tokens, batch, heads, width // heads).permute(1, 2, 0, 3)
    mixed = torch.matmul(weights, split)
    return mixed.permute(2, 0, 1, 3).reshape(-1, batch, width)
