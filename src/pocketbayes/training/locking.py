"""One directory, one writer."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pocketbayes.errors import TrainingError, warn

LOCK = ".lock"
_HELD: dict[Path, tuple[int, int]] = {}  # descriptor and thread of each that is written into


@contextmanager
def only_writer(directory: Path | None) -> Iterator[None]:
    """Keeps other runs out of a directory while this one writes into it; inside itself it is free.

    The system lets go of the lock when the process ends, however it ends: what a dead process
    leaves behind is a file without a lock. Systems without `flock` have none.
    """
    thread = threading.get_ident()
    place = None if directory is None else directory.resolve()
    if place is None or _HELD.get(place, (0, 0))[1] == thread:
        yield
        return
    descriptor = _locked(place)
    if descriptor is None:
        yield
        return
    _HELD[place] = descriptor, thread
    try:
        yield
    finally:
        if _HELD.pop(place, None) is not None:  # a forked child has closed its own
            os.close(descriptor)


def _locked(directory: Path) -> int | None:
    """An open file that is locked; None where there are no locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    descriptor = _opened(directory / LOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        writer = os.read(descriptor, 20).decode(errors="replace").strip()
        os.close(descriptor)
        who = f"process {writer}" if writer.isdigit() else "another process"
        raise TrainingError(
            f"{who} is writing into {directory}: wait until it has ended, or choose another out"
        ) from error
    except OSError as error:
        os.close(descriptor)
        warn(f"nothing keeps a second run out of {directory}: it cannot be locked ({error})")
        return None
    if os.fstat(descriptor).st_nlink == 0:  # a refused run has just taken it away
        os.close(descriptor)
        return _locked(directory)
    with suppress(OSError):  # a full disk, or a file of somebody else: then it has no number
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def _opened(path: Path) -> int:
    """The file of a lock; one of somebody else may be open to readers alone, which will do."""
    try:
        with suppress(PermissionError):
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        raise TrainingError(f"cannot open {path}: {error.strerror}") from error


def _let_go() -> None:
    """A forked child, such as a worker that loads data, must not keep the lock of its parent."""
    for descriptor, _ in _HELD.values():
        os.close(descriptor)
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
