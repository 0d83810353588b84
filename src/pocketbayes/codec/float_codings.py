"""Lossy codings of floats: multiples of a step, and of a share of each weight's own std."""

from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from math import fsum

import numpy as np
from numpy.typing import NDArray

from pocketbayes.codec.adaptive import Coded, Reader, coded_integers, decoded_integers
from pocketbayes.codec.arrays import Spec, as_floats, rounded_to, storage_type
from pocketbayes.codec.file_views import Data
from pocketbayes.codec.frequencies import counted
from pocketbayes.codec.jobs import Array, Arrays, Coding, Job, counts
from pocketbayes.codec.steps import MOST_LOG_STD, Floats, from_steps, stds, to_steps
from pocketbayes.codec.tokens import Integers, Run, in_bytes, in_one_row, largest, pieces
from pocketbayes.errors import FormatError

Places = NDArray[np.intp]
_RANGES, _MOST_BYTE, _ENOUGH = 8, 255, 1 << 14
_ROUNDING = 1.03  # a float may lie that much farther from its mean than the multiple behind it


class _NoMultipleError(Exception):
    """A number is no multiple of a step that could be coded."""


def multiples_of_step(arrays: Arrays, job: Job) -> Iterator[Run]:
    """Floats as multiples of the job's step, array by array."""
    step = _step(job)
    for array, spec in zip(arrays, job.specs, strict=True):
        values = as_floats(array, spec)
        ends = to_steps(np.array([values.min(), values.max()]), step)
        if ends is None or largest(ends) * step > MOST_LOG_STD:
            raise _NoMultipleError
        rows = _all_there(to_steps(values[at], step) for at in pieces(len(values)))
        if ends[1] - ends[0] <= _MOST_BYTE:
            yield in_bytes(rows, len(values), int(ends[0]))
        else:
            yield in_one_row(rows, len(values))


def _all_there(rows: Iterable[Integers | None]) -> Iterator[Integers]:
    for row in rows:
        if row is None:
            raise _NoMultipleError
        yield row


def _encode_steps(arrays: Arrays, job: Job) -> Coded | None:
    try:
        made = coded_integers(multiples_of_step(arrays, job), smooth=False)
    except _NoMultipleError:
        return None
    return made._replace(nats=fsum(_nats_of_steps(arrays, job)))


def _nats_of_steps(arrays: Arrays, job: Job) -> Iterator[float]:
    """What the multiples cost, a few at a time."""
    step, nats_of = _step(job), job.nats_of
    if nats_of is None:
        return
    for array, spec in zip(arrays, job.specs, strict=True):
        for at in pieces(len(array)):
            values = as_floats(array[at], spec).astype(np.float64)
            yield float(nats_of(np.rint(values / step) * step - values).sum())


def steps_in(data: Data, job: Job) -> Iterator[Integers]:
    """The multiples that `steps` coded."""
    return decoded_integers(data, counts(job), smooth=False)


def _decode_steps(data: Data, job: Job) -> Iterator[Array]:
    for k, spec in zip(steps_in(data, job), job.specs, strict=True):
        yield values_of_steps(k, spec, job)


def values_of_steps(k: Integers, spec: Spec, job: Job) -> Array:
    """Multiples of the job's step as the floats that they stand for."""
    values, step = np.empty(len(k), storage_type(spec)), _step(job)
    for at in pieces(len(k)):
        values[at] = _rounded(from_steps(k[at], step), spec)
    return values


def _rounded(values: Floats, spec: Spec) -> Array:
    with np.errstate(over="ignore"):
        rounded = rounded_to(values, spec)
    if not np.isfinite(as_floats(rounded, spec)).all():
        raise FormatError("a number does not fit its type")
    return rounded


def _encode_relative(arrays: Arrays, job: Job) -> Coded | None:
    nats = list[float]()
    try:
        made = None if job.log_stds is None else coded_integers(_relative_runs(arrays, job, nats))
    except _NoMultipleError:
        return None
    return made and made._replace(nats=fsum(nats))


def _relative_runs(arrays: Arrays, job: Job, nats: list[float]) -> Iterator[Integers]:
    """Multiples by ranges of stds; adds what they cost, error^2 / 2 of stds, a few at a time."""
    assert job.log_stds is not None
    logs = iter(job.log_stds.integers)
    for array, spec in zip(arrays, job.specs, strict=True):
        k = next(logs)
        if max(array.max(), -array.min()) > np.finfo(array.dtype).max / 2:
            raise _NoMultipleError  # the nearest multiple may be twice as large
        rows = (
            _multiples(array[at], _own_steps(k[at], job), spec, _step(job), nats)
            for at in pieces(len(k))
        )
        multiples = in_one_row(_all_there(rows), len(k))
        for count, places in _ranges(k):
            yield in_one_row((multiples[p] for p in places), count)
        del k, rows, multiples  # before the next ones are made


def _multiples(
    means: Array, steps: NDArray[np.float64], spec: Spec, step: float, nats: list[float]
) -> Integers | None:
    """The nearest multiples; None if floats are too coarse to be as near as these."""
    values = as_floats(means, spec)
    found = to_steps(values, steps)
    if found is None:
        return None
    back = as_floats(_rounded(from_steps(found, steps), spec), spec)
    error = np.abs(back.astype(np.float64) - values) / steps
    nats.append(float((error * step) @ (error * step)) / 2)
    return found if (error <= _ROUNDING / 2).all() else None


def _decode_relative(data: Data, job: Job) -> Iterator[Array]:
    if job.log_stds is None:
        raise FormatError("it is coded relative to stds that are not there")
    reader = Reader(data)
    for spec, k in zip(job.specs, job.log_stds.integers, strict=True):
        yield _means(reader, k, spec, job)
    reader.finish()


def _means(reader: Reader, k: Integers, spec: Spec, job: Job) -> Array:
    values = np.empty(len(k), storage_type(spec))
    for p, multiples in _joined(_multiples_by_range(reader, k)):
        values[p] = _rounded(from_steps(multiples, _own_steps(k[p], job)), spec)
    return values


def _multiples_by_range(reader: Reader, k: Integers) -> Iterator[tuple[Places, Integers]]:
    for count, places in _ranges(k):
        run, end = reader.take(count), 0
        for p in places:
            begin, end = end, end + len(p)
            yield p, run[begin:end]


def _joined(parts: Iterable[tuple[Places, Integers]]) -> Iterator[tuple[Places, Integers]]:
    """The same in fewer parts: a numpy call for a few numbers takes as long as for many."""
    waiting, count = list[tuple[Places, Integers]](), 0
    for part in chain(parts, [None]):
        if part is not None:
            waiting.append(part)
            count += len(part[0])
        if waiting and (part is None or count >= _ENOUGH):
            places, multiples = zip(*waiting, strict=True)
            yield np.concatenate(places), np.concatenate(multiples)
            waiting, count = [], 0


def _own_steps(k: Integers, job: Job) -> NDArray[np.float64]:
    """The step of each mean: exp(k step') step."""
    assert job.log_stds is not None
    return stds(k, job.log_stds.step) * _step(job)


def _ranges(k: Integers) -> Iterator[tuple[int, Iterator[Places]]]:
    """How many weights have the smallest stds, and where, a few at a time; then larger ones.

    Of fewer than eight weights all are in one range.
    """
    if len(k) < _RANGES:
        yield len(k), iter([np.arange(len(k))])
        return
    values, times = counted(k)
    ends = np.arange(1, _RANGES) * len(k) // _RANGES
    cuts = values[np.searchsorted(np.cumsum(times), ends, side="right")]  # of the sorted k
    for low, high in pairwise([int(values[0]), *cuts.tolist(), int(values[-1]) + 1]):
        yield int(times[(values >= low) & (values < high)].sum()), _between(k, low, high)


def _between(k: Integers, low: int, high: int) -> Iterator[Places]:
    for at in pieces(len(k), _RANGES):
        yield at.start + np.flatnonzero((k[at] >= low) & (k[at] < high))


def _step(job: Job) -> float:
    assert job.step is not None
    return job.step


STEPS = Coding(_encode_steps, _decode_steps)
RELATIVE = Coding(_encode_relative, _decode_relative)
