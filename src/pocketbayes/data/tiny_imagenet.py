"""Tiny-ImageNet as it comes out of its archive."""

from pathlib import Path

import torch

from pocketbayes.data.files import first_complete, reading, require_root, require_split
from pocketbayes.data.images import ImageSet
from pocketbayes.data.pictures import images_from_files
from pocketbayes.data.pixels import image_preprocess
from pocketbayes.errors import DataError, printable

_HOME = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
_NUMBERS, _NAMES, _ANNOTATIONS = "wnids.txt", "words.txt", "val/val_annotations.txt"


def tiny_imagenet(split: str, root: Path | None) -> ImageSet:
    """Photographs of 200 kinds of things, 64 x 64: 100,000 to train on and 10,000 to test.

    The test images are those of its folder "val": for those of its "test" there are no labels.
    Classes are in the order of their WordNet numbers; a name is the first of the class's words.

    Args:
        split: "train" or "test".
        root: the folder of wnids.txt, words.txt, "train" and "val", or one above
            "tiny-imagenet-200".
    """
    folder = _found(require_split(split, "tiny-imagenet"), require_root(root, "tiny-imagenet"))
    classes = _class_names(folder)
    labels = _train_files(folder, classes) if split == "train" else _test_files(folder, classes)
    mean, std = [0.4802, 0.4481, 0.3975], [0.2764, 0.2689, 0.2816]
    preprocess = image_preprocess((3, 64, 64), mean, std)
    images, _ = images_from_files(labels, preprocess)
    numbers = {wnid: number for number, wnid in enumerate(classes)}
    return ImageSet(
        images,
        torch.tensor([numbers[wnid] for wnid in labels.values()]),
        preprocess,
        tuple(classes.values()),
        augmentation=("crop", "mirror"),
    )


def _found(split: str, root: Path) -> Path:
    """The folder of the data set, all lists of which are there."""
    lists = (_NUMBERS, _NAMES, *([_ANNOTATIONS] if split == "test" else []))
    folders = (root / "tiny-imagenet-200", root)
    places = [tuple(folder / name for name in lists) for folder in folders]
    return first_complete(places, f"the {split} images of tiny-imagenet", _HOME)[0].parent


def _class_names(folder: Path) -> dict[str, str]:
    """The name of each class by its WordNet number, in the order of these."""
    wnids = sorted({fields[0] for _, fields in _lines(folder / _NUMBERS, 1)})
    words = {fields[0]: fields[1] for _, fields in _lines(folder / _NAMES, 2)}
    if not wnids:
        raise DataError(f"{folder / _NUMBERS} names no class; unpack the archive again")
    for wnid in wnids:
        if wnid not in words:
            raise DataError(
                f"{folder / _NAMES} has no name of class {printable(wnid)}, which is in "
                f"{_NUMBERS}; unpack the archive again"
            )
    return {wnid: words[wnid].split(",")[0].strip() for wnid in wnids}


def _train_files(folder: Path, classes: dict[str, str]) -> dict[Path, str]:
    """The class of every picture to train on, which is the name of a folder."""
    found: dict[Path, str] = {}
    for wnid in classes:
        pictures = sorted((folder / "train" / wnid).rglob("*.JPEG"))
        if not pictures:
            raise DataError(
                f"{folder / 'train' / wnid} holds no picture (.JPEG) of this class; unpack the "
                "archive again"
            )
        found |= dict.fromkeys(pictures, wnid)
    return found


def _test_files(folder: Path, classes: dict[str, str]) -> dict[Path, str]:
    """The class of every picture to test on, as the annotations tell."""
    path, found = folder / _ANNOTATIONS, {}
    for number, (name, wnid) in _lines(path, 2):
        if wnid not in classes:
            raise DataError(
                f"{path}, line {number}: {printable(wnid)} is a class that is not in {_NUMBERS}; "
                "mend one of them, or unpack the archive again"
            )
        found[path.parent / "images" / Path(name).name] = wnid
    if not found:
        raise DataError(f"{path} names no picture; unpack the archive again")
    return found


def _lines(path: Path, count: int) -> list[tuple[int, list[str]]]:
    """The first `count` fields of every line that is not empty, and its number."""
    with reading(path, "a list of lines"):
        lines = path.read_text(encoding="utf-8").splitlines()
    found = [(n, line.split("\t")[:count]) for n, line in enumerate(lines, 1) if line.strip()]
    for number, fields in found:
        if len(fields) < count:
            raise DataError(
                f"{path}, line {number}: {printable(lines[number - 1])!r} must have {count} fields "
                "with tabs between them; mend the line, or unpack the archive again"
            )
    return found
