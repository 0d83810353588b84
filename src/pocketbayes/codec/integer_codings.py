"""Lossless codings of integers."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pocketbayes.codec.adaptive import Coded, coded_integers, decoded_integers
from pocketbayes.codec.arrays import Spec, storage_type
from pocketbayes.codec.file_views import Data, cut, in_memory
from pocketbayes.codec.frequencies import counted, entropy_bytes
from pocketbayes.codec.jobs import Array, Arrays, Coding, Job, counts
from pocketbayes.codec.tokens import MOST, Integers, largest, pieces
from pocketbayes.codec.varints import varints, varints_in
from pocketbayes.errors import FormatError

_FEW = 0.5  # of all numbers


def _encode_integers(arrays: Arrays, job: Job) -> Coded | None:
    runs = _whole(arrays, job)
    return None if runs is None else coded_integers(runs, smooth=False)


def _decode_integers(data: Data, job: Job) -> Iterator[Array]:
    runs = decoded_integers(data, counts(job), smooth=False, bounds=_bounds(job))
    return map(_fitting, runs, job.specs)


def _bounds(job: Job) -> tuple[int, int]:
    """The least and the largest number that the arrays of a section can hold."""
    kind = storage_type(job.specs[0])
    if kind.kind == "b":
        return 0, 1
    return (np.iinfo(kind).min, np.iinfo(kind).max) if kind.kind in "iu" else (-MOST, MOST)


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
    lengths = [spec.numel for spec in job.specs]
    if any(n > size for n, size in zip(counts, lengths, strict=True)):
        raise FormatError("it has more exceptions than numbers")
    if sum(counts) > _FEW * sum(lengths):
        raise FormatError("most of its numbers are exceptions")
    distances = decoded_integers(gaps, counts, bounds=(0, max(lengths)))
    others = decoded_integers(values, counts, False, _bounds(job))
    for spec, usual, gap, other in zip(job.specs, known[::2], distances, others, strict=True):
        array = np.full(spec.numel, _fitting(usual[None], spec))
        for at, place in _places(gap, spec.numel - 1):
            array[place] = _fitting(other[at], spec)
        yield array


def _encode_rising(arrays: Arrays, job: Job) -> Coded | None:
    runs = _whole(arrays, job)
    if runs is None:
        return None
    gaps = [_gaps(run.astype(np.int64)) for run in runs]
    return None if any((gap < 0).any() for gap in gaps) else coded_integers(gaps)


def _decode_rising(data: Data, job: Job) -> Iterator[Array]:
    most = _bounds(job)[1]
    gaps = decoded_integers(data, counts(job), bounds=(0, most))
    for gap, spec in zip(gaps, job.specs, strict=True):
        array = np.empty(spec.numel, storage_type(spec))
        for at, place in _places(gap, most):
            array[at] = _fitting(place, spec)
        yield array


def _gaps(place: NDArray[np.int64]) -> Integers:
    return np.diff(place, prepend=np.int64(-1)) - 1


def _places(gap: Integers, most: int) -> Iterator[tuple[slice, Integers]]:
    """Rising integers from the distances between them, a few at a time, with where they stand."""
    last = -1
    for at in pieces(len(gap)):
        piece = gap[at]
        if last + float(piece.sum(dtype=np.float64)) + len(piece) > min(most, MOST):
            raise FormatError("its places lie outside of their bounds")
        place = last + np.cumsum(piece.astype(np.int64) + 1)
        last = int(place[-1])
        yield at, place


def _whole(arrays: Arrays, job: Job) -> list[Integers] | None:
    if any(spec.is_float or spec.dtype.startswith("complex") for spec in job.specs):
        return None
    runs = [a.view(np.uint8) if a.dtype == bool else a for a in arrays]
    return None if any(largest(run) >= MOST for run in runs) else runs


def _fitting(run: Integers, spec: Spec) -> Array:
    """The integers as values of an array, in as little memory as will do."""
    if run.dtype == storage_type(spec):
        return run
    array = np.empty(len(run), storage_type(spec))
    for at in pieces(len(run)):
        array[at] = run[at]
        if (array[at] != run[at]).any():
            raise FormatError("a number does not fit its type")
    return array


INTEGERS = Coding(_encode_integers, _decode_integers)
EXCEPTIONS = Coding(_encode_exceptions, _decode_exceptions)
RISING = Coding(_encode_rising, _decode_rising)
