"""What a coding is asked for: the arrays of one section, their types, and a step."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from pocketbayes.codec.adaptive import Coded
from pocketbayes.codec.arrays import Spec
from pocketbayes.codec.tokens import Integers

Arrays = list[NDArray[Any]]


class Steps(NamedTuple):
    """Multiples of a step, array by array."""

    integers: list[Integers]
    step: float


class Job(NamedTuple):
    """One section: the specs of its arrays, its step, and what its stds' logs were coded as."""

    specs: Sequence[Spec]
    step: float | None = None
    log_stds: Steps | None = None


class Coding(NamedTuple):
    """A way there, which gives None where it cannot go, and the way back."""

    encode: Callable[[Arrays, Job], Coded | None]
    decode: Callable[[bytes, Job], Arrays]


def counts(job: Job) -> list[int]:
    """How many numbers each array has."""
    return [spec.numel for spec in job.specs]


def finished(runs: Iterator[Integers]) -> None:
    """Lets the decoder check its end."""
    if next(runs, None) is not None:
        raise AssertionError("runs are left over")
