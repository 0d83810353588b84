"""Ctrl-C and SIGTERM: a step is finished, the checkpoint written, and then the run ends."""

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

_SAME = 1.0  # seconds in which a launcher passes on what the terminal has sent already


class StopRequest:
    """The signal that asked the run to stop, 0 for none; as a truth, whether there was one."""

    def __init__(self) -> None:
        self.signal = 0
        self._since = 0.0

    def __bool__(self) -> bool:
        return self.signal != 0

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Notes the first signal; another one, later, stops at once."""
        if self.signal and time.monotonic() - self._since > _SAME:
            raise self.exception()
        if not self.signal:
            self.signal, self._since = number, time.monotonic()

    def exception(self) -> BaseException:
        """What ends the run: of SIGTERM with the exit code that a shell gives to it."""
        if self.signal == signal.SIGTERM:
            return SystemExit(128 + int(signal.SIGTERM))
        return KeyboardInterrupt()

    def message(self, step: int, directory: Path | None) -> str:
        """What a person is told."""
        where = "nothing was saved: no out= was given"
        if directory is not None:
            where = f"saved to {directory}, from which fit(..., resume=True) goes on"
        word = "terminated" if self.signal == signal.SIGTERM else "interrupted"
        return f"\n{word} after step {step}; {where}"


@contextlib.contextmanager
def deferred_signals(enabled: bool) -> Iterator[StopRequest]:
    """Notes Ctrl-C and SIGTERM, so that a step is never cut in half.

    Whoever ignores a signal goes on ignoring it; a handler of the caller's for SIGTERM is called
    once the run has stopped.
    """
    asked = StopRequest()
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield asked
        return
    known = (signal.SIGINT, signal.SIGTERM)
    before: dict[signal.Signals, Any] = {number: signal.getsignal(number) for number in known}
    heard = [n for n in known if before[n] not in (signal.SIG_IGN, None)]
    for number in heard:
        signal.signal(number, asked.handle)
    try:
        yield asked
    finally:
        for number in heard:
            signal.signal(number, before[number])
        ended = isinstance(sys.exc_info()[1], SystemExit)
        if asked.signal == signal.SIGTERM and ended and callable(before[signal.SIGTERM]):
            before[signal.SIGTERM](signal.SIGTERM, None)
