"""How a model could be made to fit a size, and which way is best: the choices, without the work."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

_AIM, _CLOSE = 0.995, 0.98  # of the target: where a search aims, and where it may end
_TOLERANCES = (3e-2, 1e-1, 3e-1)
_TOLERANCE_OF_FEW = 3e-2
_PARTS_KEPT = (0.5, 0.25, 0.1)


@dataclass(frozen=True)
class Traits:
    """What of a model decides how it can be made smaller.

    Attributes:
        is_random: some weight has a std.
        is_ensemble: it consists of several networks, which are not fine-tuned.
        keeps_dropout: it draws by dropout, which sharing would turn off.
        has_inclusion_variables: weights have inclusion variables, which go before anything else can
        be done.
        density: share of its weights that are there, without inclusion variables.
    """

    is_random: bool
    is_ensemble: bool
    keeps_dropout: bool
    has_inclusion_variables: bool
    density: float


@dataclass(frozen=True)
class Recipe:
    """One way to a smaller file.

    Attributes:
        tolerance: of the file, in nats per weight; None: as ever.
        density: share of the weights that pruning keeps; None: all.
        entries: of the codebook that the weights share, at most; None: they do not share.
        fineness: of sharing: minus the logarithm of the rate.
        knob: the field that a search may turn until the file just fits; "": none.
    """

    tolerance: float | None = None
    density: float | None = None
    entries: int | None = None
    fineness: float = 0.0
    knob: str = ""

    @property
    def is_untouched(self) -> bool:
        """Whether the model's weights stay what they are."""
        return self.density is None and self.entries is None

    @property
    def rate(self) -> float:
        """Of sharing: nats of KL that a nat of label is worth; see `Sharing`."""
        return math.exp(-self.fineness)

    @property
    def setting(self) -> float:
        """Where the knob stands; files grow with it."""
        return float(getattr(self, self.knob))

    def turned(self, setting: float) -> "Recipe":
        """The same with the knob at another setting."""
        return replace(self, **{self.knob: setting})  # type: ignore[arg-type]

    def words(self) -> str:
        """What is done, for people."""
        done = [] if self.density is None else [f"pruned to {100 * self.density:.3g}%"]
        done += [] if self.entries is None else ["shared"]
        done += [] if self.tolerance is None else [f"stored to {self.tolerance:g} nats"]
        return ", ".join(done) or "as it is"

    def to_dict(self) -> dict[str, Any]:
        """What was set, and the words for it."""
        found = {"tolerance": self.tolerance, "density": self.density}
        if self.entries is not None:
            found |= {"rate": self.rate, "components": self.entries}
        return {"what": self.words()} | {k: v for k, v in found.items() if v is not None}


def recipes_for(model: Traits, entries: int) -> list[Recipe]:
    """What to try, the cheapest first; a knob stands where its search begins.

    A model whose weights have no std is the same at every tolerance. It can share as well, and is
    Bayesian then; one that draws by dropout, or an ensemble, stays what it is and is only pruned.

    Args:
        model: what decides.
        entries: of a shared codebook, at most.
    """
    found = [Recipe()] + [Recipe(tolerance=t) for t in _TOLERANCES if model.is_random]
    tolerance = _TOLERANCE_OF_FEW if model.is_random else None
    pruned = Recipe(tolerance, density=model.density / 2, knob="density")
    if model.is_ensemble or model.keeps_dropout:
        return [*found, pruned]
    shared = Recipe(entries=entries, knob="fineness")
    kept = [model.density * part for part in _PARTS_KEPT if model.is_random]
    return [*found, shared, *(replace(shared, density=density) for density in kept), pruned]


class Sized(NamedTuple):
    """A value of a knob, and the bytes that came of it."""

    value: float
    size: int


def searched(
    measure: Callable[[float], int],
    target: int,
    first: float,
    slope: float,
    bounds: tuple[float, float],
    steps: int = 6,
) -> list[Sized]:
    """Values tried on the way to the largest whose size is at most the target.

    Secant steps inside a bracket, aimed just below the target; an end of the bracket that stays
    where it is counts less and less (the Illinois rule), or a cliff would hold it there. If nothing
    fits, the last value tried is the lower bound, so the sizes tell how small it gets.

    Args:
        measure: bytes at a value; they should rise with it.
        target: most bytes.
        first: where to begin.
        slope: bytes per unit of the value, as long as nothing better is known.
        bounds: of the values.
        steps: at most so many measurements.
    """
    low, high = bounds
    tried: list[Sized] = []
    value = min(max(first, low), high)
    for left in range(steps, 0, -1):
        tried.append(Sized(value, measure(value)))
        below = [t for t in tried if t.size <= target]
        if _is_done(tried, below, target):
            break
        if not below and (left == 2 or value == low):
            value, was = low, value
            if was == low:
                break
            continue
        value = min(max(_next_value(tried, below, target, slope), low), high)
        if any(value == t.value for t in tried):
            break
    return tried


def _is_done(tried: list[Sized], below: list[Sized], target: int) -> bool:
    """Whether the best is close to the target, or turning further no longer makes a difference."""
    if not below:
        return False
    best = max(below, key=lambda t: t.value)
    if best.size >= _CLOSE * target:
        return True
    return len(tried) == len(below) > 1 and tried[-1].size <= tried[-2].size


def _next_value(tried: list[Sized], below: list[Sized], target: int, slope: float) -> float:
    above = [t for t in tried if t.size > target]
    if below and above:
        a, b = max(below), min(above)
        missing, excess = max(0.0, _AIM * target - a.size), b.size - _AIM * target
        weight = 0.5 ** (_repeats(tried, target) - 1)
        if tried[-1].size > target:
            missing *= weight
        else:
            excess *= weight
        share = missing / max(1.0, missing + excess)
        return a.value + min(max(share, 0.1), 0.9) * (b.value - a.value)
    last = tried[-1]
    step = (_AIM * target - last.size) / slope
    if above and len(above) > 1:  # the slope did not hold
        step = min(step, -last.value / 2)
    return last.value + step


def _repeats(tried: list[Sized], target: int) -> int:
    """How many of the last values were on the same side of the target."""
    sides = [t.size > target for t in reversed(tried)]
    return next((n for n, side in enumerate(sides) if side != sides[0]), len(sides))


def best_fitting(tried: Iterable[Sized], target: int) -> Sized | None:
    """The largest that fits; None: nothing does."""
    return max((t for t in tried if t.size <= target), key=lambda t: t.size, default=None)


class Score(NamedTuple):
    """Bytes and quality of a candidate; `accuracy` stands for the RMSE, negated, of values."""

    size: int
    nll: float
    accuracy: float


def ranked_scores(scores: Iterable[Score], target: int) -> list[int]:
    """Numbers of the candidates that fit, best first: least NLL, then accuracy, then bytes."""
    listed = list(enumerate(scores))
    fitting = [(s, i) for i, s in listed if s.size <= target and math.isfinite(s.nll)]
    return [i for s, i in sorted(fitting, key=lambda x: (x[0].nll, -x[0].accuracy, x[0].size))]
