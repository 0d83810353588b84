"""A folder of pictures with one folder per class."""

from pathlib import Path
from typing import Any

import torch

from pocketbayes.data.files import require_root, require_split
from pocketbayes.data.images import ImageSet
from pocketbayes.data.pictures import images_from_files
from pocketbayes.data.pixels import image_form, image_preprocess, measured
from pocketbayes.errors import DataError, require_count

PICTURES = (
    ".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm",
)  # fmt: skip
_SMALLEST_TO_CROP = 32
# The test pictures are scaled by the statistics of the training ones, which cost their decoding.
_measurements: dict[object, dict[str, Any]] = {}


def imagefolder(
    split: str,
    root: Path | None,
    size: int = 64,
    channels: int = 3,
    mirror: bool = False,
    skip_bad: bool = False,
    like: dict[str, Any] | None = None,
    classes: tuple[str, ...] | None = None,
) -> ImageSet:
    """Pictures of your own: root/train/<class>/*.png and root/test/<class>/*.png (or root/val).

    A picture is resized until its short side fits, then cut to the middle square, which is said.

    Args:
        split: "train" or "test".
        root: the folder of "train" and "test".
        size: the side of the squares, in pixels.
        channels: 3 for colour, 1 for grey.
        mirror: whether training may mirror the pictures; not if they show letters or digits.
        skip_bad: pass over a picture that cannot be read, with a warning, instead of an error.
        like: the preprocess of a trained model, to read pictures as in its training.
        classes: the class names of that model, in its order.
    """
    folder = _split_folder(require_root(root, "imagefolder"), require_split(split, "imagefolder"))
    if like is None:
        shape = (channels, *[require_count(size, "size")] * 2)
        like = image_preprocess(shape, [0.0] * channels, [1.0] * channels)
        train = _split_folder(folder.parent, "train")
        names = class_names(train) if classes is None else classes
    else:
        train, names = None, classes if classes is not None else class_names(folder)
    files = labelled_files(folder, names)
    images, kept = images_from_files(files, like, skip_bad)
    if not kept:
        raise DataError(f"none of the {len(files)} pictures in {folder} can be read")
    labels = torch.tensor([files[path] for path in kept])
    if train == folder:
        like = _measurements[_fingerprint(files, like)] = like | measured(images)
    elif train is not None:
        like = _training_preprocess(labelled_files(train, names), like, skip_bad)
    crop = ("crop",) if min(image_form(like)[1:3]) >= _SMALLEST_TO_CROP else ()
    return ImageSet(images, labels, like, names, crop + (("mirror",) if mirror else ()))


def _split_folder(root: Path, split: str) -> Path:
    candidates = [root / name for name in (("train",) if split == "train" else ("test", "val"))]
    for folder in candidates:
        if folder.is_dir():
            return folder
    listed = " nor ".join(str(folder.absolute()) for folder in candidates)
    raise DataError(
        f"there is no folder {listed}; it must hold one folder of pictures for each class "
        f"({', '.join(PICTURES)})"
    )


def class_names(folder: Path) -> tuple[str, ...]:
    """The names of the folders in a folder, sorted."""
    names = sorted(p.name for p in folder.iterdir() if p.is_dir() and p.name[0] != ".")
    if not names:
        raise DataError(f"{folder} holds no folder; it must hold one folder for each class")
    return tuple(names)


def labelled_files(folder: Path, classes: tuple[str, ...]) -> dict[Path, int]:
    """Every picture of a split with the number of its class."""
    found: dict[Path, int] = {}
    for name in class_names(folder):
        if name not in classes:
            raise DataError(
                f"{folder / name} is a class that training does not know; it knows: "
                f"{', '.join(classes)}"
            )
        files = [
            path
            for path in sorted((folder / name).rglob("*"))
            if path.suffix.lower() in PICTURES and path.name[0] != "." and path.is_file()
        ]
        if not files:
            raise DataError(f"{folder / name} holds no picture ({', '.join(PICTURES)})")
        found |= dict.fromkeys(files, classes.index(name))
    return found


def _training_preprocess(
    files: dict[Path, int], like: dict[str, Any], skip_bad: bool
) -> dict[str, Any]:
    """With mean and std of the training pictures, decoded only if they were not just loaded."""
    key = _fingerprint(files, like)
    if key not in _measurements:
        images, _ = images_from_files(files, like, skip_bad, reshaped=[])
        _measurements[key] = like | measured(images)
    return _measurements[key]


def _fingerprint(files: dict[Path, int], like: dict[str, Any]) -> object:
    """Tells whether the same files, unchanged, were measured in the same shape."""
    facts = [(path, path.stat()) for path in files]
    contents = tuple((str(path), fact.st_mtime_ns, fact.st_size) for path, fact in facts)
    return hash(contents), tuple(like["shape"])
