"""Floats to integers and back, so that a posterior changes by no more than a given KL.

The file's N(m', s'^2) in place of N(m, s^2), with d = log(s' / s) and e = (m - m') / s', costs

    KL = d + (exp(-2 d) - 1) / 2 + e^2 / 2  nats for each weight.

Half of the tolerance goes to the log-stds, in steps of `log_std_step`, the other half to the means,
in steps of `mean_step` of the weight's own std. All results are those of IEEE arithmetic, and
exponentials come from decimal arithmetic: the same integers on every platform.
"""

import math
from decimal import Context, Decimal
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pocketbayes.codec.adaptive import counted
from pocketbayes.codec.tokens import MOST, Integers, largest
from pocketbayes.errors import FormatError

Floats = NDArray[np.floating]
MOST_LOG_STD = 600.0
_PRODUCT, _DIGITS = Context(prec=28), Context(prec=25)  # the caller's own may be any
_WIDEST = 1 << 8  # range of multiples that are looked up in a table


def log_std_step(tolerance: float) -> float:
    """The step h with h/2 from the truth at most: (exp(h) - 1 - h) / 2 = tolerance / 2."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if math.expm1(middle) - middle < tolerance else (low, middle)
    return _rounded(low)


def mean_step(tolerance: float) -> float:
    """The step h, in stds, with (h/2)^2 / 2 = tolerance / 2."""
    return _rounded(2 * math.sqrt(tolerance))


def log_odds_step(tolerance: float) -> float:
    """The step h of log-odds: KL of two inclusion variables <= (h/2)^2 / 8 = tolerance."""
    return _rounded(math.sqrt(32 * tolerance))


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
