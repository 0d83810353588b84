"""Asymmetric numeral systems (Duda 2013) in numpy: symbols to bytes at the cost of their entropy.

A coder has many lanes, each a 64-bit state of its own; symbol i of a block goes through lane
i mod lanes, so that one numpy call codes one symbol of every lane. All arithmetic is of integers:
the bytes are the same on every platform, with every version of numpy.

    encode   x' = floor(x / f) 2^16 + (x mod f) + s      (f: frequency of the symbol, s: its start)
    decode   x  = f floor(x' / 2^16) + (x' mod 2^16) - s

Before a state would pass 2^63 its lower 32 bits go out as a word; a state below 2^31 takes one in.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pocketbayes.errors import FormatError

PRECISION = 16
TOTAL = 1 << PRECISION
_FIRST = 1 << 31
_BITS, _WORD, _LOW = np.uint64(PRECISION), np.uint64(32), np.uint64(_FIRST)
_ROOM = np.uint64(63 - PRECISION)
_SLOT, _LOWER = np.uint64(TOTAL - 1), np.uint64(0xFFFFFFFF)

Ids = NDArray[np.integer]
PER_LANE = 1 << 16  # symbols, at most: bytes that claim more are not decoded
Numbers = NDArray[np.uint64]


class Frequencies(NamedTuple):
    """How often each symbol is expected, of 2^16; none is 0, and starts are their running sums."""

    frequency: Numbers
    start: Numbers

    @classmethod
    def of(cls, frequency: NDArray[np.int64]) -> "Frequencies":
        """With the running sums, which must end at 2^16."""
        ends = np.cumsum(frequency)
        return cls(frequency.astype(np.uint64), (ends - frequency).astype(np.uint64))

    def slots(self) -> Ids:
        """The symbol of each of the 2^16 slots."""
        return np.repeat(
            np.arange(len(self.frequency), dtype=np.uint16), self.frequency.astype(np.int64)
        )


def encoded(blocks: Sequence[tuple[Ids, Frequencies]], lanes: int) -> tuple[Numbers, Numbers]:
    """Last states and words, in the order in which `Decoder` takes them."""
    states, words = np.full(lanes, _LOW), []
    for ids, table in reversed(blocks):
        frequency, start = table.frequency[ids], table.start[ids]
        for low in range((len(ids) - 1) // lanes * lanes, -1, -lanes):
            f, s = frequency[low : low + lanes], start[low : low + lanes]
            x = states[: len(f)]
            full = x >= f << _ROOM
            if full.any():
                words.append((x[full] & _LOWER)[::-1])
                x = np.where(full, x >> _WORD, x)
            quotient = x // f
            states[: len(f)] = (quotient << _BITS) + (x - quotient * f) + s
    joined = np.concatenate(words)[::-1] if words else np.empty(0, np.uint64)
    return states, joined


class Decoder:
    """Takes symbols out of states and words, block by block, in the order they were given in."""

    def __init__(self, states: Numbers, words: Numbers) -> None:
        if (states < _LOW).any() or (states >> np.uint64(63)).any():
            raise FormatError("a coder's state is out of bounds")
        self._states, self._words, self._at = states.copy(), words, 0
        self.lanes, self._wanted = len(states), 0

    def require(self, count: int) -> None:
        """Refuses more symbols than the lanes may hold."""
        self._wanted += count
        if self._wanted > len(self._states) * PER_LANE:
            raise FormatError("its coded numbers cannot be as many as it says")

    def take(self, count: int, table: Frequencies) -> Ids:
        """The next symbols."""
        slots, ids = table.slots(), np.empty(count, np.uint16)
        for low in range(0, count, self.lanes):
            x = self._states[: count - low]
            slot = x & _SLOT
            found = slots[slot]
            ids[low : low + len(x)] = found
            x = table.frequency[found] * (x >> _BITS) + slot - table.start[found]
            self._refill(x)
            self._states[: len(x)] = x
        return ids

    def _refill(self, x: Numbers) -> None:
        low = x < _LOW
        wanted = int(np.count_nonzero(low))
        if wanted:
            words = self._words[self._at : self._at + wanted]
            if len(words) < wanted:
                raise FormatError("its coded numbers end too early")
            x[low] = (x[low] << _WORD) | words
            self._at += wanted

    def finish(self) -> None:
        """Checks that all went in as it came out: nothing is left, every lane at its beginning."""
        if self._at != len(self._words) or (self._states != _LOW).any():
            raise FormatError("its coded numbers do not end where they should")


def blocks_of(count: int, sizes: Iterable[int]) -> Iterable[slice]:
    """Slices of these sizes, the last one shorter, that cover `count` symbols."""
    low = 0
    for size in sizes:
        if low >= count:
            return
        yield slice(low, min(low + size, count))
        low += size
