"""Finding files, and saying exactly which were looked for and which cannot be read."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pocketbayes.errors import DataError

Bytes = NDArray[np.uint8]
Labels = NDArray[np.int64]


def require_split(split: str, name: str, splits: tuple[str, ...] = ("train", "test")) -> str:
    """Returns `split` if the data set has it, or lists those it has."""
    if split not in splits:
        raise DataError(f"{name} has no split {split!r}; it has: {', '.join(splits)}")
    return split


def require_root(root: Path | None, name: str) -> Path:
    """The folder to look in, or an error that says how to name one."""
    if root is None:
        raise DataError(
            f"{name} is read from files: say where they are by root= (--root), or set the "
            "environment variable POCKETBAYES_DATA to their folder"
        )
    return root


def first_complete(
    alternatives: Sequence[tuple[Path, ...]], what: str, home: str
) -> tuple[Path, ...]:
    """The first group of files that are all there, or an error that lists every group."""
    for group in alternatives:
        if all(path.is_file() for path in group):
            return group
    listed = "\n".join("  " + _as_line(group) for group in alternatives)
    raise DataError(
        f"{what} were not found. Looked for, each line being enough:\n{listed}\n"
        f"Get the files from {home} and put them into one of these places, or give another root"
    )


def _as_line(group: tuple[Path, ...]) -> str:
    """The files of a group; those missing from a group that is partly there are marked."""
    found = [path.is_file() for path in group]
    marks = ["" if here or not any(found) else " (missing)" for here in found]
    return ", ".join(f"{path.absolute()}{mark}" for path, mark in zip(group, marks, strict=True))


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Whatever a reader raises over a broken file becomes an error that names the file."""
    try:
        yield
    except DataError:
        raise
    # Readers of hostile bytes raise nearly everything: struct.error, KeyError, MemoryError, ...
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".rstrip(": ")
        raise DataError(
            f"{path} cannot be read as {kind} ({reason}); mend or replace the file"
        ) from error


def labelled_images_of_npz(
    path: Path, shape: tuple[int, int, int], classes: int
) -> tuple[Bytes, Labels]:
    """Arrays "x" (uint8, N x height x width x channels) as N x C x H x W, and "y", both checked."""
    with (
        reading(path, "an .npz of arrays x and y"),
        path.open("rb") as file,  # numpy leaves a broken file open if it opens it itself
        np.load(file, allow_pickle=False) as arrays,
    ):
        x, y = arrays["x"], arrays["y"]
    if x.dtype != np.uint8 or x.shape[1:] != shape:
        raise DataError(
            f"{path}: x is {x.dtype} of shape {x.shape}; it must be uint8 of (N, "
            f"{', '.join(map(str, shape))})"
        )
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)), checked_labels(path, y, len(x), classes)


def checked_labels(path: Path, labels: Any, count: int, classes: int) -> Labels:
    """The labels as int64, if there are `count` whole numbers, each below `classes`."""
    with reading(path, "labels"):
        array = np.asarray(labels)
    if array.dtype.kind not in "iu" or array.shape != (count,):
        raise DataError(
            f"{path}: the labels are {array.dtype} of shape {array.shape}; they must be {count} "
            "whole numbers, one per image"
        )
    if count == 0:
        raise DataError(f"{path} holds no image")
    if array.min() < 0 or array.max() >= classes:
        raise DataError(
            f"{path}: labels run from {array.min()} to {array.max()}; they must be 0 to "
            f"{classes - 1}"
        )
    return array.astype(np.int64)
