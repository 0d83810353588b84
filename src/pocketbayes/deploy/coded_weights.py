"""Posteriors whose numbers are integer codes, decoded by whoever computes with them.

Means are k_i h exp(log std_i), log-stds j_i h', log-odds l_i h'', with the steps h of the .pocket
file of the same tolerance: so the codes are the integers in that file. What lies on no such
multiple, a lossless file's numbers for instance, stays as it is.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from pocketbayes.codec import log_odds_step, log_std_step, mean_step, to_steps
from pocketbayes.layers import named_posteriors
from pocketbayes.posteriors import Posterior

_PAIRS = {"log_std": "mean", "outlier_log_std": "outlier_mean"}
_TYPES = (torch.uint8, torch.int8, torch.int16, torch.int32)
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
        logs = posterior._parameters.get(log_std)
        if logs is not None and _code_steps_(posterior, log_std, log_std_step(tolerance), decoders):
            _code_means_(posterior, mean, logs, mean_step(tolerance), log_std, decoders)
    if posterior._parameters.get("log_odds") is not None:
        _code_steps_(posterior, "log_odds", log_odds_step(tolerance), decoders)
    if posterior._buffers.get("index") is not None:
        _code_places_(posterior, decoders)
    kind = type(posterior)
    properties = {name: property(decoder) for name, decoder in decoders.items()}
    posterior.__class__ = type(kind.__name__, (kind,), properties)


def _code_steps_(
    posterior: Posterior, name: str, step: float, decoders: dict[str, Decoder]
) -> bool:
    """Multiples of a step; False: these numbers are none."""
    values = posterior._parameters[name]
    assert values is not None
    if values.numel() == 0 or values.dtype != torch.float32:
        return False
    codes = _multiples(values, torch.full_like(values, step, dtype=torch.float64))
    if codes is None:
        return False
    least = int(codes.min())
    _store_(posterior, name, codes - least)
    decoders[name] = lambda q: (getattr(q, f"{name}_codes").float() + least) * step
    return True


def _code_means_(
    posterior: Posterior,
    name: str,
    logs: Tensor,
    step: float,
    log_std: str,
    decoders: dict[str, Decoder],
) -> None:
    """Multiples of a share of each weight's own std."""
    values = posterior._parameters[name]
    assert values is not None
    codes = _multiples(values, logs.double().exp() * step)
    if codes is not None:
        _store_(posterior, name, codes)
        decoders[name] = lambda q: (
            getattr(q, f"{name}_codes").float() * (getattr(q, log_std).exp() * step)
        )


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
    _store_(posterior, "index", gaps)
    decoders["index"] = lambda q: getattr(q, "index_codes").long().cumsum(0)  # noqa: B009


def _store_(posterior: Posterior, name: str, codes: Tensor) -> None:
    """As the smallest type that holds them, under the name of the codes."""
    posterior._parameters.pop(name, None)
    posterior.register_buffer(f"{name}_codes", codes.to(smallest_type(codes)))


def smallest_type(codes: Tensor) -> torch.dtype:
    """The smallest integer type that holds these numbers."""
    low, high = (int(codes.min()), int(codes.max())) if codes.numel() else (0, 0)
    for kind in _TYPES:
        if torch.iinfo(kind).min <= low and high <= torch.iinfo(kind).max:
            return kind
    return torch.int64
