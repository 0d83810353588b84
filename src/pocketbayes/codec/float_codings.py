"""Lossy codings of floats: multiples of a step, and of a share of each weight's own std."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pocketbayes.codec.adaptive import Coded, coded_integers, decoded_integers
from pocketbayes.codec.arrays import Spec, as_floats, rounded_to
from pocketbayes.codec.jobs import Arrays, Coding, Job, Steps, counts, finished
from pocketbayes.codec.steps import MOST_LOG_STD, from_steps, stds, to_steps
from pocketbayes.codec.tokens import Integers
from pocketbayes.errors import FormatError

_RANGES = 8


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
        rounded_to(from_steps(k, steps.step), spec)
        for k, spec in zip(steps.integers, specs, strict=True)
    ]


def _encode_relative(arrays: Arrays, job: Job) -> Coded | None:
    if job.log_stds is None or job.step is None:
        return None
    runs: list[Integers] = []
    for array, spec, k in zip(arrays, job.specs, job.log_stds.integers, strict=True):
        found = to_steps(as_floats(array, spec), stds(k, job.log_stds.step) * job.step)
        if found is None:
            return None
        found = narrow(found)
        runs += [found[part] for part in _ranges(k)]
    return coded_integers(runs)


def _decode_relative(data: bytes, job: Job) -> Arrays:
    if job.log_stds is None:
        raise FormatError("it is coded relative to stds that are not there")
    here: list[NDArray[np.intp]] = []  # ranges of the array whose runs come now

    def lengths(logs: list[Integers]) -> Iterator[int]:
        for k in logs:
            here[:] = _ranges(k)
            yield from map(len, list(here))

    runs, arrays = decoded_integers(data, lengths(job.log_stds.integers)), []
    for spec, k in zip(job.specs, job.log_stds.integers, strict=True):
        found = np.empty(len(k), np.int64)
        first = next(runs)
        found[here[0]] = first
        for part in here[1:]:
            found[part] = next(runs)
        scale = stds(k, job.log_stds.step) * _step(job)
        arrays.append(rounded_to(from_steps(found, scale), spec))
    finished(runs)
    return arrays


def _ranges(k: Integers) -> list[NDArray[np.intp]]:
    """Places of the weights with the smallest stds, of those with larger ones, and so on."""
    if len(k) < _RANGES:
        return [np.arange(len(k))]
    cuts = np.sort(k)[np.arange(1, _RANGES) * len(k) // _RANGES]
    number = np.searchsorted(cuts, k, side="right")
    return [np.flatnonzero(number == n) for n in range(_RANGES)]


def _step(job: Job) -> float:
    if job.step is None:
        raise FormatError("it does not say its step")
    return job.step


STEPS = Coding(_encode_steps, _decode_steps)
RELATIVE = Coding(_encode_relative, _decode_relative)
