"""CIFAR-10 and CIFAR-100, from their python batches or from .npz files."""

from pathlib import Path

import numpy as np
import torch

from pocketbayes.data.files import (
    Bytes,
    Labels,
    checked_labels,
    first_complete,
    labelled_images_of_npz,
    require_root,
    require_split,
)
from pocketbayes.data.images import ImageSet
from pocketbayes.data.pickles import read_batch
from pocketbayes.data.pixels import image_preprocess
from pocketbayes.errors import DataError

_HOME = "https://www.cs.toronto.edu/~kriz/cifar.html"
_BATCHES = {
    ("cifar10", "train"): tuple(f"data_batch_{number}" for number in range(1, 6)),
    ("cifar10", "test"): ("test_batch",),
    ("cifar100", "train"): ("train",),
    ("cifar100", "test"): ("test",),
}
_FOLDERS = {
    "cifar10": ("cifar-10-batches-py", "."),
    "cifar100": ("cifar-100-python", "."),
}
_CLASSES_10 = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
_HUNDRED_NAMES = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus
    butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch
    crab crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo
    keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse
    mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy
    porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper
    snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television
    tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""


def cifar10(split: str, root: Path | None) -> ImageSet:
    """Photographs of ten kinds of things, 32 x 32: 50,000 to train on and 10,000 to test.

    Args:
        split: "train" or "test".
        root: the folder of the python batches, one above "cifar-10-batches-py", or the folder of
            cifar10_train.npz and cifar10_test.npz.
    """
    mean, std = [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]
    return _photographs("cifar10", split, root, _CLASSES_10, mean, std)


def cifar100(split: str, root: Path | None) -> ImageSet:
    """Photographs of a hundred kinds of things, 32 x 32: 50,000 to train on and 10,000 to test.

    Args:
        split: "train" or "test".
        root: the folder of the python batches, one above "cifar-100-python", or the folder of
            cifar100_train.npz and cifar100_test.npz.
    """
    mean, std = [0.5071, 0.4865, 0.4409], [0.2673, 0.2564, 0.2762]
    return _photographs("cifar100", split, root, tuple(_HUNDRED_NAMES.split()), mean, std)


def _photographs(
    name: str,
    split: str,
    root: Path | None,
    classes: tuple[str, ...],
    mean: list[float],
    std: list[float],
) -> ImageSet:
    files = _found(name, require_split(split, name), require_root(root, name))
    if files[0].suffix == ".npz":
        images, labels = labelled_images_of_npz(files[0], (32, 32, 3), len(classes))
    else:
        batches = [read_labelled_batch(path, len(classes)) for path in files]
        images = np.concatenate([pixels for pixels, _ in batches])
        labels = np.concatenate([numbers for _, numbers in batches])
    preprocess = image_preprocess((3, 32, 32), mean, std)
    return ImageSet(
        torch.from_numpy(images),
        torch.from_numpy(labels),
        preprocess,
        classes,
        augmentation=("crop", "mirror"),
    )


def _found(name: str, split: str, root: Path) -> tuple[Path, ...]:
    batches = _BATCHES[name, split]
    places: list[tuple[Path, ...]] = [
        tuple(root / folder / batch for batch in batches) for folder in _FOLDERS[name]
    ]
    places += [(root / folder / f"{name}_{split}.npz",) for folder in (".", name)]
    return first_complete(places, f"the {split} images of {name}", _HOME)


def read_labelled_batch(path: Path, classes: int) -> tuple[Bytes, Labels]:
    """Images (N, 3, 32, 32) and labels of one python batch."""
    batch = read_batch(path)
    images = batch.get("data")
    labels = batch.get("labels" if classes == 10 else "fine_labels")
    if not isinstance(images, np.ndarray) or images.ndim != 2 or images.shape[1] != 3072:
        found = getattr(images, "shape", type(images).__name__)
        raise DataError(f"{path}: its 'data' is {found}; it must be bytes of (N, 3072)")
    if labels is None:
        raise DataError(f"{path} holds {sorted(batch)}: these are not the labels of this data set")
    return images.reshape(-1, 3, 32, 32), checked_labels(path, labels, len(images), classes)
