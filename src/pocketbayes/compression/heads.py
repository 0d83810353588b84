"""Room for a one-pass head in a file that must fit, and the head itself."""

import copy
import warnings
from dataclasses import replace

from pocketbayes.compression.candidates import Candidate
from pocketbayes.compression.chain import Chain
from pocketbayes.compression.choosing import Limits, is_within
from pocketbayes.compression.traits import COARSE, FINE
from pocketbayes.distillation import distill_
from pocketbayes.errors import PocketBayesError
from pocketbayes.layers import Ensemble, first_parameter, has_random_weights

_MOST = 0.25  # of a file may be its head
_SPARE = 64, 1 / 12  # bytes, and share of a head, by which another one may be longer in a file
_WORSE = 0.02  # nats by which one pass may be worse than draws


def head_bytes_for(chain: Chain) -> int:
    """Bytes that a head may take; 0: the model can have none."""
    if isinstance(chain.model, Ensemble) or not has_random_weights(chain.model):
        return 0
    model = copy.deepcopy(chain.model)
    without = chain.size_of(model, COARSE)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a lesson of one batch: its size is what counts
            distill_(model, chain.validation[:1], 1, num_samples=2, seed=chain.settings.seed,
                     likelihood=chain.settings.likelihood)  # fmt: skip
    except PocketBayesError:
        return 0
    taken = chain.size_of(model, COARSE) - without
    return taken + _SPARE[0] + round(_SPARE[1] * taken)


def is_affordable(chain: Chain, head: int, target: int | None) -> bool:
    """Whether nothing else wants the bytes, or they are not too many of the target."""
    if target is None or chain.size_of(chain.model, FINE) + head <= target:
        return True
    return not is_too_much(head, target)


def is_too_much(head: int, file: int) -> bool:
    """Whether a head would take more of a file than it is worth."""
    return head > _MOST * file


def with_head(
    chain: Chain, chosen: Candidate, before: Candidate, limits: Limits
) -> Candidate | None:
    """The chosen network with a head that was taught by its own draws, if that fits and is good."""
    model = chosen.model().to(first_parameter(chain.model).device)
    model = distill_(
        model, chain.train, seed=chain.settings.seed, likelihood=chain.settings.likelihood
    )
    path = chosen.path.with_name("one_pass.pocket")
    found, size = chain.stored(model, chosen.tolerance, path)
    record = chain.measured(found)
    headed = replace(
        chosen, what=f"{chosen.what}, by one pass", bytes=size, record=record, path=path,
        rung=replace(chosen.rung, model=model), reserve=0,
    )  # fmt: skip
    is_good = record.nll <= chosen.record.nll + _WORSE
    return headed if is_good and is_within(headed.quality(), before.quality(), limits) else None
