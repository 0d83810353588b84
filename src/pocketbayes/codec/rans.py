"""Asymmetric numeral systems (Duda 2013) in numpy: symbols to bytes at the cost of their entropy.

A coder has many lanes, each a state of its own; symbol i of a block goes through lane i mod lanes,
so that one numpy call codes one symbol of every lane. All arithmetic is of integers: the bytes are
the same on every platform, with every version of numpy.

    encode   x' = floor(x / f) 2^16 + (x mod f) + s      (f: frequency of the symbol, s: its start)
    decode   x  = f floor(x' / 2^16) + (x' mod 2^16) - s

Before a state would pass 2^63 its lower 32 bits go out as a word; a state below 2^31 takes one in.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from pocketbayes.errors import FormatError

PRECISION = 16
TOTAL = 1 << PRECISION
PER_LANE = 1 << 16  # symbols, at most: bytes that claim more are not decoded


def _constant(value: int, kind: type[np.integer]) -> NDArray[np.integer]:
    """As an array, which numpy takes up faster than a number: a step is a dozen short calls."""
    return np.array(value, kind)


_TOTAL, _WORD, _LOW = (_constant(n, np.uint64) for n in (TOTAL, 32, 1 << 31))
_ROOM = _constant(63 - PRECISION, np.uint64)
_SLOT, _SHIFT = _constant(TOTAL - 1, np.int64), _constant(PRECISION, np.int64)
_EMPTY, _REFILL = _constant(1 << 31, np.int64), _constant(32, np.int64)

Ids = NDArray[np.uint16]
Shares = NDArray[np.uint32]  # how often each symbol is expected, of 2^16; none is 0
States = NDArray[np.uint64]
Words = NDArray[np.uint32]
Signed = NDArray[np.int64]
_FEW_LANES, _MANY = 16, 1 << 11


def encoded(blocks: Iterable[tuple[Ids, Shares]], lanes: int) -> tuple[States, list[Words]]:
    """The last states of the lanes, and the words for `Decoder`, in pieces.

    Blocks come last one first, for what goes in last comes out first; they may be cut at multiples
    of the lanes.
    """
    states, words = np.full(lanes, _LOW), []
    push = _pushed if lanes > _FEW_LANES else _pushed_singly
    for ids, shares in blocks:
        words.append(push(states, ids, shares.astype(np.uint64)))
    return states, words[::-1]


def _pushed(states: States, ids: Ids, shares: NDArray[np.uint64]) -> Words:
    """Puts symbols into the states; the words that came out."""
    frequency, start, lanes = shares[ids], (np.cumsum(shares) - shares)[ids], len(states)
    limit, others = frequency << _ROOM, _TOTAL - frequency
    out, at = np.empty(len(ids), np.uint32), len(ids)
    for low in range((len(ids) - 1) // lanes * lanes, -1, -lanes):
        f = frequency[low : low + lanes]
        x = states[: len(f)]
        full = np.greater_equal(x, limit[low : low + lanes]).nonzero()[0]
        large = x[full]
        out[at - len(full) : at] = large  # the lower 32 bits of each
        at -= len(full)
        x[full] = np.right_shift(large, _WORD)
        quotient = x // f
        np.multiply(quotient, others[low : low + lanes], quotient)
        np.add(x, quotient, x)  # x - q f + q 2^16
        np.add(x, start[low : low + lanes], x)
    return out[at:].copy()


def _pushed_singly(states: States, ids: Ids, shares: NDArray[np.uint64]) -> Words:
    """The same without numpy, whose calls take long for a few numbers."""
    frequency, start = shares.tolist(), (np.cumsum(shares) - shares).tolist()
    lanes, words = states.tolist(), []
    for place, symbol in zip(range(len(ids) - 1, -1, -1), ids[::-1].tolist(), strict=True):
        x, f = lanes[place % len(lanes)], frequency[symbol]
        if x >= f << (63 - PRECISION):
            words.append(x & 0xFFFFFFFF)
            x >>= 32
        lanes[place % len(lanes)] = (x // f << PRECISION) + x % f + start[symbol]
    states[:] = lanes
    return np.array(words[::-1], np.uint32)


class Decoder:
    """Takes symbols out of states and words, block by block, in the order they were given in.

    Its states are signed: none passes 2^63, and numpy looks signed numbers up faster.
    """

    def __init__(self, states: States, words: Words) -> None:
        if (states < _LOW).any() or (states >> np.uint64(63)).any():
            raise FormatError("a coder's state is out of bounds")
        self._states, self._words, self._at = states.astype(np.int64), words, 0
        self.lanes, self._wanted = len(states), 0

    def require(self, count: int) -> None:
        """Refuses more symbols than the lanes may hold."""
        self._wanted += count
        if self._wanted > self.lanes * PER_LANE:
            raise FormatError("its coded numbers cannot be as many as it says")

    def take(self, count: int, shares: Shares) -> Ids:
        """The next symbols."""
        frequency = shares.astype(np.int64)
        start, words = frequency.cumsum() - frequency, self._words[self._at : self._at + count]
        pop = self._popped if self.lanes > _FEW_LANES else self._popped_singly
        ids, taken = pop(count, frequency, start, words.astype(np.int64))
        if taken > len(words):
            raise FormatError("its coded numbers end too early")
        self._at += taken
        return ids

    def _popped(
        self, count: int, frequency: Signed, start: Signed, words: Signed
    ) -> tuple[Ids, int]:
        """Symbols, and how many words these took; more than there are: they mean nothing."""
        symbol_of, ids, at = _looked_up(start, frequency, count), np.empty(count, np.uint16), 0
        for low in range(0, count, self.lanes):
            x = self._states[: count - low]
            slot = np.bitwise_and(x, _SLOT)
            symbol = symbol_of(slot)
            ids[low : low + len(x)] = symbol
            np.right_shift(x, _SHIFT, x)
            np.multiply(x, frequency.take(symbol, mode="clip"), x)
            np.add(x, slot, x)
            np.subtract(x, start.take(symbol, mode="clip"), x)
            empty = np.less(x, _EMPTY).nonzero()[0]
            begin, at = at, at + len(empty)
            if at > len(words):
                break
            x[empty] = np.left_shift(x[empty], _REFILL) | words[begin:at]
        return ids, at

    def _popped_singly(
        self, count: int, frequency: Signed, start: Signed, words: Signed
    ) -> tuple[Ids, int]:
        """The same without numpy, whose calls take long for a few numbers."""
        lanes, starts, frequencies = self._states.tolist(), start.tolist(), frequency.tolist()
        ids, coming = [], iter(words.tolist())
        taken = 0
        for place in range(count):
            x = lanes[place % len(lanes)]
            slot = x & (TOTAL - 1)
            symbol = bisect_right(starts, slot) - 1
            ids.append(symbol)
            x = frequencies[symbol] * (x >> PRECISION) + slot - starts[symbol]
            if x < 1 << 31:
                taken += 1
                x = x << 32 | next(coming, 0)
            lanes[place % len(lanes)] = x
        self._states[:] = lanes
        return np.array(ids, np.uint16), taken

    def finish(self) -> None:
        """Checks that all went in as it came out: nothing is left, every lane at its beginning."""
        if self._at != len(self._words) or (self._states != 1 << 31).any():
            raise FormatError("its coded numbers do not end where they should")


def _looked_up(start: Signed, frequency: Signed, count: int) -> Callable[[Signed], Signed]:
    """Which symbols slots belong to; a table of all slots pays for many numbers only."""
    if count < _MANY:
        return lambda slot: start.searchsorted(slot, side="right") - 1
    by_slot = np.repeat(np.arange(len(start)), frequency)
    return lambda slot: by_slot.take(slot, mode="clip")


def blocks_of(count: int, sizes: Iterable[int]) -> Iterable[slice]:
    """Slices of these sizes, the last one shorter, that cover `count` symbols."""
    low = 0
    for size in sizes:
        if low >= count:
            return
        yield slice(low, min(low + size, count))
        low += size
