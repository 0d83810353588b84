"""Files that are whole or not there at all, and paths that are files at all."""

import errno
import os
import re
import secrets
import socket
import stat
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from pocketbayes.errors import TrainingError

try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # Windows: nothing tells whether a writer lives, so nothing is removed
    flock = None  # type: ignore[assignment]

_BEGIN, _FORGOTTEN = ".pocketbayes-", 7 * 24 * 3600
_TEMPORARY = re.compile(re.escape(_BEGIN) + r"[0-9a-f]{8}-[0-9a-f]{12}", re.ASCII)
_OPEN_FILES = re.compile(r"/proc/\d+(/task/\d+)?/fd|/dev/fd")


def regular(path: Path) -> IO[bytes]:
    """The file, open; anything else is refused, since a pipe or device would block, or never end.

    It is opened so that even a pipe that takes the file's place this very moment does not block.
    """
    _require_regular(os.stat(path))
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    file = os.fdopen(os.open(path, flags), "rb")
    try:
        _require_regular(os.fstat(file.fileno()))
    except OSError:
        file.close()
        raise
    return file


def _require_regular(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, f"it is {_kind(found.st_mode)}, not a file")


def _kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def home_of(path: Path) -> Path | None:
    """The directory that temporary files for this path belong in; None: it is no plain file."""
    found = _stat(path)
    is_file = found is None or stat.S_ISREG(found.st_mode)
    return _behind_links(path).parent if is_file and _open_file(path) is None else None


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Writes to a temporary name, syncs and renames: a full disk never leaves half a file.

    Behind a link it is the file that the link leads to that is replaced. A file that is there
    keeps its mode. Pipes, devices of characters and what is open already, as `/dev/stdout`, are
    written into. Every fault of the disk is an `OSError` that names the path, whatever `write`
    makes of it. What killed writers have left here goes away.
    """
    try:
        _write_somewhere(path, write)
    except OSError as error:
        error.filename = str(path)  # not the temporary one
        raise


def _write_somewhere(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    found = _stat(path)
    if found is not None and not stat.S_ISREG(found.st_mode):
        _write_into(path, found.st_mode, write)
        return
    already = _open_file(path)
    if already is not None:
        with os.fdopen(_again(already), "wb") as opened:
            _written(opened, write)
        return
    target = _behind_links(path)
    _remove_left_over(target.parent)
    temporary, file = _temporary(target.parent)
    try:
        with file:
            if found is not None:
                _keep_mode(file, found)
            _written(file, write)
            os.fsync(file.fileno())
            if flock is None:
                file.close()  # Windows moves no open file
            os.replace(temporary, target)  # before the lock goes
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _keep_mode(file: IO[bytes], old: os.stat_result) -> None:
    """Mode and, where we may, owner of the file that was there: else its readers might lose it."""
    _keep_owner(file, old)
    with suppress(AttributeError, OSError):  # Windows; a file system without modes
        os.fchmod(file.fileno(), old.st_mode & 0o777)


def _keep_owner(file: IO[bytes], old: os.stat_result) -> None:
    """Or the group alone; a container may have no number for the owner, and a disk no owners."""
    own = os.fstat(file.fileno())
    if not hasattr(os, "fchown") or (own.st_uid, own.st_gid) == (old.st_uid, old.st_gid):
        return
    for owner in (old.st_uid, -1):
        with suppress(OSError):
            os.fchown(file.fileno(), owner, old.st_gid)
            return


def _behind_links(path: Path) -> Path:
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _open_file(path: Path) -> Path | None:
    """The name among a process's open files that the path leads to, if there is one."""
    for _ in range(40):  # as many links as Linux follows
        home = os.path.realpath(path.parent)
        if _OPEN_FILES.fullmatch(home):
            return Path(home, path.name)
        if not path.is_symlink():
            break
        path = Path(home, os.readlink(path))
    return None


def _again(already: Path) -> int:
    """One more descriptor, which goes on where ours stands; what others have open grows."""
    if already.parent in (Path(f"/proc/{os.getpid()}/fd"), Path("/dev/fd")):
        return os.dup(int(already.name))
    return os.open(already, os.O_WRONLY | os.O_APPEND)


def _stat(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _write_into(path: Path, mode: int, write: Callable[[IO[bytes]], object]) -> None:
    if not (stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)):
        raise OSError(errno.EINVAL, f"it is {_kind(mode)}, which is never replaced")
    flags = os.O_WRONLY | getattr(os, "O_NONBLOCK", 0)  # an error where nobody reads a pipe
    descriptor = os.open(path, flags)
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "wb") as file:
        _written(file, write)


class _Noting:
    """A file that remembers what the disk said: who writes may not pass it on."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        """Writes these bytes."""
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = self.error or error
            raise

    def writelines(self, pieces: Any) -> None:
        """Writes these pieces."""
        for piece in pieces:
            self.write(piece)

    def flush(self) -> None:
        """Gives all to the system."""
        try:
            self._file.flush()
        except OSError as error:
            self.error = self.error or error
            raise


def _written(file: IO[bytes], write: Callable[[IO[bytes]], object]) -> None:
    noting = _Noting(file)
    try:
        write(noting)  # type: ignore[arg-type]
        noting.flush()
    except Exception as error:
        if noting.error is None or noting.error is error:
            raise
        raise noting.error from error


def _temporary(directory: Path) -> tuple[Path, IO[bytes]]:
    """A new file in there that is locked for as long as its writer lives."""
    while True:
        path = (
            directory / f"{_BEGIN}{_host()}-{secrets.token_hex(6)}"
        )  # short: as names may be long
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        file = os.fdopen(os.open(path, flags, 0o666), "wb")
        _lock(file, wait=True)
        if os.fstat(file.fileno()).st_nlink:  # nobody took it for a left-over before it was locked
            return path, file
        file.close()


def _lock(file: IO[bytes], wait: bool) -> bool:
    """Whether it is ours now."""
    try:
        flock(file.fileno(), LOCK_EX if wait else LOCK_EX | LOCK_NB)
    except (OSError, TypeError):  # held by who writes, or no locks in this file system
        return False
    return True


def _host() -> str:
    """A word for this machine: locks of another one may not be seen here."""
    known = Path("/etc/machine-id")
    words = socket.gethostname().encode() + (known.read_bytes() if known.is_file() else b"")
    return sha256(words).hexdigest()[:8]


def _remove_left_over(directory: Path) -> None:
    """Temporary files whose writers were killed: of this machine if unlocked, of others if old."""
    try:
        found = [n for n in os.listdir(directory) if _TEMPORARY.fullmatch(n)]
    except OSError:
        return
    for name in found:
        try:
            _remove_if_dead(directory / name, name.startswith(f"{_BEGIN}{_host()}-"))
        except OSError:
            continue  # of somebody else, or gone by now


def _remove_if_dead(path: Path, is_ours: bool) -> None:
    with regular(path) as file:
        is_old = time.time() - os.fstat(file.fileno()).st_mtime > _FORGOTTEN
        if (is_ours or is_old) and _lock(file, wait=False):
            path.unlink()


def prepare_directory(out: str | os.PathLike[str]) -> Path:
    """The directory, made if need be; an error now rather than after hours of training."""
    if not isinstance(out, str | os.PathLike):
        raise TrainingError(f"out must be a path, not {out!r}")
    directory = Path(out)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise TrainingError(f"cannot write to {directory}: {error.strerror or error}") from error
    return directory
