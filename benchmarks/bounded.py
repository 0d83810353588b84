"""Work in a process of its own, whose memory and time are bounded."""

import os
import resource
import signal
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEAD = 200  # seconds without a word, after which it is killed
ROOM = 5 << 30  # bytes: five times the 1 GiB of arrays that any file may unfold to


class TooLong(BaseException):
    """No fault of the library's is mistaken for it."""


def in_a_child(work: Callable[[int], str], first: int, count: int) -> list[str]:
    """What the work says of so many numbers; less of them if it ended the process, or hung."""
    end_on_alarm()
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            limit_memory()
            with os.fdopen(there, "w", buffering=1) as out:
                for number in range(first, first + count):
                    print(work(number), file=out)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)  # the rest of the script is its parent's
    os.close(there)
    found, rest = [], b""
    while True:
        signal.alarm(DEAD)
        try:
            data = os.read(here, 1 << 16)
        except TooLong:
            os.kill(child, signal.SIGKILL)
            continue
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        found += [line.decode() for line in lines]
    signal.alarm(0)
    os.close(here)
    os.waitpid(child, 0)
    return found


def limit_memory() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))


def end_on_alarm() -> None:
    """From now on SIGALRM raises `TooLong`."""

    def end(*_: Any) -> None:
        raise TooLong

    signal.signal(signal.SIGALRM, end)
