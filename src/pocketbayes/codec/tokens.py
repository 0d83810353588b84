"""Integers as tokens and extra bits: large ones by their leading bits, the rest as it is.

Magnitudes below 16 are tokens of their own; above, eight tokens share the way to the next power of
two. Where a distribution is smooth, the bits below are as good as uniform, and few tokens learn
its shape from few numbers.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pocketbayes.errors import FormatError

Integers = NDArray[np.int64]

MOST = 1 << 52  # larger integers are not exact as floats
_DIRECT, _LEADING = 4, 3  # bits
_MOST = (1 << _DIRECT) + ((52 - _DIRECT) << _LEADING)


class Tokens(NamedTuple):
    """Signed tokens, and for each the number and the value of the bits that it leaves open."""

    token: Integers
    width: NDArray[np.uint8]
    extra: Integers


def tokens_of(values: Integers) -> Tokens:
    """Splits integers below 2^52."""
    size = np.abs(values.astype(np.int64))
    large = size >= 1 << _DIRECT
    token, width, extra = size.copy(), np.zeros(len(size), np.uint8), np.zeros_like(size)
    big = size[large]
    exponent = np.frexp(big.astype(np.float64))[1].astype(np.int64) - 1
    open_bits = exponent - _LEADING
    leading = (big >> open_bits) - (1 << _LEADING)
    token[large] = (1 << _DIRECT) + ((exponent - _DIRECT) << _LEADING) + leading
    width[large], extra[large] = open_bits, big & ((1 << open_bits) - 1)
    return Tokens(np.where(values < 0, -token, token), width, extra)


def widths_of(token: Integers) -> NDArray[np.uint8]:
    """How many bits each token leaves open."""
    above = np.abs(token) - (1 << _DIRECT)
    if len(above) and int(above.max()) >= _MOST - (1 << _DIRECT):
        raise FormatError("a number is too large")
    return np.where(above < 0, 0, (above >> _LEADING) + _DIRECT - _LEADING).astype(np.uint8)


def values_of(tokens: Tokens) -> Integers:
    """The integers again."""
    size = np.abs(tokens.token)
    leading = (size & ((1 << _LEADING) - 1)) + (1 << _LEADING)  # 2^_DIRECT is a multiple of it
    whole = (leading << tokens.width.astype(np.int64)) + tokens.extra
    size = np.where(size < 1 << _DIRECT, size, whole)
    return np.where(tokens.token < 0, -size, size)


def packed_bits(values: Integers, width: NDArray[np.uint8]) -> bytes:
    """The lowest bits of each value, one after the other, highest first."""
    if not width.any():
        return b""
    low = np.repeat(np.cumsum(width, dtype=np.int64), width)  # behind each one's last bit
    place = low - 1 - np.arange(len(low))
    return np.packbits((np.repeat(values, width) >> place & 1).astype(np.uint8)).tobytes()


def bytes_for(width: NDArray[np.uint8]) -> int:
    """Bytes that values of these widths take."""
    return -(-int(width.sum(dtype=np.int64)) // 8)


def bits_in(data: bytes | memoryview, width: NDArray[np.uint8]) -> Integers:
    """The values that were packed with these widths into these bytes."""
    total = int(width.sum(dtype=np.int64))
    bits = np.unpackbits(np.frombuffer(data, np.uint8), count=total).astype(np.int64)
    end = np.cumsum(width, dtype=np.int64)
    place = np.repeat(end, width) - 1 - np.arange(total)
    values = np.zeros(len(width), np.int64)
    some = np.flatnonzero(width)
    if len(some):
        values[some] = np.add.reduceat(bits << place, (end - width)[some])
    return values
