"""Integers to bytes, with statistics that coder and decoder both learn on the way.

Runs of integers (one for each tensor, say) are coded in growing blocks. Each block is coded by how
often its values occurred in the blocks before; a value that is new is an escape, and stands among
the literals. So no table of frequencies is stored, and none has to be trusted.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pocketbayes.codec.rans import (
    PER_LANE,
    TOTAL,
    Decoder,
    Frequencies,
    Ids,
    Numbers,
    blocks_of,
    encoded,
)
from pocketbayes.codec.tokens import (
    MOST,
    Integers,
    Tokens,
    bits_in,
    bytes_for,
    packed_bits,
    tokens_of,
    values_of,
    widths_of,
)
from pocketbayes.codec.varints import varints, varints_in
from pocketbayes.errors import FormatError

_SMALLEST_BLOCK, _LARGEST_BLOCK = 16, 1 << 19
_MOST_VALUES = 1 << 13
_REMEMBERED = 1 << 8  # what all former runs together weigh when a new one begins
_WIDEST = 1 << 16  # range of values that are counted in a table
_LANES_SHARE = 0.001  # of the bytes, that may go into states of lanes
_MOST_LANES, _USUAL_LANES = 1 << 20, 1024


class Statistics:
    """Which values were seen, and how often; `known` is in rising order."""

    def __init__(self) -> None:
        self.known: Integers = np.empty(0, np.int64)
        self._count: Integers = np.empty(0, np.int64)
        self._new, self._size = 1, 1

    def begin_run(self) -> None:
        """Former runs become a hint of what is to come."""
        total = int(self._count.sum())
        if total > _REMEMBERED:
            count = self._count * _REMEMBERED // total
            self._keep(np.flatnonzero(count), count)

    def learn(self, values: Integers) -> None:
        """Counts the values of one block."""
        seen, times = counted(values)
        known = np.union1d(self.known, seen)
        count = np.zeros(len(known), np.int64)
        count[np.searchsorted(known, self.known)] = self._count
        count[np.searchsorted(known, seen)] += times
        self._new, self._size = len(known) - len(self.known), len(values)
        self.known = known
        most = np.argsort(-count, kind="stable")[:_MOST_VALUES]
        self._keep(np.sort(most), count)

    def _keep(self, which: NDArray[np.intp], count: Integers) -> None:
        self.known, self._count = self.known[which], count[which]

    def ids(self, values: Integers) -> tuple[Ids, NDArray[np.bool_]]:
        """The number of each value among the known, and which are none of them: escapes."""
        ids = self._places(values)
        new = np.append(self.known, 0)[ids] != values
        new |= ids == len(self.known)
        ids[new] = len(self.known)
        return ids, new

    def _places(self, values: Integers) -> Ids:
        """The place of each value among the known, if it is one of them; else some place."""
        if len(self.known) == 0 or self.known[-1] - self.known[0] > _WIDEST:
            return np.searchsorted(self.known, values).astype(np.uint16)
        table = np.full(self.known[-1] - self.known[0] + 3, len(self.known), np.uint16)
        table[self.known - self.known[0] + 1] = np.arange(len(self.known))
        found: Ids = table[np.clip(values - self.known[0] + 1, 0, len(table) - 1)]
        return found

    def values(self, ids: Ids) -> tuple[Integers, NDArray[np.intp]]:
        """The value of each number, and the places of escapes, whose values mean nothing."""
        return np.append(self.known, 0)[ids], np.flatnonzero(ids == len(self.known))

    def frequencies(self) -> Frequencies:
        """Of the known values and, last, of an escape."""
        total = int(self._count.sum())
        escape = 1 + self._new * total // (2 * self._size)
        return Frequencies.of(apportioned(np.append(self._count, escape)))


def apportioned(weight: Integers) -> Integers:
    """Shares of 2^16 in proportion to these weights, by largest remainders; none is 0."""
    scaled = weight * TOTAL
    share: Integers = np.maximum(1, scaled // weight.sum())
    missing = TOTAL - int(share.sum())
    if missing > 0:
        remainder = scaled - share * weight.sum()
        share[np.argsort(-remainder, kind="stable")[:missing]] += 1
    while missing < 0:
        largest = np.argsort(-share, kind="stable")[: min(-missing, int((share > 1).sum()))]
        share[largest] -= 1
        missing += len(largest)
    return share


class Coded(NamedTuple):
    """What becomes of integers: bytes, and the least that their frequencies would have allowed."""

    data: bytes
    bound: float


def coded_integers(runs: Iterable[Integers], smooth: bool = True) -> Coded:
    """All runs as bytes. Their lengths are not stored: the decoder must know them.

    Args:
        runs: integers below 2^52 whose frequencies may differ from run to run.
        smooth: near values are about as frequent, so that a few tokens do; labels are not so.
    """
    runs = list(runs)
    bound = sum(entropy_bytes(run) for run in runs)
    lanes = _lanes(sum(map(len, runs)), bound)
    statistics, literals, extras = Statistics(), [np.empty(0, np.int64)], b""
    blocks: list[tuple[Ids, Frequencies]] = []
    for run in runs:
        statistics.begin_run()
        if smooth:
            run, width, extra = tokens_of(run)
            extras += packed_bits(extra, width)
        for block in blocks_of(len(run), _block_sizes(lanes)):
            ids, new = statistics.ids(run[block])
            literals.append(run[block][new])
            blocks.append((ids, statistics.frequencies()))
            statistics.learn(run[block])
    unknown = varints(np.concatenate(literals))
    return Coded(_joined(encoded(blocks, lanes), unknown, extras), bound)


def _joined(coded: tuple[Numbers, Numbers], literals: bytes, extras: bytes) -> bytes:
    states, words = coded
    head = np.array([len(states), len(words), len(literals)], "<u4").tobytes()
    return head + states.astype("<u8").tobytes() + words.astype("<u4").tobytes() + literals + extras


def decoded_integers(
    data: bytes, lengths: Iterable[int], smooth: bool = True
) -> Iterator[Integers]:
    """The runs again, one by one, if the bytes are what `coded_integers` makes of them.

    What can be told only at the end is told after the last run: take them all.
    """
    decoder, literals, extras = _opened(data)
    statistics, at = Statistics(), 0
    for length in lengths:
        decoder.require(length)
        statistics.begin_run()
        run: Integers = np.empty(length, np.int32)  # wider only where it must be
        for block in blocks_of(length, _block_sizes(decoder.lanes)):
            ids = decoder.take(block.stop - block.start, statistics.frequencies())
            values, new = statistics.values(ids)
            if at + len(new) > len(literals):
                raise FormatError("its coded numbers lack literals")
            values[new] = literals[at : at + len(new)]
            if run.dtype != np.int64 and np.abs(values).max() >= 1 << 31:
                run = run.astype(np.int64)
            run[block], at = values, at + len(new)
            statistics.learn(values)
        if smooth:
            width = widths_of(run)
            here, extras = cut(extras, bytes_for(width))
            run = values_of(Tokens(run, width, bits_in(here, width)))
        yield run
    decoder.finish()
    if at != len(literals) or extras:
        raise FormatError("its coded numbers have literals or extra bits too many")


def _opened(data: bytes) -> tuple[Decoder, Integers, memoryview]:
    """The decoder of some bytes, the literals behind it, and the extra bits behind those."""
    head, rest = cut(memoryview(data), 12)
    lanes, words, literals = (int(n) for n in np.frombuffer(head, "<u4"))
    if not 0 < lanes <= _MOST_LANES:
        raise FormatError("its coded numbers have no lane, or too many")
    states, rest = cut(rest, 8 * lanes)
    coded, rest = cut(rest, 4 * words)
    unknown, rest = cut(rest, literals)
    numbers = (np.frombuffer(states, "<u8"), np.frombuffer(coded, "<u4"))
    known = varints_in(unknown)
    if ((known <= -MOST) | (known >= MOST)).any():
        raise FormatError("a number is too large")
    return Decoder(*(n.astype(np.uint64) for n in numbers)), known, rest


def cut(data: memoryview, size: int) -> tuple[memoryview, memoryview]:
    """The first bytes, and the others."""
    if len(data) < size:
        raise FormatError("its coded numbers are cut short")
    return data[:size], data[size:]


def entropy_bytes(run: NDArray[np.integer]) -> float:
    """n H / 8: the least bytes for a run in which each value is as frequent as it is here."""
    times = counted(run)[1]
    return float((times * np.log2(len(run) / times)).sum()) / 8 if len(run) else 0.0


def counted(values: NDArray[np.integer]) -> tuple[Integers, Integers]:
    """The distinct values, rising, and how often each occurs."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if high - low > _WIDEST:
        return np.unique(values, return_counts=True)
    times = np.bincount(values.astype(np.int64, copy=False) - low)
    there = np.flatnonzero(times)
    return there + low, times[there]


def _lanes(count: int, bound: float) -> int:
    """As many as a small share of the bytes pays for; more make it faster."""
    least = -(-count // PER_LANE)
    return max(1, least, min(_USUAL_LANES, int(bound * _LANES_SHARE / 8)))


def _block_sizes(lanes: int) -> Iterator[int]:
    """Sizes that grow by half, all of them multiples of the lanes."""
    size = _SMALLEST_BLOCK
    while True:
        yield -(-size // lanes) * lanes
        size = min(_LARGEST_BLOCK, size * 3 // 2)
