"""One call of the engine, or its parts by several threads; the numbers are the same bit for bit.

Rows are cut where the engine begins anew; draws of weights, whose random numbers depend on the
number of the draw alone, are cut anywhere and told of afterwards.
"""

import ctypes as ct
import math
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, NamedTuple

import numpy as np

from pocketbayes_lite.errors import LiteError
from pocketbayes_lite.handles import Handle, Handles
from pocketbayes_lite.library import MOMENTS, WEIGHT, Answer, Ask, library

WORTH_A_THREAD = 3e7  # multiplications, or a millisecond: less does not pay where cores are busy
MOST_KEPT = 2**24  # numbers of draws that wait to be told of
_PARTS_EACH = 4  # of a thread, so that all end at about the same time


class Call(NamedTuple):
    """What the engine is given: inputs, how many rows, what is asked; how many draws it makes."""

    arrays: object  # what the pointers point to, which must outlive every thread

    inputs: ct.Array[Any]
    rows: int
    ask: Ask
    answer: Answer
    draws: int
    output_shape: tuple[int, ...]

    @property
    def numbers(self) -> int:
        """Of all draws."""
        return self.draws * self.rows * math.prod(self.output_shape)


def number_of_threads(asked: int | None) -> int:
    """As asked; else what OMP_NUM_THREADS says, or the cores that this process may use."""
    if asked is not None:
        if type(asked) is not int or asked < 1:
            raise LiteError(f"threads must be a whole number from 1; got {asked!r}")
        return asked
    said = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if said.isdigit() and int(said) > 0:
        return int(said)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def answer_by(handles: Handles, call: Call, threads: int) -> None:
    """Fills what the answer points to."""
    handles.keep = threads
    factor = {MOMENTS: 4, WEIGHT: 4 * call.draws}.get(call.ask.estimator, 1)  # drawing takes time
    worth = min(threads, 1 + int(handles.work * call.rows * factor / WORTH_A_THREAD))
    by_draws = call.ask.estimator == WEIGHT and (worth > 1 or call.rows > handles.together)
    if by_draws and call.draws > 1 and call.numbers <= MOST_KEPT:
        _by_draws(handles, call, worth)
    else:
        _by_rows(handles, call, worth)


def _by_rows(handles: Handles, call: Call, threads: int) -> None:
    step = -(-call.rows // (_PARTS_EACH * threads)) if threads > 1 else call.rows
    step = -(-step // handles.together) * handles.together
    ask, answer = ct.byref(call.ask), ct.byref(call.answer)

    def part(handle: Handle, first: int, count: int) -> int:
        return library().pocket_rows(  # type: ignore[no-any-return]
            handle.pointer, call.inputs, call.rows, first, count, ask, answer
        )

    _shared(handles, call, threads, part, call.rows, step)


def _by_draws(handles: Handles, call: Call, threads: int) -> None:
    ask, to = ct.byref(call.ask), call.answer.samples
    if not to:
        made = np.empty(call.numbers, np.float32)
        to, call = made.ctypes.data, call._replace(arrays=(call.arrays, made))

    def part(handle: Handle, first: int, count: int) -> int:
        return library().pocket_draws(  # type: ignore[no-any-return]
            handle.pointer, call.inputs, call.rows, first, count, ask, to
        )

    step = -(-call.draws // (_PARTS_EACH * threads)) if threads > 1 else call.draws
    _shared(handles, call, threads, part, call.draws, step)
    with handles.one(call.ask.draws, False, True) as handle:
        answer = ct.byref(call.answer)
        _check(handle, library().pocket_tell(handle.pointer, to, call.rows, ask, answer))


def _shared(
    handles: Handles,
    call: Call,
    threads: int,
    part: Callable[[Handle, int, int], int],
    total: int,
    step: int,
) -> None:
    """All parts, by this thread and others beside it."""
    left = deque((first, min(step, total - first)) for first in range(0, total, step))
    failures: list[tuple[int, BaseException]] = []
    needs = (call.ask.draws, call.ask.estimator == MOMENTS, call.ask.estimator == WEIGHT)

    def work() -> None:
        first = -1
        try:
            with handles.one(*needs) as handle:
                while True:
                    try:
                        first, count = left.popleft()
                    except IndexError:
                        return
                    _check(handle, part(handle, first, count))
        except BaseException as failure:  # raised again by the thread that asked
            left.clear()
            failures.append((first, failure))

    _together(work, min(threads, len(left)), left.clear)
    if failures:
        raise min(failures, key=lambda found: found[0])[1]  # all parts before it have ended


def _together(work: Callable[[], None], threads: int, stop: Callable[[], None]) -> None:
    """By so many threads, this one among them, or as many as can be started; all have ended."""
    others: list[Thread] = []
    try:
        for _ in range(threads - 1):
            others.append(Thread(target=work, daemon=True))
            try:
                others[-1].start()
            except RuntimeError:  # the system gives no more
                others.pop()
                break
        work()
        for other in others:
            other.join()
    except BaseException:  # Ctrl-C: what they write to must not go before they end
        stop()
        for other in others:
            with suppress(RuntimeError):  # it was never started
                other.join()
        raise


def _check(handle: Handle, failed: int) -> None:
    if failed:
        raise LiteError(library().pocket_error(handle.pointer).decode(errors="replace"))
