"""Integers as tokens and extra bits: large ones by their leading bits, the rest as it is.

Magnitudes below 16 are tokens of their own; above, eight tokens share the way to the next power of
two. Where a distribution is smooth, the bits below are as good as uniform, and few tokens learn
its shape from few numbers.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pocketbayes.errors import FormatError

Integers = NDArray[np.integer]

MOST = 1 << 52  # larger integers are not exact as floats
Bounds = tuple[int, int]
ANY: Bounds = (-MOST, MOST)
_DIRECT, _LEADING = 4, 3  # bits
_MOST = (1 << _DIRECT) + ((52 - _DIRECT) << _LEADING)
_PIECE = 1 << 16
_KINDS = tuple(
    (np.dtype(kind), np.dtype(kind).itemsize, int(np.iinfo(kind).max))
    for kind in (np.int8, np.int16, np.int32)
)


def pieces(count: int, times: int = 1) -> Iterator[slice]:
    """Places in short rows, so that what is calculated on the way takes little memory."""
    size = times * _PIECE
    return (slice(low, low + size) for low in range(0, count, size))


def largest(values: Integers) -> int:
    """The largest magnitude; of the smallest number of a type, too, which numpy's `abs` spares."""
    return max(-int(values.min()), int(values.max())) if len(values) else 0


def narrow(values: Integers) -> Integers:
    """The same integers in as little memory as will do."""
    if values.itemsize == 1:
        return values
    most = largest(values)
    for kind, size, bound in _KINDS:
        if most <= bound and values.itemsize > size:
            return values.astype(kind)
    return values


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
    above = np.abs(token.astype(np.int64)) - (1 << _DIRECT)
    if len(above) and int(above.max()) >= _MOST - (1 << _DIRECT):
        raise FormatError("a number is too large")
    return np.where(above < 0, 0, (above >> _LEADING) + _DIRECT - _LEADING).astype(np.uint8)


def values_of(tokens: Tokens) -> Integers:
    """The integers again."""
    token = tokens.token.astype(np.int64)
    size = np.abs(token)
    leading = (size & ((1 << _LEADING) - 1)) + (1 << _LEADING)  # 2^_DIRECT is a multiple of it
    whole = (leading << tokens.width.astype(np.int64)) + tokens.extra
    size = np.where(size < 1 << _DIRECT, size, whole)
    return np.where(token < 0, -size, size)


def bits_of(values: Integers, width: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The lowest bits of each value, one after the other, highest first."""
    low = np.repeat(np.cumsum(width, dtype=np.int64), width)  # behind each one's last bit
    place = low - 1 - np.arange(len(low))
    return (np.repeat(values, width) >> place & 1).astype(np.uint8)


def values_in(bits: NDArray[np.uint8], width: NDArray[np.uint8]) -> Integers:
    """The values that have these bits."""
    end = np.cumsum(width, dtype=np.int64)
    place = np.repeat(end, width) - 1 - np.arange(len(bits))
    values = np.zeros(len(width), np.int64)
    some = np.flatnonzero(width)
    if len(some):
        values[some] = np.add.reduceat(bits.astype(np.int64) << place, (end - width)[some])
    return values


def in_one_row(rows: Iterable[Integers], count: int) -> Integers:
    """One row after the other, `count` integers in all, in as little memory as will do."""
    whole, at = np.empty(count, np.int8), 0
    for row in map(narrow, rows):
        kind = np.promote_types(whole.dtype, row.dtype) if at else row.dtype
        whole = whole.astype(kind, copy=False)
        whole[at : at + len(row)] = row
        at += len(row)
    return whole


class Lazy:
    """A row of integers that are found when they are asked for: parts of it, in short rows."""

    def __init__(self, part: Callable[[int, int], Integers], begin: int, end: int) -> None:
        self._part, self._begin, self._end = part, begin, end
        self.counts: tuple[Integers, Integers] | None = None  # of each value, once they are known

    def __len__(self) -> int:
        return self._end - self._begin

    def __getitem__(self, at: slice) -> "Lazy":
        begin, end, _ = at.indices(len(self))
        return Lazy(self._part, self._begin + begin, self._begin + end)

    def rows(self) -> Iterator[Integers]:
        """The integers, a few at a time."""
        for low in range(self._begin, self._end, _PIECE):
            yield self._part(low, min(low + _PIECE, self._end))


Run = Integers | Lazy


def found(run: Run) -> Integers:
    """The integers of a run."""
    return in_one_row(run.rows(), len(run)) if isinstance(run, Lazy) else run


def in_bytes(rows: Iterable[Integers], count: int, least: int) -> Lazy:
    """The same of integers that are at most 255 above the least, with a byte for each."""
    above, at = np.empty(count, np.uint8), 0
    for row in rows:
        np.subtract(row, least, above[at : at + len(row)], casting="unsafe")
        at += len(row)
    return Lazy(lambda begin, end: above[begin:end] + np.int64(least), 0, count)


def split(run: Integers) -> tuple[Integers, bytes]:
    """The tokens of a run, and the bits that they leave open, in whole bytes."""
    bits = [np.empty(0, np.uint8)]

    def tokens() -> Iterator[Integers]:
        for piece in pieces(len(run)):
            token, width, extra = tokens_of(run[piece])
            bits.append(bits_of(extra, width))
            yield token

    row = in_one_row(tokens(), len(run))
    return row, np.packbits(np.concatenate(bits)).tobytes()


def within(rows: Iterable[Integers], bounds: Bounds) -> Iterator[Integers]:
    """The rows, if all of them are: one large number would make all others as wide."""
    least, most = bounds
    for row in rows:
        if len(row) and not least <= int(row.min()) <= int(row.max()) <= most:
            raise FormatError("a number does not fit its type")
        yield row


def joined(run: Integers, data: memoryview, bounds: Bounds = ANY) -> tuple[Integers, memoryview]:
    """The integers of a run of tokens, whose open bits stand first here, and the other bytes."""
    at = 0

    def values() -> Iterator[Integers]:
        nonlocal at
        for piece in pieces(len(run)):
            width = widths_of(run[piece])
            begin, at = at, at + int(width.sum(dtype=np.int64))
            if at > 8 * len(data):
                raise FormatError("its coded numbers are cut short")
            bits = np.unpackbits(np.frombuffer(data[begin // 8 : -(-at // 8)], np.uint8))
            extra = values_in(bits[begin % 8 : begin % 8 + at - begin], width)
            yield values_of(Tokens(run[piece], width, extra))

    row = in_one_row(within(values(), bounds), len(run))
    return row, data[-(-at // 8) :]
