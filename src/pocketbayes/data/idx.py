"""MNIST and Fashion-MNIST, from their idx files, packed or not."""

import gzip
import struct
from pathlib import Path

import numpy as np
import torch

from pocketbayes.data.files import (
    Bytes,
    Labels,
    checked_labels,
    first_complete,
    reading,
    require_root,
    require_split,
)
from pocketbayes.data.images import ImageSet
from pocketbayes.data.pixels import image_preprocess
from pocketbayes.errors import DataError

_SIDE, _MOST_IMAGES = 28, 1_000_000
_CLOTHES = (
    "T-shirt", "trouser", "pullover", "dress", "coat",
    "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip
_HOMES = {
    "mnist": "https://github.com/cvdfoundation/mnist",
    "fashion-mnist": "https://github.com/zalandoresearch/fashion-mnist",
}
_FOLDERS = {
    "mnist": ("mnist", "MNIST/raw", "MNIST", "."),
    "fashion-mnist": ("fashion-mnist", "FashionMNIST/raw", "FashionMNIST", "."),
}
# The two sets have the same file names; their first labels tell them apart.
_FIRST_LABELS = {
    ("mnist", "train"): [5, 0, 4, 1, 9, 2, 1, 3, 1, 4],
    ("mnist", "test"): [7, 2, 1, 0, 4, 1, 4, 9, 5, 9],
    ("fashion-mnist", "train"): [9, 0, 0, 3, 0, 2, 7, 2, 5, 5],
    ("fashion-mnist", "test"): [9, 2, 1, 1, 6, 1, 4, 6, 5, 7],
}


def mnist(split: str, root: Path | None) -> ImageSet:
    """Handwritten digits, 28 x 28 grey: 60,000 to train on and 10,000 to test.

    Args:
        split: "train" or "test".
        root: the folder of the idx files, or one above "mnist" or "MNIST/raw".
    """
    images, labels = _read("mnist", split, root)
    preprocess = _preprocess(mean=0.1307, std=0.3081)
    return ImageSet(images, labels, preprocess, tuple("0123456789"))


def fashion_mnist(split: str, root: Path | None) -> ImageSet:
    """Pictures of clothes, 28 x 28 grey: 60,000 to train on and 10,000 to test.

    Args:
        split: "train" or "test".
        root: the folder of the idx files, or one above "fashion-mnist" or "FashionMNIST/raw".
    """
    images, labels = _read("fashion-mnist", split, root)
    return ImageSet(images, labels, _preprocess(mean=0.2860, std=0.3530), _CLOTHES)


def _preprocess(mean: float, std: float) -> dict[str, object]:
    return image_preprocess((1, _SIDE, _SIDE), [mean], [std])


def _read(name: str, split: str, root: Path | None) -> tuple[torch.Tensor, torch.Tensor]:
    prefix = {"train": "train", "test": "t10k"}[require_split(split, name)]
    folder = require_root(root, name)
    image_path = _found(name, folder, f"{prefix}-images", "idx3-ubyte")
    label_path = _found(name, folder, f"{prefix}-labels", "idx1-ubyte")
    images = read_idx_images(image_path)
    labels = read_idx_labels(label_path, len(images))
    _require_own_labels(name, split, label_path, labels)
    return torch.from_numpy(images).unsqueeze(1), torch.from_numpy(labels)


def _found(name: str, root: Path, stem: str, kind: str) -> Path:
    names = [f"{stem}{dot}{kind}{packed}" for dot in "-." for packed in ("", ".gz")]
    places = [(root / folder / file,) for folder in _FOLDERS[name] for file in names]
    return first_complete(places, f"the {stem} of {name}", _HOMES[name])[0]


def read_idx_images(path: Path) -> Bytes:
    """Grey images (N, 28, 28) of an idx3 file, its head and length checked."""
    count, height, width = _head(path, magic=2051, numbers=3)
    if (height, width) != (_SIDE, _SIDE):
        raise DataError(f"{path} holds images of {height} x {width}; they must be 28 x 28")
    return _body(path, 16, count * _SIDE * _SIDE).reshape(count, _SIDE, _SIDE)


def read_idx_labels(path: Path, images: int) -> Labels:
    """Labels 0..9 of an idx1 file, one for each image."""
    (count,) = _head(path, magic=2049, numbers=1)
    if count != images:
        raise DataError(f"{path} holds {count} labels for {images} images; get both files anew")
    return checked_labels(path, _body(path, 8, count), count, classes=10)


def _head(path: Path, magic: int, numbers: int) -> tuple[int, ...]:
    length = 4 + 4 * numbers
    head = _bytes(path, 0, length)
    if len(head) < length:
        raise DataError(f"{path} ends within its head of {length} bytes; get it anew")
    found, count, *sides = struct.unpack(f">{1 + numbers}I", head)
    if found != magic:
        raise DataError(
            f"{path} begins with the number {found}, not {magic}: it is no idx file of this kind"
        )
    if count > _MOST_IMAGES:
        raise DataError(f"{path} claims {count} entries, more than {_MOST_IMAGES}: it is damaged")
    return count, *sides


def _body(path: Path, start: int, length: int) -> Bytes:
    """What follows the head: neither less nor more than it says."""
    data = _bytes(path, start, length + 1)
    if len(data) != length:
        held = f"only {len(data)}" if len(data) < length else "more"
        raise DataError(f"{path} must hold {length} bytes after its head and has {held}")
    return np.frombuffer(data, np.uint8).copy()


def _bytes(path: Path, start: int, length: int) -> bytes:
    opened = gzip.open if path.suffix == ".gz" else open
    with reading(path, "an idx file"), opened(path, "rb") as file:
        file.seek(start)
        return file.read(length)


def _require_own_labels(name: str, split: str, path: Path, labels: Labels) -> None:
    """An error if these are the files of the other set."""
    for (other, other_split), first in _FIRST_LABELS.items():
        if other != name and other_split == split and labels[:10].tolist() == first:
            raise DataError(
                f"{path} belongs to {other}, not to {name}: the two have the same file names; "
                f"keep them in folders of their own, {_FOLDERS[name][0]} and {_FOLDERS[other][0]}"
            )
