"""Lossy codings of floats: multiples of a step, and of a share of each weight's own std."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pocketbayes.codec.adaptive import Coded, coded_integers, decoded_integers
from pocketbayes.codec.arrays import Spec, as_floats, rounded_to, storage_type
from pocketbayes.codec.jobs import Arrays, Coding, Job, Steps, counts, finished
from pocketbayes.codec.steps import MOST_LOG_STD, from_steps, stds, to_steps
from pocketbayes.codec.tokens import Integers
from pocketbayes.errors import FormatError

_RANGES = 8
_PART = 1 << 18


def integers_in_steps(arrays: Arrays, job: Job) -> Steps | None:
    """Floats as multiples of the job's step."""
    assert job.step is not None
    found = []
    for array, spec in zip(arrays, job.specs, strict=True):
        integers = to_steps(as_floats(array, spec), job.step)
        if integers is None or np.abs(integers).max(initial=0) * job.step > MOST_LOG_STD:
            return None
        found.append(narrow(integers))
    return Steps(found, job.step)


def _encode_steps(arrays: Arrays, job: Job) -> Coded | None:
    steps = integers_in_steps(arrays, job)
    return None if steps is None else coded_integers(steps.integers, smooth=False)


def steps_in(data: bytes, job: Job) -> Steps:
    """The multiples that `steps` coded."""
    runs = decoded_integers(data, counts(job), smooth=False)
    return Steps([narrow(run) for run in runs], _step(job))


def narrow(run: Integers) -> Integers:
    """The same integers in less memory, if they are small."""
    return run.astype(np.int16) if len(run) and np.abs(run).max() < 1 << 15 else run


def _decode_steps(data: bytes, job: Job) -> Arrays:
    return values_of_steps(steps_in(data, job), job.specs)


def values_of_steps(steps: Steps, specs: Sequence[Spec]) -> Arrays:
    """Multiples as the floats that they stand for."""
    return [
        _values(k, spec, lambda part: steps.step)
        for k, spec in zip(steps.integers, specs, strict=True)
    ]


def _values(
    k: Integers, spec: Spec, step: Callable[[slice], float | NDArray[np.float64]]
) -> NDArray[Any]:
    """Multiples of the steps of each part, part by part, which takes little memory."""
    values = np.empty(len(k), storage_type(spec))
    for low in range(0, len(k), _PART):
        part = slice(low, low + _PART)
        values[part] = rounded_to(from_steps(k[part], step(part)), spec)
    return values


def _encode_relative(arrays: Arrays, job: Job) -> Coded | None:
    if job.log_stds is None or job.step is None:
        return None
    runs: list[Integers] = []
    for array, spec, k in zip(arrays, job.specs, job.log_stds.integers, strict=True):
        for part in _ranges(k):
            step = stds(k[part], job.log_stds.step) * job.step
            found = to_steps(as_floats(array[part], spec), step)
            if found is None:
                return None
            runs.append(narrow(found))
    return coded_integers(runs)


def _decode_relative(data: bytes, job: Job) -> Arrays:
    if job.log_stds is None:
        raise FormatError("it is coded relative to stds that are not there")
    logs, arrays = job.log_stds, []
    runs = decoded_integers(data, (n for k in logs.integers for n in _range_sizes(k)))
    for spec, k in zip(job.specs, logs.integers, strict=True):
        values = np.empty(len(k), storage_type(spec))
        for part in _ranges(k):
            step = stds(k[part], logs.step) * _step(job)
            values[part] = rounded_to(from_steps(next(runs), step), spec)
        arrays.append(values)
    finished(runs)
    return arrays


def _ranges(k: Integers) -> Iterator[NDArray[np.intp]]:
    """Places of the weights with the smallest stds, of those with larger ones, and so on."""
    number = _range_numbers(k)
    for n in range(_RANGES if len(k) >= _RANGES else 1):
        yield np.flatnonzero(number == n)


def _range_sizes(k: Integers) -> list[int]:
    sizes = np.bincount(_range_numbers(k), minlength=_RANGES)
    return [int(n) for n in sizes[: _RANGES if len(k) >= _RANGES else 1]]


def _range_numbers(k: Integers) -> NDArray[np.uint8]:
    """Which eighth of the stds each is in; of fewer than eight all are in the first."""
    if len(k) < _RANGES:
        return np.zeros(len(k), np.uint8)
    cuts = np.sort(k)[np.arange(1, _RANGES) * len(k) // _RANGES]
    number = np.zeros(len(k), np.uint8)
    for cut in cuts:
        number += k >= cut
    return number


def _step(job: Job) -> float:
    if job.step is None:
        raise FormatError("it does not say its step")
    return job.step


STEPS = Coding(_encode_steps, _decode_steps)
RELATIVE = Coding(_encode_relative, _decode_relative)
