"""Posteriors whose numbers are integer codes, decoded by whoever computes with them.

Means are k_i h exp(log std_i), log-stds j_i h', log-odds l_i h'', with the steps h of the .pocket
file of the same tolerance: so the codes are the integers in that file. Where it takes fewer bytes,
k and j of a weight, counted from their least, are one word k J + j, J above all j. What lies on no
such multiple, a lossless file's numbers for instance, stays as it is. Where most codes of a tensor
are the same one, only the others are stored, with the gaps between their places.
"""

from collections.abc import Callable
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from pocketbayes.codec import log_odds_step, log_std_steps, mean_step, to_steps
from pocketbayes.layers import named_posteriors
from pocketbayes.posteriors import Posterior

_PAIRS = {"log_std": "mean", "outlier_log_std": "outlier_mean"}
_TYPES = (torch.uint8, torch.int8, torch.int16, torch.int32)
_MOST_BYTES, _MOST_WORDS = 1 << 8, 1 << 16
_REACH, _WORTH = 255, 1.2  # of a gap; how many times smaller is worth the steps
_NEAR = 1e-3  # of a step: as near as float32 keeps multiples
Decoder = Callable[[Posterior], Tensor]


def code_weights_(model: nn.Module, tolerance: float) -> None:
    """Puts codes in place of the numbers of all posteriors, in place; nothing learns any more."""
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for posterior in {id(q): q for _, q in named_posteriors(model)}.values():
        _code_posterior_(posterior, tolerance)


def _code_posterior_(posterior: Posterior, tolerance: float) -> None:
    decoders = dict[str, Decoder]()
    for log_std, mean in _PAIRS.items():
        tried = ((step, _codes(posterior, log_std, step)) for step in log_std_steps(tolerance))
        found = next(((step, logs) for step, logs in tried if logs is not None), None)
        if found is not None:
            _code_pair_(posterior, mean, log_std, *found, tolerance, decoders)
    odds = _codes(posterior, "log_odds", log_odds_step(tolerance))
    if odds is not None:
        _code_steps_(posterior, "log_odds", odds, log_odds_step(tolerance), decoders)
    if posterior._buffers.get("index") is not None:
        _code_places_(posterior, decoders)
    kind = type(posterior)
    properties = {name: property(decoder) for name, decoder in decoders.items()}
    posterior.__class__ = type(kind.__name__, (kind,), properties)


def _codes(posterior: Posterior, name: str, step: float | Tensor) -> Tensor | None:
    """These numbers as multiples of a step, if the posterior has them and they are."""
    values = posterior._parameters.get(name)
    if values is None or values.numel() == 0 or values.dtype != torch.float32:
        return None
    return _multiples(values, torch.as_tensor(step, dtype=torch.float64).expand(values.shape))


def _code_steps_(
    posterior: Posterior, name: str, codes: Tensor, step: float, decoders: dict[str, Decoder]
) -> None:
    """Multiples of one step, stored from the least on."""
    least = int(codes.min())
    _store_(posterior, name, codes - least)
    decoders[name] = lambda q: (_stored(q, name) + least) * step


def _code_pair_(
    posterior: Posterior,
    mean: str,
    log_std: str,
    log_step: float,
    logs: Tensor,
    tolerance: float,
    decoders: dict[str, Decoder],
) -> None:
    """Log-stds, and means as multiples of a share of each weight's own std."""
    step = mean_step(tolerance)
    codes = _codes(posterior, mean, (logs * log_step).exp() * step)
    low, levels = int(logs.min()), int(logs.max() - logs.min()) + 1
    words = 0 if codes is None else (int(codes.max() - codes.min()) + 1) * levels
    if codes is None or words > _MOST_WORDS:
        _code_steps_(posterior, log_std, logs, log_step, decoders)
        if codes is not None:
            _store_(posterior, mean, codes)
            decoders[mean] = lambda q: _stored(q, mean) * (getattr(q, log_std).exp() * step)
        return
    least, middle = int(codes.min()), 0 if words <= _MOST_BYTES else _MOST_WORDS // 2
    _store_(posterior, mean, (codes - least) * levels + logs - low - middle)
    del posterior._parameters[log_std]

    def parts(q: Posterior) -> tuple[Tensor, Tensor]:
        word = _stored(q, mean) + middle
        rank = ((word + 0.5) / levels).floor()  # exact, since words have 16 bits
        return rank + least, word - rank * levels + low

    decoders[log_std] = lambda q: parts(q)[1] * log_step
    decoders[mean] = lambda q: parts(q)[0] * (getattr(q, log_std).exp() * step)


def _multiples(values: Tensor, steps: Tensor) -> Tensor | None:
    """The integers that these numbers are of their steps; None: some number is no multiple."""
    found = to_steps(values.double().numpy(), steps.numpy())
    if found is None or abs(found).max(initial=0) >= 2**31:
        return None
    codes = torch.from_numpy(found)
    error = (codes * steps - values).abs()
    digits = torch.finfo(torch.float32).eps * values.abs()  # a mean may be coarser than its step
    return codes if bool((error <= _NEAR * steps + digits).all()) else None


def _code_places_(posterior: Posterior, decoders: dict[str, Decoder]) -> None:
    """Rising places by the gaps between them."""
    index = posterior._buffers.pop("index")
    assert index is not None
    gaps = torch.diff(index, prepend=index.new_zeros(1))
    _store_(posterior, "index", gaps, may_leave_out=False)
    decoders["index"] = lambda q: cast(Tensor, q._buffers["index_codes"]).long().cumsum(0)


def _store_(posterior: Posterior, name: str, codes: Tensor, may_leave_out: bool = True) -> None:
    """As the smallest type that holds them, under the name of the codes."""
    posterior._parameters.pop(name, None)
    small = codes.to(_smallest_type(codes))
    values, times = np.unique(codes.numpy(), return_counts=True)
    usual = int(values[times.argmax()])
    places = _within_reach((codes.flatten() != usual).nonzero().squeeze(1))
    if may_leave_out and _WORTH * len(places) * (1 + small.itemsize) < small.nbytes:
        gaps = torch.diff(places, prepend=places.new_zeros(1)).to(torch.uint8)
        posterior.register_buffer(f"{name}_gaps", gaps)
        small = small.flatten()[places]
    posterior.register_buffer(f"{name}_codes", small)
    object.__setattr__(posterior, f"_{name}_form", (usual, codes.shape))


def _within_reach(places: Tensor) -> Tensor:
    """These places and, where one is too far from the last for a byte, some between them.

    At least one: a place may also be given what it has already.
    """
    places = places if len(places) else places.new_zeros(1)
    gaps = torch.diff(places, prepend=places.new_zeros(1))
    between = [
        torch.arange(int(end - gap) + _REACH, int(end), _REACH)
        for end, gap in zip(places[gaps > _REACH], gaps[gaps > _REACH], strict=True)
    ]
    return torch.cat([places, *between]).sort().values


def _stored(posterior: Posterior, name: str) -> Tensor:
    """The codes, in a type to calculate with."""
    codes, gaps = posterior._buffers[f"{name}_codes"], posterior._buffers.get(f"{name}_gaps")
    assert codes is not None
    if gaps is None:
        return codes.float()
    usual, shape = getattr(posterior, f"_{name}_form")
    whole = torch.full((shape.numel(),), float(usual))
    return whole.index_copy(0, gaps.long().cumsum(0), codes.float()).view(shape)


def _smallest_type(codes: Tensor) -> torch.dtype:
    """The smallest integer type that holds these numbers."""
    low, high = (int(codes.min()), int(codes.max())) if codes.numel() else (0, 0)
    for kind in _TYPES:
        if torch.iinfo(kind).min <= low and high <= torch.iinfo(kind).max:
            return kind
    return torch.int64
