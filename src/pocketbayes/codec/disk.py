"""Files that are whole or not there at all."""

import os
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from pocketbayes.errors import TrainingError


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Writes to a temporary name, syncs and renames: a full disk never leaves half a file."""
    temporary = path.with_name(f".{secrets.token_hex(8)}")  # short: the name may be a long one
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


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
