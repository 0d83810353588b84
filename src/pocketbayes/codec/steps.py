"""Floats to integers and back, so that a posterior changes by no more than a given KL.

The file's N(m', s'^2) in place of N(m, s^2), with d = log(s' / s) and e = (m - m') / s', costs

    KL = d + (exp(-2 d) - 1) / 2 + e^2 / 2  nats for each weight.

Half of the tolerance goes to the log-stds, in steps of `log_std_step`, the other half to the means,
in steps of `mean_step` of the weight's own std. All results are those of IEEE arithmetic, and
exponentials come from decimal arithmetic: the same integers on every platform.

Most stds of a network may be that of its prior. Were their log just between two multiples, all of
them would be as wrong as the tolerance allows, in the same direction, and cost a bit each to say
in which. So of the steps that keep within the tolerance the best for these numbers is taken.
"""

import math
from collections.abc import Sequence
from decimal import Context, Decimal
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pocketbayes.codec.frequencies import counted
from pocketbayes.codec.tokens import MOST, Integers, largest, pieces
from pocketbayes.errors import FormatError

Floats = NDArray[np.floating]
Doubles = NDArray[np.float64]
MOST_LOG_STD = 600.0
_PRODUCT, _DIGITS = Context(prec=28), Context(prec=25)  # the caller's own may be any
TOLERANCE = 1e-2  # nats a weight, unless somebody says another; see benchmarks/tolerance.py
_WIDEST = 1 << 8  # range of multiples that are looked up in a table
_CHOICES, _MOST_PLACES = 16, 1 << 16


def log_std_steps(tolerance: float) -> list[float]:
    """Steps h with h/2 from the truth at most: exp(h) - 1 - h <= tolerance.

    The first, of 12 bits, is that of older files. The others, largest first, have six: small
    multiples are exact in float32, and near tolerances have the same steps.
    """
    low, high = 0.0, 2.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if math.expm1(middle) - middle < tolerance else (low, middle)
    fraction, exponent = math.frexp(low)
    most = math.floor(fraction * 64)
    steps = [math.ldexp(bits, exponent - 6) for bits in range(most, 31, -1)]
    steps += [math.ldexp(bits, exponent - 7) for bits in range(63, most, -1)]
    return [_rounded(low), *steps[:_CHOICES]]


def log_std_step(arrays: Sequence[Floats], tolerance: float) -> float:
    """The step among these that costs least: squared errors and, for each bit, what it is worth.

    A bit is worth what it saves an even spread: n numbers pay n H (H - h) / 6 for a step h below
    the largest, H. A step whose multiples all numbers are already is kept, so that what is loaded
    stays as it is. Everything is counted in integers: no rounding of sums decides.
    """
    oldest, *steps = log_std_steps(tolerance)
    if all(_are_multiples(array[at], oldest) for array in arrays for at in pieces(len(array))):
        return oldest
    unit = math.ldexp(1.0, math.frexp(steps[-1])[1] - 6)
    found = _histogram(arrays, unit)
    if found is None:
        return steps[0]
    place, times = found
    sizes = [int(step / unit) for step in steps]
    best = _dividing(sizes, place)
    if best is None:
        best = min(sizes, key=lambda size: _cost(place, times, size, sizes[0]))
        place = place - _rest(place, best)
        best = _dividing(sizes, place) or best
    return best * unit if place.any() else oldest


def _are_multiples(values: Floats, step: float) -> bool:
    found = to_steps(values, step)
    return found is not None and bool(
        (from_steps(found, step).astype(values.dtype) == values).all()
    )


def _histogram(arrays: Sequence[Floats], unit: float) -> tuple[Integers, Integers] | None:
    """The nearest multiples of a unit, and how often each occurs; None if they are too many."""
    ends = to_steps(np.array([[a.min(), a.max()] for a in arrays], np.float64), unit)
    if ends is None or (low := int(ends.min())) + _MOST_PLACES < int(ends.max()):
        return None
    times = np.zeros(int(ends.max()) - low + 1, np.int64)
    for row in (array[at] for array in arrays for at in pieces(len(array))):
        places = np.rint(row.astype(np.float64) / unit).astype(np.int64) - low
        times += np.bincount(places, minlength=len(times))
    there = np.flatnonzero(times)
    return there + low, times[there]


def _dividing(sizes: list[int], place: Integers) -> int | None:
    """The largest size that divides all places."""
    return next((size for size in sizes if not (place % size).any()), None)


def _rest(place: Integers, size: int) -> Integers:
    """How far each place is from the nearest multiple."""
    return (place + size // 2) % size - size // 2


def _cost(place: Integers, times: Integers, size: int, most: int) -> int:
    errors = int((times * _rest(place, size) ** 2).sum())
    return 6 * errors + int(times.sum()) * most * (most - size)


def mean_step(tolerance: float) -> float:
    """The step h, in stds, with (h/2)^2 / 2 = tolerance / 2."""
    return _rounded(2 * math.sqrt(tolerance))


def log_odds_step(tolerance: float) -> float:
    """The step h of log-odds: KL of two inclusion variables <= (h/2)^2 / 8 = tolerance."""
    return _rounded(math.sqrt(32 * tolerance))


def log_std_nats(error: Doubles) -> Doubles:
    """KL of a std that is stored exp(error) times as large."""
    nats: Doubles = error + np.expm1(-2 * error) / 2
    return nats


def log_odds_nats(error: Doubles) -> Doubles:
    """What the KL of two inclusion variables is at most."""
    return error**2 / 8


def tolerance_of_log_std(step: float) -> float:
    """The least tolerance of this step."""
    return math.expm1(step) - step


def tolerance_of_mean(step: float) -> float:
    """The least tolerance of this step."""
    return (step / 2) ** 2


def tolerance_of_log_odds(step: float) -> float:
    """The least tolerance of this step."""
    return step**2 / 32


def _rounded(step: float) -> float:
    """Down to 12 bits: a short number, and products with small integers are exact."""
    mantissa, exponent = math.frexp(step)
    return math.ldexp(math.floor(mantissa * 4096), exponent - 12)


def to_steps(values: Floats, step: float | Floats) -> Integers | None:
    """The nearest multiples of a step; None if some value has none."""
    with np.errstate(all="ignore"):
        scaled = np.rint(values.astype(np.float64) / step)
        if not (np.abs(scaled) < MOST).all():  # NaN fails, too
            return None
    return scaled.astype(np.int64)


def from_steps(integers: Integers, step: float | Floats) -> NDArray[np.float64]:
    """The values that `to_steps` took them for."""
    if largest(integers) >= MOST:
        raise FormatError("a number is too large")
    return integers.astype(np.float64) * np.asarray(step, np.float64)


def stds(integers: Integers, step: float) -> NDArray[np.float64]:
    """exp(k step) for each k."""
    if largest(integers) * step > MOST_LOG_STD:
        raise FormatError("a log-std is out of bounds")
    low, high = (int(integers.min()), int(integers.max())) if len(integers) else (0, 0)
    if high - low > _WIDEST:
        known = counted(integers)[0]
        return np.array([_exp(int(k), step) for k in known])[np.searchsorted(known, integers)]
    table: NDArray[np.float64] = np.array([_exp(k, step) for k in range(low, high + 1)])
    return table[np.subtract(integers, low, dtype=np.int64)]


@lru_cache(maxsize=1 << 14)
def _exp(k: int, step: float) -> float:
    return float(_DIGITS.exp(_PRODUCT.multiply(Decimal(k), Decimal(step))))
