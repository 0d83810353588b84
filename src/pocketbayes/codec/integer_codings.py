"""Lossless codings of integers."""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from pocketbayes.codec.adaptive import (
    Coded,
    coded_integers,
    counted,
    cut,
    decoded_integers,
    entropy_bytes,
)
from pocketbayes.codec.arrays import Spec, storage_type
from pocketbayes.codec.jobs import Array, Arrays, Coding, Job, counts
from pocketbayes.codec.stretches import Data, in_memory
from pocketbayes.codec.tokens import MOST, Integers, largest
from pocketbayes.codec.varints import varints, varints_in
from pocketbayes.errors import FormatError

_FEW = 0.5  # of all numbers


def _encode_integers(arrays: Arrays, job: Job) -> Coded | None:
    runs = _whole(arrays, job)
    return None if runs is None else coded_integers(runs, smooth=False)


def _decode_integers(data: Data, job: Job) -> Iterator[Array]:
    return _narrowed(decoded_integers(data, counts(job), smooth=False), job)


def _encode_exceptions(arrays: Arrays, job: Job) -> Coded | None:
    """None where no value is nearly all there is: then it gains nothing."""
    runs = _whole(arrays, job)
    if runs is None or not any(len(run) for run in runs):
        return None
    usual = [_most_frequent(run) for run in runs]
    places = [np.flatnonzero(run != v) for run, v in zip(runs, usual, strict=True)]
    if sum(map(len, places)) > _FEW * sum(map(len, runs)):
        return None
    gaps = [_gaps(place) for place in places]
    values = [run[place] for run, place in zip(runs, places, strict=True)]
    head = [np.array([v, len(place)]) for v, place in zip(usual, places, strict=True)]
    parts = (varints(np.concatenate(head)), coded_integers(gaps).data)
    others = coded_integers(values, False)
    pieces = [np.array([*map(len, parts)], "<u4").tobytes(), *parts]
    size = sum(map(len, pieces)) + others.size
    return Coded([*pieces, *others.pieces], size, sum(map(entropy_bytes, runs)))


def _most_frequent(run: Integers) -> int:
    seen, times = counted(run)
    return int(seen[times.argmax()]) if len(run) else 0


def _decode_exceptions(data: Data, job: Job) -> Iterator[Array]:
    sizes, rest = cut(in_memory(data), 8)
    first, second = (int(n) for n in np.frombuffer(sizes, "<u4"))
    head, rest = cut(rest, first)
    gaps, values = cut(rest, second)
    known = varints_in(head)
    if len(known) != 2 * len(job.specs) or (known[1::2] < 0).any():
        raise FormatError("it does not say how many numbers are exceptions")
    counts = [int(n) for n in known[1::2]]
    if any(n > spec.numel for n, spec in zip(counts, job.specs, strict=True)):
        raise FormatError("it has more exceptions than numbers")
    places = decoded_integers(gaps, counts)
    others = decoded_integers(values, counts, False)
    for spec, usual, gap, other in zip(job.specs, known[::2], places, others, strict=True):
        place = _places(gap)
        if len(place) and place[-1] >= spec.numel:
            raise FormatError("an exception lies outside of its array")
        array = np.full(spec.numel, _fitting(usual[None], spec))
        array[place] = _fitting(other, spec)
        yield array


def _encode_rising(arrays: Arrays, job: Job) -> Coded | None:
    runs = _whole(arrays, job)
    if runs is None:
        return None
    gaps = [_gaps(run.astype(np.int64)) for run in runs]
    return None if any((gap < 0).any() for gap in gaps) else coded_integers(gaps)


def _decode_rising(data: Data, job: Job) -> Iterator[Array]:
    return _narrowed((_places(gap) for gap in decoded_integers(data, counts(job))), job)


def _gaps(place: NDArray[np.int64]) -> Integers:
    return np.diff(place, prepend=np.int64(-1)) - 1


def _places(gap: Integers) -> Integers:
    if len(gap) and (int(gap.min()) < 0 or float(gap.sum(dtype=np.float64)) + len(gap) > MOST):
        raise FormatError("its places do not rise, or leave all bounds")
    return np.cumsum(gap, dtype=np.int64) + np.arange(len(gap))


def _whole(arrays: Arrays, job: Job) -> list[Integers] | None:
    if any(spec.is_float or spec.dtype.startswith("complex") for spec in job.specs):
        return None
    runs = [a.view(np.uint8) if a.dtype == bool else a for a in arrays]
    return None if any(largest(run) >= MOST for run in runs) else runs


def _narrowed(runs: Iterable[Integers], job: Job) -> Iterator[Array]:
    return (_fitting(run, spec) for run, spec in zip(runs, job.specs, strict=True))


def _fitting(run: Integers, spec: Spec) -> Array:
    array = run.astype(storage_type(spec))
    if (array != run).any():
        raise FormatError("a number does not fit its type")
    return array


INTEGERS = Coding(_encode_integers, _decode_integers)
EXCEPTIONS = Coding(_encode_exceptions, _decode_exceptions)
RISING = Coding(_encode_rising, _decode_rising)
