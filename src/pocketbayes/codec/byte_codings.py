"""Codings of values by their bytes, and of floats as halves."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pocketbayes.codec.adaptive import Coded, coded_integers, cut, decoded_integers, entropy_bytes
from pocketbayes.codec.arrays import storage_type
from pocketbayes.codec.jobs import Arrays, Coding, Job, finished
from pocketbayes.codec.tokens import Integers
from pocketbayes.errors import FormatError


def _encode_planes(arrays: Arrays, job: Job) -> Coded | None:
    """Planes that are noise stay as they are; a byte for each plane says which."""
    planes = list(_planes(arrays, job))
    bounds = [entropy_bytes(plane) for plane in planes]
    noise = [bound > 0.97 * len(plane) for bound, plane in zip(bounds, planes, strict=True)]
    coded = coded_integers(
        (p.astype(np.int64) for p, n in zip(planes, noise, strict=True) if not n), False
    )
    rest = b"".join(plane.tobytes() for plane, n in zip(planes, noise, strict=True) if n)
    return Coded(bytes(noise) + rest + coded.data, len(planes) + len(rest) + coded.bound)


def _planes(arrays: Arrays, job: Job) -> Iterator[NDArray[np.uint8]]:
    for width in _widths(job):
        those = [a for a, spec in zip(arrays, job.specs, strict=True) if spec.item_bytes == width]
        for byte in range(width):
            yield np.concatenate([a.view(np.uint8)[byte::width] for a in those])


def _widths(job: Job) -> list[int]:
    return sorted({spec.item_bytes for spec in job.specs})


def _decode_planes(data: bytes, job: Job) -> Arrays:
    counts = {w: sum(s.numel for s in job.specs if s.item_bytes == w) for w in _widths(job)}
    lengths = [count for width, count in counts.items() for _ in range(width)]
    noise, rest = cut(memoryview(data), len(lengths))
    if any(flag > 1 for flag in noise):
        raise FormatError("a plane is neither coded nor as it is")
    plain = []
    for count, flag in zip(lengths, noise, strict=True):
        here, rest = cut(rest, count if flag else 0)
        plain.append(here)
    runs = decoded_integers(
        bytes(rest), (n for n, flag in zip(lengths, noise, strict=True) if not flag), False
    )
    planes = [np.frombuffer(here, np.uint8) if flag else _bytes(next(runs))
              for here, flag in zip(plain, noise, strict=True)]  # fmt: skip
    finished(runs)
    return _woven(planes, counts, job)


def _bytes(run: Integers) -> NDArray[np.uint8]:
    if ((run < 0) | (run > 255)).any():
        raise FormatError("a byte is out of bounds")
    return run.astype(np.uint8)


def _woven(planes: list[NDArray[np.uint8]], counts: dict[int, int], job: Job) -> Arrays:
    """Values from the planes of each width, array by array."""
    left, whole = iter(planes), {}
    for width in counts:
        whole[width] = np.stack([next(left) for _ in range(width)], 1)
    arrays = []
    for spec in job.specs:
        part, whole[spec.item_bytes] = np.split(whole[spec.item_bytes], [spec.numel])
        arrays.append(np.ascontiguousarray(part).reshape(-1).view(storage_type(spec)))
    return arrays


def _encode_raw(arrays: Arrays, job: Job) -> Coded:
    data = b"".join(a.tobytes() for a in arrays)
    return Coded(data, float(len(data)))


def _decode_raw(data: bytes, job: Job) -> Arrays:
    sizes = [spec.numel * spec.item_bytes for spec in job.specs]
    if len(data) != sum(sizes):
        raise FormatError(f"it has {len(data)} bytes; its arrays take {sum(sizes)}")
    ends = np.cumsum([0, *sizes])
    return [
        np.frombuffer(data[low:high], storage_type(spec)).copy()
        for low, high, spec in zip(ends[:-1], ends[1:], job.specs, strict=True)
    ]


def _halves(arrays: Arrays, job: Job) -> Arrays | None:
    """The arrays as float16, if all are wider floats that lose at most their last digits."""
    halves = []
    for array, spec in zip(arrays, job.specs, strict=True):
        if spec.dtype not in ("float32", "float64"):
            return None
        with np.errstate(all="ignore"):
            half = array.astype("<f2")
            error = np.abs(half.astype(np.float64) - array)
            if not (error <= np.abs(array) * 2.0**-11 + 2.0**-25).all():
                return None
        halves.append(half)
    return halves


def _half_job(job: Job) -> Job:
    return job._replace(specs=[spec._replace(dtype="float16") for spec in job.specs])


def _through_halves(inner: Coding) -> Coding:
    def encode(arrays: Arrays, job: Job) -> Coded | None:
        halves = _halves(arrays, job)
        return None if halves is None else inner.encode(halves, _half_job(job))

    def decode(data: bytes, job: Job) -> Arrays:
        found = inner.decode(data, _half_job(job))
        with np.errstate(invalid="ignore"):  # a NaN that signals, in a file of somebody's making
            return [half.astype(storage_type(s)) for half, s in zip(found, job.specs, strict=True)]

    return Coding(encode, decode)


RAW, PLANES = Coding(_encode_raw, _decode_raw), Coding(_encode_planes, _decode_planes)
HALF, HALF_PLANES = _through_halves(RAW), _through_halves(PLANES)
