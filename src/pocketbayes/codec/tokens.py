"""Integers as tokens and extra bits: large ones by their leading bits, the rest as it is.

Magnitudes below 16 are tokens of their own; above, eight tokens share the way to the next power of
two. Where a distribution is smooth, the bits below are as good as uniform, and few tokens learn
its shape from few numbers.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
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
_TABLED = 1 << 12  # magnitudes whose tokens are looked up
_ONE, _SIX, _LAST_OF_64, _64 = (np.array(n, np.uint64) for n in (1, 6, 63, 64))
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
    if largest(values) >= _TABLED:
        return _split(values)
    place = np.add(values, _TABLED, dtype=np.intp)
    token, width, extra = _small_tokens()
    return Tokens(token.take(place), width.take(place), extra.take(place))


def _split(values: Integers) -> Tokens:
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


@lru_cache(maxsize=1)
def _small_tokens() -> Tokens:
    """Of all integers from -_TABLED on."""
    token, width, extra = _split(np.arange(-_TABLED, _TABLED))
    return Tokens(narrow(token), width, extra)


@lru_cache(maxsize=1)
def _widths_and_bases() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Of all tokens: the bits that each leaves open, and the integer whose open bits are zeros."""
    token = np.arange(1 - _MOST, _MOST)
    size = np.abs(token)
    above = size - (1 << _DIRECT)
    width = np.where(above < 0, 0, (above >> _LEADING) + _DIRECT - _LEADING)
    leading = (size & ((1 << _LEADING) - 1)) + (1 << _LEADING)  # 2^_DIRECT is a multiple of it
    base = np.where(above < 0, size, leading << width)
    return width.astype(np.uint8), np.where(token < 0, -base, base)


def widths_of(token: Integers) -> NDArray[np.uint8]:
    """How many bits each token leaves open."""
    if largest(token) >= _MOST:
        raise FormatError("a number is too large")
    return _widths_and_bases()[0].take(np.add(token, _MOST - 1, dtype=np.intp))


def values_of(tokens: Tokens) -> Integers:
    """The integers again."""
    base = _widths_and_bases()[1].take(np.add(tokens.token, _MOST - 1, dtype=np.intp))
    return np.where(tokens.token < 0, base - tokens.extra, base + tokens.extra)


def packed_bits(values: Integers, width: NDArray[np.uint8], skip: int) -> NDArray[np.uint8]:
    """The lowest bits of each value, one after the other, highest first, behind `skip` zeros."""
    end = skip + np.cumsum(width, dtype=np.int64)
    some = np.flatnonzero(width)
    if len(some) == 0:
        return np.zeros(-(-skip // 8), np.uint8)
    end, width = end[some], width[some].astype(np.uint64)
    begin = end.astype(np.uint64) - width
    word, within_word = (begin >> _SIX).astype(np.intp), begin & _LAST_OF_64
    high = values[some].astype(np.uint64) << (_64 - width)
    first = np.flatnonzero(np.diff(word, prepend=-1))
    words = np.zeros(int(end[-1]) // 64 + 2, np.uint64)
    words[word[first]] = np.bitwise_or.reduceat(high >> within_word, first)
    over = (high << _ONE) << (_LAST_OF_64 - within_word)  # what the next word takes, of one a word
    spilt = np.flatnonzero(over)
    words[word[spilt] + 1] |= over[spilt]
    return words.astype(">u8").view(np.uint8)[: -(-int(end[-1]) // 8)]


def values_in(data: bytes | memoryview, skip: int, width: NDArray[np.uint8]) -> Integers:
    """The values that have these bits, the first ones behind `skip` others."""
    row = np.zeros(len(data) + 8, np.uint8)
    row[: len(data)] = np.frombuffer(data, np.uint8)
    words = np.lib.stride_tricks.sliding_window_view(row, 8).copy().view(">u8")[:, 0]
    begin = np.cumsum(width, dtype=np.int64) + (skip - width.astype(np.int64))
    found = words.astype(np.uint64).take(begin >> 3) << (begin & 7).astype(np.uint64)
    return (found >> (_LAST_OF_64 - width) >> _ONE).astype(np.int64)  # none of 64 bits for width 0


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
    whole, count = bytearray(), 0

    def tokens() -> Iterator[Integers]:
        nonlocal count
        for piece in pieces(len(run)):
            token, width, extra = tokens_of(run[piece])
            bits = packed_bits(extra, width, count % 8)
            if count % 8:
                whole[-1] |= int(bits[0])
            whole.extend(bits[count % 8 > 0 :].data)
            count += int(width.sum(dtype=np.int64))
            yield token

    return in_one_row(tokens(), len(run)), bytes(whole)


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
            extra = values_in(data[begin // 8 : -(-at // 8)], begin % 8, width)
            yield values_of(Tokens(run[piece], width, extra))

    row = in_one_row(within(values(), bounds), len(run))
    return row, data[-(-at // 8) :]
