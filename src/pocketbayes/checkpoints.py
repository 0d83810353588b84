"""Checkpoints that are whole or not there at all, and hold no code."""

import json
import os
import pickle
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import torch

from pocketbayes.errors import TrainingError

NAME = "checkpoint.pt"
_PLACES = ("", "pretraining/", "member-*/")


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


def checkpoints_in(directory: Path) -> list[Path]:
    """Those of the run in this directory: of its stages, and of an ensemble's members."""
    return [path for place in _PLACES for path in directory.glob(place + NAME)]


def save_checkpoint(directory: Path, state: dict[str, Any]) -> None:
    """Replaces the directory's checkpoint."""
    write_atomically(directory / NAME, lambda file: torch.save(state, file))


def write_history(directory: Path, history: list[dict[str, Any]]) -> None:
    """Replaces `history.jsonl`, one line per epoch."""
    lines = "".join(json.dumps(row) + "\n" for row in history)
    write_atomically(directory / "history.jsonl", lambda file: file.write(lines.encode()))


def load_checkpoint(directory: Path, device: torch.device) -> dict[str, Any]:
    """The directory's checkpoint; reads tensors and plain values only."""
    path = directory / NAME
    if not path.exists():
        raise TrainingError(f"no checkpoint at {path}; start the run with resume=False")
    try:
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise TrainingError(
            f"{path} is not a checkpoint of this library, or is damaged: {error}"
        ) from error
    if not isinstance(state, dict) or "settings" not in state:
        raise TrainingError(f"{path} is not a checkpoint of this library")
    return state
