"""`compress`: a trained model made to fit a size, a cost or a quality, by validation data."""

import copy
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from pocketbayes.compression.candidates import Candidate, Rung, tolerances_of
from pocketbayes.compression.chain import Chain, Settings, UnreachableError
from pocketbayes.compression.choosing import (
    Limits,
    best_of,
    is_within,
    path_between,
    unreachable,
)
from pocketbayes.compression.heads import head_bytes_for, is_affordable, is_too_much, with_head
from pocketbayes.compression.outcome import Compression, line_of
from pocketbayes.compression.traits import COARSE, TOLERANCES, can_share
from pocketbayes.errors import PocketBayesError, require_count
from pocketbayes.layers import (
    Ensemble,
    Inputs,
    describe,
    first_parameter,
    mapped,
    moved,
    require_module,
    set_head,
)
from pocketbayes.methods import Method
from pocketbayes.prediction import float_dtype, unpack

_MOST_RUNGS = 12
_FAR = 0.3  # nats that training on may still mend
Say = Callable[[str], None]


class Kept(NamedTuple):
    """Of a network stored finely: does one of its files keep to all limits, and to the bytes."""

    is_within: bool
    is_small: bool


Add = Callable[[Rung], Kept]


def compress(
    model: nn.Module,
    train_loader: Iterable[Any],
    val_loader: Iterable[Any],
    *,
    target_bytes: int | None = None,
    max_multiplications: int | None = None,
    max_drop: float | None = None,
    one_pass: bool = True,
    epochs: int | None = None,
    method: Method | None = None,
    teacher: nn.Module | None = None,
    components: int | None = None,
    num_samples: int = 30,
    seed: int = 0,
    likelihood: str | None = None,
    progress: bool = True,
    **fit_options: Any,
) -> Compression:
    """Makes a trained model small: sparse, coarsely stored or shared, and quick by one pass.

    The model is pruned by signal-to-noise ratio, at most to a third at a time, and trained on after
    each step. Every network on the way is stored at several tolerances; each file is loaded, and
    measured on the validation data. Weights without stds are rounded to steps that the loss can
    bear (`rounding.rounded`), so that plain networks become small as well.
    The given model stays as it is.

    Args:
        model: a trained model, Bayesian or plain, or an ensemble, which is pruned and not trained.
        train_loader: training data, as `fit` takes it, with its augmentation.
        val_loader: data that was held back, which chooses; never the test set.
        target_bytes: most bytes of the whole file, head included. The least NLL that fits wins.
        max_multiplications: most multiplications of a pass over one example, zeros left out; early
            layers, whose weights are used at many positions, then get fewer.
        max_drop: most accuracy to lose, .01 being a point; of values, the share by which the RMSE
            may rise. The NLL may rise by 4 nats times it. Without a limit above, the smallest such
            file wins, or a better one within 2% of it. None: no bound or, if nothing else is said,
            0.005.
        one_pass: teach a head at the end (`distill_`), so that predictions need one pass. It is
            left out where it takes a quarter of the file from the weights, or where its NLL is
            clearly worse than that of draws.
        epochs: of training after each pruning; None: a quarter of those that the model was trained
            for, or 10, and at least 500 steps. 0 trains nothing.
        method: trains on after pruning; None: `MeanField` with the beta of the model.
        teacher: a larger classifier to learn from after pruning, beside the labels.
        components: entries of a codebook at most, which the weights share in a further candidate
            for a size in bytes; None: no such candidate, which is slow to make and seldom best.
        num_samples: draws per prediction.
        seed: of training and draws.
        likelihood: of a model that `fit` has not trained.
        progress: print each candidate on stderr.
        fit_options: more for `fit`: `device`, `precision`, `compile`.

    Raises:
        PocketBayesError: nothing keeps to the limits; it names the smallest file that was made.

    Example:
        >>> small = compress(model, train_loader, val_loader, target_bytes=200_000)
        >>> print(small)
        >>> small.save("small.pocket")
    """
    _require_options(model, epochs, components, num_samples, seed)
    known = likelihood or describe(model).likelihood or "categorical"
    limits = Limits.checked(target_bytes, max_multiplications, max_drop)
    limits.require_sensible(known)
    fit_options = {"progress": progress and sys.stderr.isatty()} | fit_options
    settings = Settings(method, epochs, components, num_samples, seed, known, fit_options)
    with tempfile.TemporaryDirectory() as folder:
        batches = list(val_loader)
        plain = copy.deepcopy(model)
        set_head(plain, None)
        chain = Chain(
            plain, teacher, train_loader, batches,
            _example(model, batches), Path(folder), settings,
        )  # fmt: skip
        say = _teller(progress)
        chain = replace(chain, with_program=replace(chain, with_program=True).can_carry_program())
        reserve = _head_bytes(chain, limits, say) if one_pass else 0
        if isinstance(model, Ensemble):
            say("an ensemble is pruned and stored coarsely, not trained on")
        return _compressed(replace(chain, head_bytes=reserve), limits, say)


def _head_bytes(chain: Chain, limits: Limits, say: Say) -> int:
    """Bytes to leave for a head; 0: there will be none, for the reason that is said."""
    taken = head_bytes_for(chain)
    if not taken:
        say("without a one-pass head: this model can have none")
    elif not is_affordable(chain, taken, limits.bytes):
        say(f"without a one-pass head: it would take {taken:,} bytes from the weights")
        return 0
    return taken


def _compressed(chain: Chain, limits: Limits, say: Say) -> Compression:
    """All candidates, the best, and that with its head; again without one if that did not fit."""
    begin = chain.begun()
    before, front = chain.candidate(begin, TOLERANCES[0]), list[Candidate]()
    try:
        _add_candidates(chain, begin, before, limits, say, front)
    except UnreachableError:
        if not (front or chain.head_bytes):
            raise
    chosen = _best(front, before, limits)
    if chosen is not None:
        headed = _headed(chain, chosen, before, limits, say)
        if headed is not None:
            return _found(chain, before, front, chosen, headed)
    elif chain.head_bytes:
        say("with a one-pass head nothing fits")
    front = [replace(c, reserve=0) for c in front]  # a larger one may fit without a head
    chosen = _best(front, before, limits)
    if chosen is not None:
        return _found(chain, before, front, chosen, None)
    if chain.head_bytes and limits.bytes is not None:
        return _compressed(replace(chain, head_bytes=0), limits, say)
    raise unreachable(limits, min((c.quality() for c in front), key=lambda q: q.bytes))


def _best(front: list[Candidate], before: Candidate, limits: Limits) -> Candidate | None:
    number = best_of([c.quality() for c in front], before.quality(), limits)
    return None if number is None else front[number]


def _headed(
    chain: Chain, chosen: Candidate, before: Candidate, limits: Limits, say: Say
) -> Candidate | None:
    """The chosen network with a head, where that is worth its bytes."""
    if not chain.head_bytes:
        return None
    if limits.bytes is None and is_too_much(chain.head_bytes, chosen.quality().bytes):
        say(f"the one-pass head is left out: {chain.head_bytes:,} bytes beside {chosen.bytes:,}")
        return None
    found = with_head(chain, chosen, before, limits)
    if found is None:
        say("the one-pass head is left out: by draws the model is better, or only so it fits")
    else:
        say(line_of(found))
    return found


def _found(
    chain: Chain, before: Candidate, front: list[Candidate], chosen: Candidate,
    headed: Candidate | None,
) -> Compression:  # fmt: skip
    made = headed or chosen
    stored = made.model().to(first_parameter(chain.model).device)
    return Compression(stored, before, front, chosen, headed, made.path.read_bytes())


def _add_candidates(
    chain: Chain, begin: Rung, before: Candidate, limits: Limits, say: Say, found: list[Candidate]
) -> None:
    """Candidates: of the model as it is, of sparser ones, and of one with a codebook."""

    def add(rung: Rung) -> Kept:
        """Stores the network at all tolerances; what comes of those that keep it well."""
        made = [before] if rung is begin else []
        made += [chain.candidate(rung, t) for t in tolerances_of(rung) if t not in
                 [c.tolerance for c in made]]  # fmt: skip
        found.extend(made)
        for candidate in made:
            say(line_of(candidate))
        kept = [c.quality() for c in made if c.tolerance <= COARSE]
        is_small = any(quality.bytes <= (limits.bytes or quality.bytes) for quality in kept)
        return Kept(any(is_within(quality, before.quality(), limits) for quality in kept), is_small)

    add(begin)
    if limits.bytes is None and limits.multiplications is None:
        _down_to_quality(chain, begin, add)
    elif not is_within(before.quality(), before.quality(), limits):
        last = _down_to_limits(chain, begin, limits, add)
        if limits.bytes and chain.settings.components and can_share(chain.model):
            _share(chain, last, limits.bytes, found, add)


def _share(chain: Chain, rung: Rung, target: int, found: list[Candidate], add: Add) -> None:
    """The network with one codebook, trained on if it is not far behind the others."""
    fineness, least = chain.fineness_for(rung, target), min(c.record.nll for c in found)
    if fineness is None:
        return
    add(chain.shared(rung, fineness, 0))
    if chain.epochs() and found[-1].record.nll < least + _FAR:
        add(chain.shared(rung, fineness, chain.epochs()))


def _down_to_quality(chain: Chain, begin: Rung, add: Add) -> None:
    """Halves the density until the quality is lost, and tries once in between."""
    good = begin
    for _ in range(_MOST_RUNGS):
        rung = chain.sparser(good, good.density / 2)
        if not add(rung).is_within:
            add(chain.sparser(good, good.density / 2**0.5))
            return
        good = rung


def _down_to_limits(chain: Chain, begin: Rung, limits: Limits, add: Add) -> Rung:
    """Prunes step by step to what fits; returns the network before the last step."""
    end, cost = begin.density, begin.multiplications or 0
    most = min(limits.multiplications or cost, cost)
    if limits.bytes is not None:
        end = min(chain.density_for(begin, limits.bytes), begin.density / 2)
    if most < cost:
        end = min(end, begin.density * most / cost)  # so few weights can be had for that
    path = path_between(begin.density, end) if chain.epochs() else [end]
    rung = last = begin
    for number, density in enumerate(path, 1):
        bound = round(cost * (most / cost) ** (number / len(path))) if most < cost else None
        last, rung = rung, chain.sparser(rung, density, bound)
        kept = add(rung)
    for _ in range(3):  # training moved its bytes
        if kept.is_small or limits.bytes is None:
            break
        density = min(chain.density_for(rung, limits.bytes), 0.95 * rung.density)
        rung = chain.sparser(rung, density, bound)
        kept = add(rung)
    if chain.epochs() and kept.is_within:
        add(chain.sparser(rung, rung.density * 2**-0.5, bound))  # stored finer, it may be better
    return last


def _require_options(model: Any, epochs: Any, components: Any, num_samples: Any, seed: Any) -> None:
    require_module(model)
    if epochs is not None:
        require_count(epochs, "epochs", least=0)
    if components is not None:
        require_count(components, "components", least=2)
    require_count(num_samples, "num_samples")
    require_count(seed, "seed", least=0)


def _example(model: nn.Module, batches: list[Any]) -> Inputs:
    """The first example of the validation data, on the model's device."""
    if not batches:
        raise PocketBayesError("val_loader is empty, and it is what chooses: hold data back")
    x, _ = unpack(batches[0], "val_loader", float_dtype(model))
    return moved(mapped(lambda part: part[:1], x), first_parameter(model).device)


def _teller(progress: bool) -> Say:
    return lambda text: print(text, file=sys.stderr, flush=True) if progress else None
