"""How near one pass comes to draws of the network, on some inputs of the loader it learned from."""

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pocketbayes.errors import PocketBayesError, warn
from pocketbayes.layers import (
    Inputs,
    comparison_in_words,
    describe,
    first_parameter,
    mapped,
    moved,
    num_examples,
)
from pocketbayes.likelihoods import (
    Likelihood,
    learned_for,
    learned_of,
    require_labels,
)
from pocketbayes.prediction import (
    ClassPrediction,
    ValuePrediction,
    drawing,
    draws_of,
    float_dtype,
    labelled_batches,
    networks_to_run,
    one_pass_draws,
    scored,
    summarised,
)

_DRAWS, _EXAMPLES, _BATCHES = 64, 256, 8
_MOST = 1e9  # that is told of a difference
# Trained networks, by either estimator: probs up to 0.03, mean 0.23, std 0.08, nll 0.06. Heads
# taught at a rate of 1: probs from 0.4 on, mean from 5,000. Draws alone err by up to 1/8 std.
_FAR = {"probs": 0.15, "mean": 0.5, "std": 0.5, "nll": 0.3}
_BESIDE_CHANCE, _LEAST_TO_JUDGE = 0.1, 16
_STILL = 1e-6  # of the outputs, if all draws differ by less


class Part(NamedTuple):
    """Of some examples: differences, the spread of draws, classes, scores where targets fit."""

    rows: int
    apart: dict[str, float]
    spread: float
    outcomes: int
    scores: tuple[dict[str, float], dict[str, float]] | None
    target: Tensor | None


class Comparison(NamedTuple):
    """What is kept of it, and what it says of the model.

    Attributes:
        facts: `examples`, `draws`; `probs`, or `mean` and `std`; `nll`, where there are targets.
        knows_targets: whether draws tell the targets better than chance; None: nobody can say.
        varies: whether draws differ from each other.
    """

    facts: dict[str, float]
    knows_targets: bool | None
    varies: bool


def compared(
    model: nn.Module,
    loader: Iterable[Any],
    likelihood: Likelihood,
    estimator: str | None,
    at_once: int,
) -> Comparison:
    """One pass beside 64 draws by this estimator, on up to 256 examples of 8 batches.

    Classes: `probs` is the mean of sum_k |p_k - q_k| / 2; labels: of |p - q|. Values: `mean` is
    mean |m - m'| / mean std' of each output, `std` is mean |std - std'| / mean std', the dashes
    being of draws. `nll` is that of one pass less that of draws. So many examples of a batch run at
    once that there are no more draws than `at_once` of all of it.
    """
    parts = list[Part]()
    for x, y in _some(model, loader):
        step = max(1, num_examples(x) * at_once // _DRAWS)
        for first in range(0, num_examples(x), step):
            rows = slice(first, first + step)
            some = mapped(lambda tensor, rows=rows: tensor[rows], x)  # type: ignore[misc]
            target = None if y is None else y[rows]
            parts.append(_part(model, some, target, likelihood, estimator))
    apart = _averaged([(part.rows, part.apart) for part in parts])
    facts = {"examples": sum(part.rows for part in parts), "draws": _DRAWS, **apart}
    varies = any(part.spread > _STILL for part in parts)
    pairs = [(part.rows, part.scores) for part in parts if part.scores is not None]
    if not pairs:
        return Comparison(_as_json(facts), None, varies)
    one, drawn = (_averaged([(rows, both[way]) for rows, both in pairs]) for way in (0, 1))
    facts["nll"] = one["nll"] - drawn["nll"]
    known = [part.target for part in parts if part.scores is not None and part.target is not None]
    targets = torch.cat([target.flatten() for target in known])
    return Comparison(_as_json(facts), _knows_targets(drawn, targets, parts[0].outcomes), varies)


def warn_if_far(model: nn.Module, found: Comparison) -> None:
    """Warns of a model that nobody trained, of data that it does not know, and of a poor head."""
    known = describe(model)
    untold = known.training is None and known.beta is None and known.likelihood is None
    if found.knows_targets is False:
        warn(
            "draws of this model tell the loader's targets no better than chance: train it before "
            "distill_, and pass the loader that it was trained with"
        )
    elif untold and not found.knows_targets:
        warn(
            "nothing says that this model was ever trained: what distill_ taught is what draws of "
            "an untrained network say. Call fit before; of a loop of your own, a loader with "
            "targets would show it"
        )
    if not found.varies:
        warn(
            "draws of this model do not differ, so one pass can tell nothing of its doubt: are its "
            "posteriors trained?"
        )
    far = [name for name, most in _FAR.items() if found.facts.get(name, 0.0) > most]
    if far:
        warn(
            f"the one-pass head did not learn what draws say: {comparison_in_words(found.facts)}. "
            "Call distill_ with more epochs or a smaller lr, or predict by draws: estimator="
            f'"{(known.one_pass or {}).get("estimator")}"'
        )


def _some(model: nn.Module, loader: Iterable[Any]) -> Iterator[tuple[Inputs, Tensor | None]]:
    left, device = _EXAMPLES, first_parameter(model).device
    batches = labelled_batches(loader, _EXAMPLES, float_dtype(model))
    for (x, y), _ in zip(batches, range(_BATCHES), strict=False):
        taken = min(left, num_examples(x))
        target = torch.from_numpy(y) if isinstance(y, np.ndarray) and y.dtype.kind in "fiub" else y
        if isinstance(target, Tensor) and not target.is_floating_point():
            target = target.long()
        fits = isinstance(target, Tensor) and target.dim() > 0 and len(target) == num_examples(x)
        some = mapped(lambda tensor, taken=taken: tensor[:taken], x)  # type: ignore[misc]
        yield moved(some, device), target[:taken].to(device) if fits else None
        left -= taken
        if left <= 0:
            return


def _part(
    model: nn.Module, x: Inputs, y: Tensor | None, likelihood: Likelihood, estimator: str | None
) -> Part:
    with drawing(model, "one_pass", None):
        points = one_pass_draws(model, x, _DRAWS)
    with drawing(model, estimator, None):
        draws = draws_of(networks_to_run(model, _DRAWS, estimator), x)
    is_known = learned_of(model, likelihood) is not None
    learned = learned_for(model, likelihood, draws) if is_known else likelihood.unlearned(draws[0])
    one, drawn = (
        summarised(likelihood, some, learned, None, "probs", False, is_one_pass)
        for some, is_one_pass in ((points, True), (draws, False))
    )
    spread = float((draws.std(0) / (1 + draws.abs().amax(0))).max())
    outcomes = draws.shape[2] if isinstance(drawn, ClassPrediction) else 2
    is_measured = y is not None and (is_known or not isinstance(drawn, ValuePrediction))
    scores = _scores(one, drawn, y, likelihood) if is_measured and y is not None else None
    return Part(num_examples(x), apart(one, drawn), spread, outcomes, scores, y)


def apart(one: Any, drawn: Any) -> dict[str, float]:
    """The mean differences of two predictions: see `compared`."""
    if isinstance(drawn, ValuePrediction):
        unit = drawn.std.mean(0)
        mean = (one.mean - drawn.mean).abs().mean(0)
        std = (one.std - drawn.std).abs().mean(0)
        varies = unit > _STILL * (1 + drawn.mean.abs().mean(0))
        mean, std = (torch.where(varies, each / unit, 0.0) for each in (mean, std))
        return {"mean": float(mean.mean()), "std": float(std.mean())}
    each = (one.probs - drawn.probs).abs()
    is_classes = isinstance(drawn, ClassPrediction)
    return {"probs": float(each.sum(1).mean() / 2 if is_classes else each.mean())}


def _averaged(parts: list[tuple[int, dict[str, float]]]) -> dict[str, float]:
    """Weighted by rows."""
    total = sum(rows for rows, _ in parts)
    return {name: sum(rows * found[name] for rows, found in parts) / total for name in parts[0][1]}


def _as_json(facts: dict[str, float]) -> dict[str, float]:
    """Counts as they are; differences finite, and of four digits."""
    bounded = {
        name: _MOST if math.isnan(fact) else max(-_MOST, min(_MOST, fact))
        for name, fact in facts.items()
    }
    return {n: f if isinstance(f, int) else float(f"{f:.4g}") for n, f in bounded.items()}


def _scores(
    one: Any, drawn: Any, target: Tensor, likelihood: Likelihood
) -> tuple[dict[str, float], dict[str, float]] | None:
    """The NLL of both; of draws also accuracy or square error; None: targets of other outputs."""
    try:
        if isinstance(drawn, ClassPrediction):
            require_labels(drawn.probs, target)
        first, second = (scored([pred], [target], likelihood) for pred in (one, drawn))
    except PocketBayesError:
        return None
    if not math.isfinite(second["nll"]):
        return None
    is_value = "rmse" in second
    more = {"square": second["rmse"] ** 2} if is_value else {"accuracy": second["accuracy"]}
    return {"nll": first["nll"]}, {"nll": second["nll"], **more}


def _knows_targets(drawn: dict[str, float], targets: Tensor, outcomes: int) -> bool | None:
    """Whether NLL < log(outcomes), or rmse < std of the targets; None: too few, or too near.

    Who is too sure has a large NLL and knows them yet: an accuracy of 3 errors above chance.
    """
    if len(targets) < _LEAST_TO_JUDGE:
        return None
    if "square" in drawn:
        std = float(targets.double().std())
        beyond, guesses = drawn["square"] ** 0.5 / std - 1 if std > 0 else 0.0, True
    else:
        beyond, chance = drawn["nll"] - math.log(outcomes), 1 / outcomes
        error = math.sqrt(chance * (1 - chance) / len(targets))
        guesses = drawn["accuracy"] <= chance + 3 * error
    if abs(beyond) < _BESIDE_CHANCE or (beyond > 0 and not guesses):
        return None
    return beyond < 0
