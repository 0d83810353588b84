"""Rules of attention and of recurrent layers."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pocketbayes.tracing.arithmetic import aligned
from pocketbayes.tracing.value import Traced, as_traced, not_possible, require_weight, rule

_HIDDEN = -1e30


@rule("scaled_dot_product_attention")
def _attention(
    _: Any, query: Traced, key: Traced, value: Traced, attn_mask: Any = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False,
) -> Traced:  # fmt: skip
    if enable_gqa or dropout_p > 0:
        raise not_possible("attention with dropout, or with fewer keys than queries have heads")
    if any(v.batch is not None and v.batch >= v.dim() - 2 for v in (query, key, value)):
        raise not_possible("attention between examples")
    values = [query, key, value]
    if attn_mask is not None:
        values.append(as_traced(_as_sum(attn_mask), query.recorder))
    values, batch = aligned(values)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    mask = values[3] if len(values) > 3 else None
    return query.recorder.emit(
        "attention", *values[:3], mask, int(is_causal), float(factor), batch=batch
    )


def _as_sum(mask: Any) -> Any:
    """A mask that is added; what is False there may not be seen."""
    if isinstance(mask, Tensor) and not isinstance(mask, Traced) and mask.dtype == torch.bool:
        return torch.zeros(mask.shape).masked_fill(~mask, _HIDDEN)
    return mask


@rule("multi_head_attention_forward")
def _multi_head_attention(
    _: Any, query: Traced, key: Traced, value: Traced, width: int, heads: int, in_weight: Any,
    in_bias: Any, bias_k: Any, bias_v: Any, add_zero: bool, dropout: float, out_weight: Any,
    out_bias: Any, **options: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """Tokens first: (T, N, E)."""
    strange = (bias_k, bias_v, options.get("static_k"), options.get("static_v"))
    if any(s is not None for s in strange) or add_zero or query.batch != 1:
        raise not_possible("multi-head attention with added keys or without examples")
    if options.get("key_padding_mask") is not None:
        raise not_possible("multi-head attention with a padding mask")
    if dropout > 0 and options.get("training", True):
        raise not_possible("multi-head attention with dropout that stays on in prediction")
    q, k, v = _projections(query, key, value, width, heads, in_weight, in_bias, options)
    mask = options.get("attn_mask")
    if isinstance(mask, Tensor) and mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape).masked_fill(mask, _HIDDEN)  # True may not be seen, here
    if options.get("is_causal") and query.shape[0] == key.shape[0]:
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # what the mask says, too
    else:
        mixed = F.scaled_dot_product_attention(q, k, v, mask)
    joined = mixed.permute(3, 1, 0, 2, 4).reshape(query.shape[0], query.shape[1], width)
    output = F.linear(joined, out_weight, out_bias)
    if not options.get("need_weights", True):
        return output, None
    scores = q @ k.mT / math.sqrt(width // heads)
    weights = torch.softmax(scores if mask is None else scores + mask, -1)
    weights = weights.permute(1, 0, 2, 3, 4).reshape(query.shape[1], heads, *weights.shape[-2:])
    return output, weights.mean(1) if options.get("average_attn_weights", True) else weights


def _projections(
    query: Any, key: Any, value: Any, width: int, heads: int, weight: Any, bias: Any,
    options: dict[str, Any],
) -> list[Any]:  # fmt: skip
    """Queries, keys and values, each (1, N, heads, tokens, width of one)."""
    if options.get("use_separate_proj_weight"):
        own = [options[f"{name}_proj_weight"] for name in "qkv"]
        made = [F.linear(x, w) for x, w in zip((query, key, value), own, strict=True)]
        if bias is not None:
            made = [x + b for x, b in zip(made, bias.chunk(3), strict=True)]
        return [_in_heads(x, 1, heads) for x in made]
    known = {id(x): F.linear(x, weight, bias) for x in (query, key, value)}
    split = {number: _in_heads(made, 3, heads) for number, made in known.items()}
    return [split[id(x)][i : i + 1] for i, x in enumerate((query, key, value))]


def _in_heads(x: Any, parts: int, heads: int) -> Any:
    """(T, N, parts E) as (parts, N, heads, T, D)."""
    return x.view(*x.shape[:2], parts, heads, -1).permute(2, 1, 3, 0, 4)


@rule("lstm")
def _lstm(_: Any, x: Any, state: Any, *settings: Any) -> tuple[Any, Any, Any]:
    if isinstance(state, Tensor):
        raise not_possible("lstm of a packed sequence")
    output, last = _recurrent("lstm", x, state, *settings)
    return output, last, None


@rule("gru")
def _gru(_: Any, x: Any, state: Any, *settings: Any) -> tuple[Any, Any]:
    if not isinstance(settings[0], list | tuple):
        raise not_possible("gru of a packed sequence")
    return _recurrent("gru", x, (state,), *settings)


def _recurrent(
    kind: str, x: Any, state: Any, flat: list[Any], biased: bool, layers: int, dropout: float,
    training: bool, both_ways: bool, batch_first: bool,
) -> tuple[Any, Any]:  # fmt: skip
    """(output, last states) as torch's recurrent layers give them; of an lstm without memory."""
    if (training and dropout > 0) or any(isinstance(s, Traced) or bool(s.any()) for s in state):
        raise not_possible(f"{kind} with dropout that stays on, or that starts at other than 0")
    if x.dim() != 3 or x.batch != (0 if batch_first else 1):
        raise not_possible(f"{kind} of an input without examples where they must be")
    directions = 2 if both_ways else 1
    each = len(flat) // (layers * directions)
    if each != (4 if biased else 2):
        raise not_possible(f"{kind} with projections")
    time, last = 1 if batch_first else 0, []
    for layer in range(layers):
        outputs: list[Any] = []
        for way in range(directions):
            own = flat[(layer * directions + way) * each :][:each]
            weights = [require_weight(w, kind) for w in (*own, None, None)[:4]]
            outputs.append(x.emit(kind, *weights, way))
            last.append(outputs[-1].select(time, 0 if way else -1))
        x = torch.cat(outputs, -1) if both_ways else outputs[0]
    return x, torch.stack(last)
