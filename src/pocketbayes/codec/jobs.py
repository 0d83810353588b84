"""What a coding is asked for: the arrays of one section, their types, and a step."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pocketbayes.codec.adaptive import Coded
from pocketbayes.codec.arrays import Spec
from pocketbayes.codec.file_views import Data
from pocketbayes.codec.tokens import Integers

Array = NDArray[Any]
Arrays = list[Array]


class Steps(NamedTuple):
    """Multiples of a step, array by array; may be there only once."""

    integers: Iterable[Integers]
    step: float


class Job(NamedTuple):
    """One section: specs of its arrays, its step, its stds' coded logs, and nats of errors."""

    specs: Sequence[Spec]
    step: float | None = None
    log_stds: Steps | None = None
    nats_of: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None


class Coding(NamedTuple):
    """A way there, which gives None where it cannot go, and the way back, array by array.

    What can be told only at the end is told after the last array: take them all.
    """

    encode: Callable[[Arrays, Job], Coded | None]
    decode: Callable[[Data, Job], Iterator[Array]]


def counts(job: Job) -> list[int]:
    """How many numbers each array has."""
    return [spec.numel for spec in job.specs]
