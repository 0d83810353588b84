"""Lossy codings of floats: multiples of a step, and of a share of each weight's own std."""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from pocketbayes.codec.adaptive import Coded, Reader, coded_integers, decoded_integers
from pocketbayes.codec.arrays import Spec, as_floats, rounded_to, storage_type
from pocketbayes.codec.jobs import Array, Arrays, Coding, Data, Job, counts
from pocketbayes.codec.steps import MOST_LOG_STD, Floats, from_steps, stds, to_steps
from pocketbayes.codec.tokens import Integers, in_one_row, largest, pieces
from pocketbayes.errors import FormatError

_RANGES = 8


class _NoMultipleError(Exception):
    """A number is no multiple of a step that could be coded."""


def multiples_of_step(arrays: Arrays, job: Job) -> list[Integers] | None:
    """Floats as multiples of the job's step; None if some are not coded so."""
    found, step = [], _step(job)
    for array, spec in zip(arrays, job.specs, strict=True):
        rows = (to_steps(as_floats(array[at], spec), step) for at in pieces(len(array)))
        try:
            found.append(in_one_row(_all_there(rows)))
        except _NoMultipleError:
            return None
        if largest(found[-1]) * step > MOST_LOG_STD:
            return None
    return found


def _all_there(rows: Iterable[Integers | None]) -> Iterator[Integers]:
    for row in rows:
        if row is None:
            raise _NoMultipleError
        yield row


def _encode_steps(arrays: Arrays, job: Job) -> Coded | None:
    return None if job.multiples is None else coded_integers(job.multiples, smooth=False)


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
    try:
        return None if job.log_stds is None else coded_integers(_relative_runs(arrays, job))
    except _NoMultipleError:
        return None


def _relative_runs(arrays: Arrays, job: Job) -> Iterator[Integers]:
    assert job.log_stds is not None
    for array, spec, k in zip(arrays, job.specs, job.log_stds.integers, strict=True):
        if max(array.max(), -array.min()) > np.finfo(array.dtype).max / 2:
            raise _NoMultipleError  # the nearest multiple may be twice as large
        for places in _ranges(k):
            own = (places[at] for at in pieces(len(places)))
            rows = (to_steps(as_floats(array[p], spec), _own_steps(k[p], job)) for p in own)
            yield in_one_row(_all_there(rows))


def _decode_relative(data: Data, job: Job) -> Iterator[Array]:
    if job.log_stds is None:
        raise FormatError("it is coded relative to stds that are not there")
    reader = Reader(data)
    for spec, k in zip(job.specs, job.log_stds.integers, strict=True):
        yield _means(reader, k, spec, job)
    reader.finish()


def _means(reader: Reader, k: Integers, spec: Spec, job: Job) -> Array:
    values = np.empty(len(k), storage_type(spec))
    for places in _ranges(k):
        run = reader.take(len(places))
        for at in pieces(len(run)):
            own = _own_steps(k[places[at]], job)
            values[places[at]] = _rounded(from_steps(run[at], own), spec)
    return values


def _own_steps(k: Integers, job: Job) -> NDArray[np.float64]:
    """The step of each mean: exp(k step') step."""
    assert job.log_stds is not None
    return stds(k, job.log_stds.step) * _step(job)


def _ranges(k: Integers) -> Iterator[NDArray[np.intp]]:
    """Places of the weights with the smallest stds, of those with larger ones, and so on.

    Of fewer than eight weights all are in one range.
    """
    if len(k) < _RANGES:
        yield np.arange(len(k))
        return
    cuts = np.sort(k)[np.arange(1, _RANGES) * len(k) // _RANGES]
    number = np.zeros(len(k), np.uint8)
    for cut in cuts:
        number += k >= cut
    for n in range(_RANGES):
        yield np.flatnonzero(number == n)


def _step(job: Job) -> float:
    assert job.step is not None
    return job.step


STEPS = Coding(_encode_steps, _decode_steps)
RELATIVE = Coding(_encode_relative, _decode_relative)
