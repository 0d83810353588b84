"""What is asked, checked: arrays of numbers, whole numbers, levels."""

import math
import operator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pocketbayes_lite.errors import LiteError

_NUMBERS = "biufO"  # kinds of types that turn into float32 without being misread


def as_numbers(x: ArrayLike, what: str) -> NDArray[np.float32]:
    """The same as float32, in one piece; all are finite."""
    try:
        given = np.asanyarray(x)
        if given.dtype.kind not in _NUMBERS:
            raise TypeError(f"its type is {given.dtype}; pass real numbers")
        if np.ma.is_masked(given):
            raise TypeError("some of it is masked: fill that in, as in training")
        with np.errstate(all="ignore"):  # what is too large becomes infinite, which is refused
            made = np.ascontiguousarray(given, np.float32).reshape(given.shape)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise LiteError(f"{what} is no array of numbers: {error}") from error
    if not np.isfinite(made).all():
        raise LiteError(f"a number of {what} is NaN or infinite")
    return made


def require_whole(value: Any, name: str, least: int, most: int) -> int:
    """A whole number between these, of Python or of numpy."""
    try:
        found = None if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        found = None
    if found is None or not least <= found <= most:
        end = "2^64 - 1" if most == 2**64 - 1 else f"{most:,}"
        raise LiteError(f"{name} must be a whole number from {least} to {end}; got {value!r}")
    return found


def require_level(level: object) -> float:
    """A share between 0 and 1, of Python or of numpy."""
    if isinstance(level, float | np.floating) and math.isfinite(level) and 0 < level < 1:
        return float(level)
    raise LiteError(f"level must be a number between 0 and 1; got {level!r}")
