"""Checkpoints and the history of a run; they hold no code."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import torch

from pocketbayes.codec import write_atomically
from pocketbayes.errors import TrainingError, warn

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
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise TrainingError(
            f"{path} is not a checkpoint of this library, or is damaged: {error}"
        ) from error
    if not isinstance(state, dict) or "settings" not in state:
        raise TrainingError(f"{path} is not a checkpoint of this library")
    return state
