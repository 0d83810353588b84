"""Which densities to go through, and which candidate is best: the choices, without the work."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pocketbayes.errors import PocketBayesError, require_count, require_number

_AIM, _CLOSE = 0.995, 0.98  # of the target: where a search aims, and where it may end
DEFAULT_DROP = 0.005
_HARDLY_LARGER = 1.02
_NATS_PER_DROP = 4.0  # an answer that turns wrong, .9 to .02, costs log(45) = 3.8 nats


@dataclass(frozen=True)
class Limits:
    """What a compressed model must keep to; None: no limit.

    Attributes:
        bytes: most bytes of the file.
        multiplications: most multiplications of a pass over one example, zeros left out.
        drop: most accuracy that may be lost or, of values, share by which the RMSE may rise. Four
            times it are the nats by which the NLL may rise.
    """

    bytes: int | None = None
    multiplications: int | None = None
    drop: float | None = None

    @classmethod
    def checked(cls, size: Any, multiplications: Any, drop: Any) -> "Limits":
        """Each a sensible number; with none at all, half a point may be lost."""
        if size is not None:
            require_count(size, "target_bytes")
        if multiplications is not None:
            require_count(multiplications, "max_multiplications")
        if drop is not None:
            require_number(drop, "max_drop", least=0)
        nothing = size is None and multiplications is None and drop is None
        return cls(size, multiplications, DEFAULT_DROP if nothing else drop)

    def require_sensible(self, likelihood: str) -> None:
        """A loss of accuracy is a share below 1."""
        if self.drop is not None and self.drop >= 1 and likelihood in ("categorical", "bernoulli"):
            raise PocketBayesError(
                f"max_drop={self.drop:g} would allow any accuracy: 0.01 is one point of 100"
            )


class Quality(NamedTuple):
    """Of a candidate: `score` is the accuracy or, of values, the RMSE, negated."""

    bytes: int
    multiplications: int | None
    nll: float
    score: float
    of_values: bool


def is_within(found: Quality, before: Quality, limits: Limits) -> bool:
    """Whether a candidate keeps to all limits."""
    if not math.isfinite(found.nll) or found.bytes > (limits.bytes or math.inf):
        return False
    if (found.multiplications or 0) > (limits.multiplications or math.inf):
        return False
    if limits.drop is None:
        return True
    is_sure_as_before = found.nll <= before.nll + _NATS_PER_DROP * limits.drop + 1e-9
    return is_sure_as_before and lost(found, before) <= limits.drop + 1e-9


def lost(found: Quality, before: Quality) -> float:
    """Accuracy that was lost, or the share by which the RMSE rose."""
    if found.of_values:
        return found.score / before.score - 1 if before.score else math.inf
    return before.score - found.score


def best_of(found: Sequence[Quality], before: Quality, limits: Limits) -> int | None:
    """The number of the best candidate that keeps to the limits; None: none does.

    With a limit of bytes or multiplications the least NLL, then the best score, then the fewest
    bytes; where only quality is bounded, the same among those that hardly are larger than the
    smallest.
    """
    kept = [i for i, quality in enumerate(found) if is_within(quality, before, limits)]
    if limits.bytes is None and limits.multiplications is None:
        least = min((found[i].bytes for i in kept), default=0)
        kept = [i for i in kept if found[i].bytes <= _HARDLY_LARGER * least]

    def order(i: int) -> tuple[float, ...]:
        return found[i].nll, -found[i].score, found[i].bytes

    return min(kept, key=order, default=None)


def path_between(begin: float, end: float) -> list[float]:
    """Densities on the way from one to another, each at least a third of the one before."""
    steps = max(1, math.ceil(math.log(begin / end, 3) - 1e-9))
    return [begin * (end / begin) ** (k / steps) for k in range(1, steps + 1)]


class Sized(NamedTuple):
    """A value of a setting, and the bytes that came of it."""

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


def best_fitting(tried: Sequence[Sized], target: int) -> Sized | None:
    """The largest that fits; None: nothing does."""
    return max((t for t in tried if t.size <= target), key=lambda t: t.size, default=None)


def unreachable(limits: Limits, closest: Quality) -> PocketBayesError:
    """The error where nothing keeps to the limits, with how near it came."""
    asked = [
        words for value, words in (
            (limits.bytes, f"{limits.bytes:,} bytes" if limits.bytes else ""),
            (limits.multiplications, f"{limits.multiplications or 0:,} multiplications"),
            (limits.drop, f"a loss of at most {limits.drop}"),
        ) if value is not None
    ]  # fmt: skip
    loss = "RMSE" if closest.of_values else "accuracy"
    return PocketBayesError(
        f"no way was found to {' and '.join(asked)}: the smallest file was {closest.bytes:,} "
        f"bytes, with {loss} {abs(closest.score):.4g}; ask for more, or train a smaller network"
    )
