"""Codings of values by their bytes, and of floats as halves."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate, chain

import numpy as np
from numpy.typing import NDArray

from pocketbayes.codec.adaptive import Coded, Reader, coded_integers
from pocketbayes.codec.arrays import storage_type
from pocketbayes.codec.file_views import Data, cut, file_view_of
from pocketbayes.codec.frequencies import entropy_bytes
from pocketbayes.codec.jobs import Array, Arrays, Coding, Job
from pocketbayes.codec.tokens import Integers, Lazy, pieces
from pocketbayes.errors import FormatError


def _encode_planes(arrays: Arrays, job: Job) -> Coded | None:
    """Planes that are noise stay as they are; a byte for each plane says which."""
    planes = [_plane(arrays, job, width, byte) for width in _counts(job) for byte in range(width)]
    noise = [entropy_bytes(plane) > 0.97 * len(plane) for plane in planes]
    coded = coded_integers((p for p, n in zip(planes, noise, strict=True) if not n), False)
    kept = [plane for plane, n in zip(planes, noise, strict=True) if n]
    plain = (row.data for plane in kept for row in plane.rows())
    rest = len(planes) + sum(map(len, kept))
    return Coded(chain([bytes(noise)], plain, coded.pieces), rest + coded.size, rest + coded.bound)


def _counts(job: Job) -> dict[int, int]:
    """How many values of each width there are."""
    widths = sorted({spec.item_bytes for spec in job.specs})
    return {w: sum(s.numel for s in job.specs if s.item_bytes == w) for w in widths}


def _plane(arrays: Arrays, job: Job, width: int, byte: int) -> Lazy:
    """One byte of each value that has so many."""
    those = [a for a, spec in zip(arrays, job.specs, strict=True) if spec.item_bytes == width]
    ends = [*accumulate(map(len, those))]

    def part(begin: int, end: int) -> NDArray[np.uint8]:
        rows = []
        for number in range(bisect_right(ends, begin), bisect_left(ends, end) + 1):
            row, first = those[number], ends[number] - len(those[number])
            rows.append(row[max(0, begin - first) : end - first].view(np.uint8)[byte::width])
        return np.concatenate(rows)

    return Lazy(part, 0, ends[-1])


def _decode_planes(data: Data, job: Job) -> Iterator[Array]:
    places = [(width, byte) for width in _counts(job) for byte in range(width)]
    first, rest = cut(file_view_of(data), len(places))
    noise = first.read()
    if any(flag > 1 for flag in noise):
        raise FormatError("a plane is neither coded nor as it is")
    plain = []
    for (width, _), flag in zip(places, noise, strict=True):
        here, rest = cut(rest, _counts(job)[width] if flag else 0)
        plain.append(here)
    reader = Reader(rest, False)
    arrays = [np.empty(spec.numel, storage_type(spec)) for spec in job.specs]
    for (width, byte), here, flag in zip(places, plain, noise, strict=True):
        plane = here.chunks() if flag else map(_bytes, reader.blocks(_counts(job)[width]))
        homes = (a.view(np.uint8)[byte::width] for a in arrays if a.itemsize == width)
        _put_(homes, (np.frombuffer(row, np.uint8) for row in plane))
    reader.finish()
    return iter(arrays)


def _bytes(row: Integers) -> NDArray[np.uint8]:
    if len(row) and not 0 <= int(row.min()) <= int(row.max()) <= 255:
        raise FormatError("a byte is out of bounds")
    return row.astype(np.uint8)


def _put_(homes: Iterator[NDArray[np.uint8]], rows: Iterable[NDArray[np.uint8]]) -> None:
    """Fills one home after the other with what stands in the rows."""
    home = np.empty(0, np.uint8)
    for row in rows:
        while len(row):
            while not len(home):
                home = next(homes)
            count = min(len(row), len(home))
            home[:count] = row[:count]
            home, row = home[count:], row[count:]


def _encode_raw(arrays: Arrays, job: Job) -> Coded:
    size = sum(a.nbytes for a in arrays)
    return Coded((a.view(np.uint8).data for a in arrays), size, float(size))


def _decode_raw(data: Data, job: Job) -> Iterator[Array]:
    sizes = [spec.numel * spec.item_bytes for spec in job.specs]
    if len(data) != sum(sizes):
        raise FormatError(f"it has {len(data)} bytes; its arrays take {sum(sizes)}")
    rest = file_view_of(data)
    for size, spec in zip(sizes, job.specs, strict=True):
        here, rest = cut(rest, size)
        yield np.frombuffer(here.read(), storage_type(spec)).copy()


def _halves(arrays: Arrays, job: Job) -> Arrays | None:
    """The arrays as float16, if all are wider floats that lose at most their last digits."""
    if any(spec.dtype not in ("float32", "float64") for spec in job.specs):
        return None
    with np.errstate(all="ignore"):
        halves = [array.astype("<f2") for array in arrays]
    return halves if all(map(_are_near, halves, arrays)) else None


def _are_near(halves: Array, array: Array) -> bool:
    """|error| <= 2^-11 |value| + 2^-16 of the largest: what is too small for float16 must be small.

    Only exact arithmetic: the answer is the same on every platform.
    """
    with np.errstate(all="ignore"):
        least = 2.0**-16 * max(float(array.max(initial=0)), -float(array.min(initial=0)))
        for at in pieces(len(array)):
            error = np.abs(halves[at].astype(np.float64) - array[at])
            if not (error <= np.abs(array[at]) * 2.0**-11 + least).all():
                return False
    return True


def _half_job(job: Job) -> Job:
    return job._replace(specs=[spec._replace(dtype="float16") for spec in job.specs])


def _through_halves(inner: Coding) -> Coding:
    def encode(arrays: Arrays, job: Job) -> Coded | None:
        halves = _halves(arrays, job)
        return None if halves is None else inner.encode(halves, _half_job(job))

    def decode(data: Data, job: Job) -> Iterator[Array]:
        for half, spec in zip(inner.decode(data, _half_job(job)), job.specs, strict=True):
            with np.errstate(invalid="ignore"):  # a NaN that signals, in a file of anybody's
                yield half.astype(storage_type(spec))

    return Coding(encode, decode)


RAW, PLANES = Coding(_encode_raw, _decode_raw), Coding(_encode_planes, _decode_planes)
HALF, HALF_PLANES = _through_halves(RAW), _through_halves(PLANES)
