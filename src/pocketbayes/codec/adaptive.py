"""Integers to bytes, with statistics that coder and decoder both learn on the way.

Runs of integers (one for each tensor, say) are coded in growing blocks. Each block is coded by how
often its values occurred in the blocks before; a value that is new is an escape, and stands among
the literals. So no table of frequencies is stored, and none has to be trusted.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pocketbayes.codec.file_views import Data, cut, in_memory
from pocketbayes.codec.frequencies import NOTHING, counted, entropy_bytes, summed
from pocketbayes.codec.rans import PER_LANE, TOTAL, Decoder, Ids, Shares, blocks_of, encoded
from pocketbayes.codec.tokens import (
    ANY,
    MOST,
    Bounds,
    Integers,
    Lazy,
    Run,
    found,
    in_one_row,
    joined,
    narrow,
    pieces,
    split,
    within,
)
from pocketbayes.codec.varints import varints, varints_in
from pocketbayes.errors import FormatError

_SMALLEST_BLOCK, _LARGEST_BLOCK = 16, 1 << 19
_MOST_VALUES = 1 << 13
_REMEMBERED = 1 << 8  # what all former runs together weigh when a new one begins
_WIDEST = 1 << 16  # range of values that are looked up in a table
_FEW = 1 << 10  # numbers that are searched one by one
_LANES_SHARE = 0.001  # of the bytes, that may go into states of lanes
_MOST_LANES, _USUAL_LANES = 1 << 20, 1024
_PIECE = 1 << 16  # symbols that are coded at a time
_ZERO = np.zeros(1, np.int64)


class Statistics:
    """Which values were seen, and how often; `known` is in rising order."""

    def __init__(self) -> None:
        self.known, self._count = NOTHING
        self._new, self._size = 1, 1

    def begin_run(self) -> None:
        """Former runs become a hint of what is to come."""
        total = int(self._count.sum())
        if total > _REMEMBERED:
            count = self._count * _REMEMBERED // total
            self._keep(np.flatnonzero(count), count)

    def learn(self, values: Run) -> None:
        """Counts the values of one block."""
        known, count = summed((self.known, self._count), counted(values))
        self._new, self._size = len(known) - len(self.known), len(values)
        self.known, self._count = known, count
        if len(known) > _MOST_VALUES:
            most = np.argsort(-count, kind="stable")[:_MOST_VALUES]
            self._keep(np.sort(most), count)

    def _keep(self, which: NDArray[np.intp], count: Integers) -> None:
        self.known, self._count = self.known[which], count[which]

    def shares(self) -> Shares:
        """Expected frequencies of the known values and, last, of an escape."""
        total = int(self._count.sum())
        weight = np.empty(len(self._count) + 1, np.int64)
        weight[:-1], weight[-1] = self._count, 1 + self._new * total // (2 * self._size)
        return apportioned(weight).astype(np.uint32)


def numbered(values: Integers, known: Integers) -> tuple[Ids, NDArray[np.bool_]]:
    """The number of each value among the known, and which are none of them: escapes."""
    if len(known) == 0:
        ids = np.zeros(len(values), np.uint16)
    elif len(values) < _FEW or int(known[-1]) - int(known[0]) > _WIDEST:
        ids = known.searchsorted(values).astype(np.uint16)
        ids[known.take(ids, mode="clip") != values] = len(known)
    else:
        low = int(known[0]) - 1
        table = np.full(int(known[-1]) - low + 2, len(known), np.uint16)
        table[known.astype(np.int64) - low] = np.arange(len(known))
        ids = table.take(values.astype(np.int64) - low, mode="clip")
    return ids, ids == len(known)


def apportioned(weight: Integers) -> Integers:
    """Shares of 2^16 in proportion to these weights, by largest remainders; none is 0."""
    scaled, whole = weight * TOTAL, weight.sum()
    share: Integers = np.maximum(1, scaled // whole)
    missing = TOTAL - int(share.sum())
    if missing > 0:
        remainder = scaled - share * whole
        share[np.argsort(-remainder, kind="stable")[:missing]] += 1
    while missing < 0:
        largest = np.argsort(-share, kind="stable")[: min(-missing, int((share > 1).sum()))]
        share[largest] -= 1
        missing += len(largest)
    return share


class Coded(NamedTuple):
    """Bytes in pieces, to be taken once, the fewest that frequencies allow, and the nats lost."""

    pieces: Iterable[bytes | memoryview]
    size: int
    bound: float
    nats: float = 0.0

    @property
    def data(self) -> bytes:
        """The pieces in one."""
        return b"".join(self.pieces)


class Block(NamedTuple):
    """Values, and what was known and expected before they were seen."""

    values: Run
    known: Integers
    shares: Shares


def coded_integers(runs: Iterable[Run], smooth: bool = True) -> Coded:
    """All runs as bytes. Their lengths are not stored: the decoder must know them.

    Args:
        runs: integers below 2^52 whose frequencies may differ from run to run; each is taken once.
        smooth: near values are about as frequent, so that a few tokens do; labels are not so.
    """
    kept, extras, bound = _tokens(runs, smooth)
    lanes, literals = _lanes(sum(map(len, kept)), bound), list[Integers]()
    blocks = list(_blocks(kept, lanes))
    del kept  # so that every run goes with its first block, the last to be coded
    states, words = encoded(_symbols(blocks, lanes, literals), lanes)
    unknown = _in_varints(literals[::-1])
    head = np.array([lanes, sum(map(len, words)), len(unknown)], "<u4").tobytes()
    rows = (w.astype("<u4", copy=False).view(np.uint8).data for w in words)
    coded: list[bytes | memoryview] = [head, states.astype("<u8").tobytes()]
    coded += [*rows, unknown, *extras]
    return Coded(coded, sum(map(len, coded)), bound)


def _in_varints(rows: list[Integers]) -> bytes:
    row = np.concatenate(rows) if rows else np.empty(0, np.int64)
    return b"".join(varints(row[at]) for at in pieces(len(row)))


def _tokens(runs: Iterable[Run], smooth: bool) -> tuple[list[Run], list[bytes], float]:
    """What is coded of the runs, the bits that this leaves open, and the least bytes for all."""
    kept, extras, bound = list[Run](), list[bytes](), 0.0
    for run in runs:
        bound += entropy_bytes(run)
        if smooth:
            tokens, extra = split(found(run))
            kept.append(tokens)
            extras.append(extra)
        else:
            kept.append(run if isinstance(run, Lazy) else narrow(run))
    return kept, extras, bound


def _blocks(runs: Iterable[Run], lanes: int) -> Iterator[Block]:
    """What the decoder will know when it comes to each block."""
    statistics = Statistics()
    for run in runs:
        statistics.begin_run()
        for place in blocks_of(len(run), _block_sizes(lanes)):
            yield Block(run[place], narrow(statistics.known), statistics.shares())
            statistics.learn(run[place])


def _symbols(
    blocks: list[Block], lanes: int, literals: list[Integers]
) -> Iterator[tuple[Ids, Shares]]:
    """The symbols of all blocks, last ones first, in pieces; adds the literals in that order."""
    size = max(1, _PIECE // lanes) * lanes
    while blocks:
        values, known, shares = blocks.pop()
        for low in range((len(values) - 1) // size * size, -1, -size):
            piece = found(values[low : low + size])
            ids, new = numbered(piece, known)
            if new.any():
                literals.append(piece[new])
            yield ids, shares


class Reader:
    """Takes run after run out of the bytes that `coded_integers` made of them."""

    def __init__(self, data: Data, smooth: bool = True) -> None:
        self._decoder, self._literals, self._extras = _opened(data)
        self._statistics, self._smooth, self._at = Statistics(), smooth, 0

    def take(self, length: int, bounds: Bounds = ANY) -> Integers:
        """The next run, in as little memory as will do, if it stays within these bounds."""
        if not self._smooth:
            return in_one_row(within(self.blocks(length), bounds), length)
        run, self._extras = joined(in_one_row(self.blocks(length), length), self._extras, bounds)
        return run

    def blocks(self, length: int) -> Iterator[Integers]:
        """The next run, block by block; of what is smooth, its tokens."""
        self._decoder.require(length)
        self._statistics.begin_run()
        return map(self._block, blocks_of(length, _block_sizes(self._decoder.lanes)))

    def _block(self, place: slice) -> Integers:
        known = self._statistics.known
        ids = self._decoder.take(place.stop - place.start, self._statistics.shares())
        new = np.flatnonzero(ids == len(known))
        literals = self._literals[self._at : self._at + len(new)]
        if len(literals) < len(new):
            raise FormatError("its coded numbers lack literals")
        values = np.concatenate([known, _ZERO])[ids]
        values[new] = literals
        self._at += len(new)
        self._statistics.learn(values)
        return values

    def finish(self) -> None:
        """Checks what can be told only at the end: that nothing is left."""
        self._decoder.finish()
        if self._at != len(self._literals) or self._extras:
            raise FormatError("its coded numbers have literals or extra bits too many")


def decoded_integers(
    data: Data, lengths: Iterable[int], smooth: bool = True, bounds: Bounds = ANY
) -> Iterator[Integers]:
    """The runs again, one by one. The last is followed by a check of the end: take them all."""
    reader = Reader(data, smooth)
    for length in lengths:
        yield reader.take(length, bounds)
    reader.finish()


def _opened(data: Data) -> tuple[Decoder, Integers, memoryview]:
    """The decoder of some bytes, the literals behind it, and the extra bits behind those."""
    head, rest = cut(in_memory(data), 12)
    lanes, words, literals = (int(n) for n in np.frombuffer(head, "<u4"))
    if not 0 < lanes <= _MOST_LANES:
        raise FormatError("its coded numbers have no lane, or too many")
    states, rest = cut(rest, 8 * lanes)
    coded, rest = cut(rest, 4 * words)
    unknown, rest = cut(rest, literals)
    known = varints_in(unknown)
    if ((known <= -MOST) | (known >= MOST)).any():
        raise FormatError("a number is too large")
    return Decoder(np.frombuffer(states, "<u8"), np.frombuffer(coded, "<u4")), known, rest


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
