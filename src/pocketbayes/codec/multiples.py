"""The step of which rounded numbers are multiples, found in their bits: exact, no tolerance."""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from pocketbayes.codec.steps import MOST_LOG_STD, Floats
from pocketbayes.codec.tokens import pieces

_MOST = 1 << 15  # a number that is no rounded one is a multiple of something only far above
_DIGITS, _SHIFTED = 53, 62
_LEAST_STEP, _MOST_STEP = 1e-9, 1e3  # as the format has them


def common_step(arrays: Iterable[Floats], most_multiple: int = _MOST) -> float | None:
    """The largest step of which all numbers are exact multiples; None without a coarse one."""
    known, unit, most = 0, 0, 0.0  # all numbers so far are multiples of known * 2^unit
    for values in (array[at] for array in arrays for at in pieces(len(array))):
        found = _greatest_divisor(values[values != 0].astype(np.float64))
        if found is None:
            return None
        most = max(most, float(np.abs(values).max(initial=0)))
        least = min(found[1], unit) if known else found[1]
        known = math.gcd(known << max(0, unit - least), found[0] << (found[1] - least))
        unit = least
        if most > most_multiple * math.ldexp(known, unit):
            return None
    step = math.ldexp(known, unit)
    return step if _LEAST_STEP < step < _MOST_STEP and most <= MOST_LOG_STD else None


def _greatest_divisor(values: NDArray[np.float64]) -> tuple[int, int] | None:
    """(d, e), d * 2^e the largest divisor of all values; None if their sizes are too different."""
    if not np.isfinite(values).all():
        return None
    if not len(values):
        return 0, 0
    fraction, exponent = np.frexp(np.abs(values))
    whole = np.ldexp(fraction, _DIGITS).astype(np.int64)
    zeros = np.log2(whole & -whole).astype(np.int64)
    power = exponent.astype(np.int64) - _DIGITS + zeros
    least = int(power.min())
    odd, shift = whole >> zeros, power - least
    if (np.frexp(odd.astype(np.float64))[1] + shift > _SHIFTED).any():
        return None
    return int(np.gcd.reduce(odd << shift)), least
