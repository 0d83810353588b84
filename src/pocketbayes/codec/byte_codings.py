"""Codings of values by their bytes, and of floats as halves."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pocketbayes.codec.adaptive import Coded, Reader, coded_integers, cut, entropy_bytes
from pocketbayes.codec.arrays import storage_type
from pocketbayes.codec.jobs import Array, Arrays, Coding, Data, Job
from pocketbayes.codec.tokens import Integers, pieces
from pocketbayes.errors import FormatError


def _encode_planes(arrays: Arrays, job: Job) -> Coded | None:
    """Planes that are noise stay as they are; a byte for each plane says which."""
    planes = list(_planes(arrays, job))
    noise = [entropy_bytes(plane) > 0.97 * len(plane) for plane in planes]
    kept = [plane for plane, n in zip(planes, noise, strict=True) if n]
    coded = coded_integers((p for p, n in zip(planes, noise, strict=True) if not n), False)
    rest = sum(map(len, kept))
    return Coded(
        b"".join([bytes(noise), *(plane.data for plane in kept), coded.data]),
        len(planes) + rest + coded.bound,
    )


def _planes(arrays: Arrays, job: Job) -> Iterator[NDArray[np.uint8]]:
    for width in _widths(job):
        those = [a for a, spec in zip(arrays, job.specs, strict=True) if spec.item_bytes == width]
        for byte in range(width):
            yield np.concatenate([a.view(np.uint8)[byte::width] for a in those])


def _widths(job: Job) -> list[int]:
    return sorted({spec.item_bytes for spec in job.specs})


def _decode_planes(data: Data, job: Job) -> Iterator[Array]:
    counts = {w: sum(s.numel for s in job.specs if s.item_bytes == w) for w in _widths(job)}
    lengths = [count for width, count in counts.items() for _ in range(width)]
    noise, rest = cut(memoryview(data), len(lengths))
    if any(flag > 1 for flag in noise):
        raise FormatError("a plane is neither coded nor as it is")
    plain = []
    for count, flag in zip(lengths, noise, strict=True):
        here, rest = cut(rest, count if flag else 0)
        plain.append(here)
    reader = Reader(rest, False)
    planes = [np.frombuffer(here, np.uint8) if flag else _bytes(reader.take(count))
              for here, flag, count in zip(plain, noise, lengths, strict=True)]  # fmt: skip
    reader.finish()
    return _woven(planes, counts, job)


def _bytes(run: Integers) -> NDArray[np.uint8]:
    if len(run) and not 0 <= int(run.min()) <= int(run.max()) <= 255:
        raise FormatError("a byte is out of bounds")
    return run.astype(np.uint8)


def _woven(planes: list[NDArray[np.uint8]], counts: dict[int, int], job: Job) -> Iterator[Array]:
    """Values from the planes of each width, array by array."""
    left, at = iter(planes), dict.fromkeys(counts, 0)
    whole = {width: [next(left) for _ in range(width)] for width in counts}
    for spec in job.specs:
        width = spec.item_bytes
        low, at[width] = at[width], at[width] + spec.numel
        values = np.stack([plane[low : at[width]] for plane in whole[width]], 1)
        yield values.reshape(-1).view(storage_type(spec))


def _encode_raw(arrays: Arrays, job: Job) -> Coded:
    data = b"".join(a.data for a in arrays)
    return Coded(data, float(len(data)))


def _decode_raw(data: Data, job: Job) -> Iterator[Array]:
    sizes = [spec.numel * spec.item_bytes for spec in job.specs]
    if len(data) != sum(sizes):
        raise FormatError(f"it has {len(data)} bytes; its arrays take {sum(sizes)}")
    rest = memoryview(data)
    for size, spec in zip(sizes, job.specs, strict=True):
        here, rest = cut(rest, size)
        yield np.frombuffer(here, storage_type(spec)).copy()


def _halves(arrays: Arrays, job: Job) -> Arrays | None:
    """The arrays as float16, if all are wider floats that lose at most their last digits."""
    if any(spec.dtype not in ("float32", "float64") for spec in job.specs):
        return None
    with np.errstate(all="ignore"):
        halves = [array.astype("<f2") for array in arrays]
    return halves if all(map(_are_near, halves, arrays)) else None


def _are_near(halves: Array, array: Array) -> bool:
    with np.errstate(all="ignore"):
        for at in pieces(len(array)):
            error = np.abs(halves[at].astype(np.float64) - array[at])
            if not (error <= np.abs(array[at]) * 2.0**-11 + 2.0**-25).all():
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
