"""What of a model decides how it is pruned, trained on, shared and stored."""

import copy
import math
from typing import Any

from torch import nn

from pocketbayes.compression.pruning import prune_
from pocketbayes.layers import Ensemble, Inputs, describe, named_posteriors
from pocketbayes.methods import Deterministic, MCDropout, MeanField, Method, Sharing, unshare_
from pocketbayes.posteriors import Gaussian, Sparse, SpikeSlab

FINE, COARSE, COARSEST = 0.01, 0.3, 1.0  # nats a weight
TOLERANCES = (FINE, 0.1, COARSE, COARSEST)
_STD_LR = 1e-2
# From this weight of the KL on, tuning begins without it. On 9 regressions and 2 tables of classes
# the NLL is lower for it, by up to 0.5, or the same: a network that was trained for a short time
# fell back to its prior. Of lighter ones, two digits and clothes, it takes 3% more bytes.
_HEAVY, _WARMUP = 0.1, 0.5


def tuning_of(model: nn.Module) -> Method:
    """What trains on a network that was pruned."""
    if describe(model).keeps_dropout:
        return MCDropout()
    if not is_random(model):
        return Deterministic()
    beta = describe(model).beta
    warmup = _WARMUP if beta is None or beta >= _HEAVY else 0.0
    return MeanField(lr=3e-3, std_lr=_STD_LR, warmup=warmup, **_beta(model))


def sharing_method(
    model: nn.Module, entries: int, fineness: float, refresh: bool = True
) -> Sharing:
    """What shares weights by rate and distortion; the rate is exp(-fineness)."""
    return Sharing(
        objective="rate_distortion", components=entries, rate=math.exp(-fineness), lr=3e-3,
        std_lr=_STD_LR, refresh_norms=refresh, **_beta(model),
    )  # fmt: skip


def _beta(model: nn.Module) -> dict[str, Any]:
    """The KL's weight as in training, where it may have followed the doubt; nothing without one."""
    known = describe(model)
    match known.training:
        case {"betas": [float() as least, float() as most]}:
            return {"least_beta": least, "beta": most}
    return {} if known.beta is None else {"beta": known.beta}


def can_share(model: nn.Module) -> bool:
    """Whether its weights may share a codebook: it is one network of weights with stds."""
    is_plain = not isinstance(model, Ensemble) and not describe(model).keeps_dropout
    return is_plain and is_random(model)


def density_of(model: nn.Module) -> float:
    """The share of the weights that are there; vectors, which are never pruned, left out."""
    found = [q for _, q in named_posteriors(model) if len(q.shape) > 1]
    return sum(q.num_active for q in found) / max(1, sum(q.shape.numel() for q in found))


def has_stds(model: nn.Module) -> bool:
    """Whether some weights have stds of their own, so that files differ by the tolerance."""
    own = (Gaussian, Sparse, SpikeSlab)
    return any(isinstance(q, own) for _, q in named_posteriors(model))


def pruned(
    model: nn.Module, density: float, most: int | None = None, example: Inputs | None = None
) -> nn.Module:
    """A copy with so many of its weights, the surest or largest, within so many multiplications."""
    model = copy.deepcopy(model)
    by = "inclusion"
    if not has_inclusion_variables(model):
        unshare_(model)
        by = "snr" if is_random(model) else "magnitude"
    given = None if most is None else example
    return prune_(model, density, by=by, max_multiplications=most, example=given)


def is_random(model: nn.Module) -> bool:
    """Whether some weight has a std."""
    return any(q.is_random for _, q in named_posteriors(model))


def has_inclusion_variables(model: nn.Module) -> bool:
    """Whether weights have inclusion variables."""
    return any(True for _, q in named_posteriors(model) for _ in q.inclusion_parameters())
