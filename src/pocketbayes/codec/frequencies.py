"""How often values occur in runs of integers, and the bytes that this allows."""

from functools import reduce

import numpy as np

from pocketbayes.codec.tokens import Integers, Lazy, Run, pieces

_WIDEST = 1 << 16  # range of values that are counted in a table
_NARROW = 1 << 12  # the same of few values
Counts = tuple[Integers, Integers]  # distinct values, rising, and how often each occurs
NOTHING: Counts = (np.empty(0, np.int64), np.empty(0, np.int64))


def entropy_bytes(run: Run) -> float:
    """n H / 8: the least bytes for a run in which each value is as frequent as it is here."""
    times = counted(run)[1]
    return float((times * np.log2(len(run) / times)).sum()) / 8 if len(run) else 0.0


def counted(values: Run) -> Counts:
    """The distinct values, rising, and how often each occurs."""
    if isinstance(values, Lazy):
        values.counts = values.counts or reduce(summed, map(counted, values.rows()), NOTHING)
        return values.counts
    if len(values) == 0:
        return NOTHING
    low, high = int(values.min()), int(values.max())
    if high - low > _WIDEST:
        return np.unique(values, return_counts=True)
    rows = (np.subtract(values[at], low, dtype=np.int64) for at in pieces(len(values)))
    counts = (np.bincount(row, minlength=high - low + 1) for row in rows)
    times = sum(counts, np.zeros(high - low + 1, np.int64))
    there = times.nonzero()[0]
    return there + low, times[there]


def summed(these: Counts, those: Counts) -> Counts:
    """The values of both, rising, and how often each occurs in the two."""
    if not (len(these[0]) and len(those[0])):
        return these if len(these[0]) else those
    low = min(int(these[0][0]), int(those[0][0]))
    width = max(int(these[0][-1]), int(those[0][-1])) - low + 1
    if width > _NARROW:
        seen, place = np.unique(np.concatenate([these[0], those[0]]), return_inverse=True)
        times = np.zeros(len(seen), np.int64)
        np.add.at(times, place, np.concatenate([these[1], those[1]]))
        return seen, times
    times = np.zeros(width, np.int64)
    times[these[0] - low] = these[1]
    times[those[0] - low] += those[1]
    there = times.nonzero()[0]
    return there + low, times[there]
