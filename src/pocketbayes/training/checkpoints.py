"""Checkpoints and the history of a run; they hold no code."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch

from pocketbayes.codec import regular, write_atomically
from pocketbayes.errors import TrainingError, warn
from pocketbayes.training.checking import checked_parts

NAME = "checkpoint.pt"
_PLACES = ("", "pretraining/", "member-*/")


def checkpoints_in(directory: Path) -> list[Path]:
    """Those of the run in this directory: of its stages, and of an ensemble's members."""
    return [path for place in _PLACES for path in directory.glob(place + NAME)]


def save_checkpoint(directory: Path, state: dict[str, Any]) -> bool:
    """Replaces the directory's checkpoint; False where the disk takes no more, which it says."""
    return _written(directory / NAME, lambda file: torch.save(state, file))


def write_history(directory: Path, history: list[dict[str, Any]]) -> bool:
    """Replaces `history.jsonl`, one line per epoch; False where the disk takes no more."""
    lines = "".join(json.dumps(row) + "\n" for row in history)
    return _written(directory / "history.jsonl", lambda file: file.write(lines.encode()))


def write_note(path: Path, said: dict[str, Any]) -> bool:
    """Replaces a small JSON file; False where the disk takes no more."""
    return _written(path, lambda file: file.write(json.dumps(said).encode()))


def _written(path: Path, write: Callable[[IO[bytes]], object]) -> bool:
    """Hours of training are worth more than one file: a fault of the disk does not end them."""
    try:
        write_atomically(path, write)
    except OSError as error:
        kept = "what was there is kept" if path.exists() else "there is none yet"
        warn(
            f"cannot write {path}: {error.strerror or error}; {kept}. Training goes on, and the "
            "next time it is tried again: make room on the disk, or stop"
        )
        return False
    return True


def load_checkpoint(directory: Path, device: torch.device) -> dict[str, Any]:
    """The directory's checkpoint; reads tensors and plain values only."""
    path = directory / NAME
    if not path.exists():
        raise TrainingError(f"no checkpoint at {path}; start the run with resume=False")
    try:
        with regular(path) as file:
            state: dict[str, Any] = torch.load(file, map_location=device, weights_only=True)
    except MemoryError:
        raise
    except Exception as error:  # torch reads what it is given, and may fail at any of it
        raise TrainingError(
            f"{path} is not a checkpoint of this library, or is damaged: "
            f"{str(error) or 'it ends before it should'}"
        ) from error
    with naming(directory):
        return checked_parts(state)


@contextmanager
def naming(directory: Path) -> Iterator[None]:
    """Errors inside speak of this directory's checkpoint, and of what to do."""
    try:
        yield
    except TrainingError as error:
        if str(directory) in str(error):
            raise
        raise TrainingError(
            f"{directory / NAME}: {error}. Start anew with resume=False, in another directory if "
            "this one is to be kept"
        ) from error
