"""SVHN's house numbers, cut to single digits, from its .mat files or from .npz files."""

from pathlib import Path

import numpy as np
import torch

from pocketbayes.data.files import (
    Bytes,
    Labels,
    checked_labels,
    first_complete,
    labelled_images_of_npz,
    reading,
    require_root,
    require_split,
)
from pocketbayes.data.images import ImageSet
from pocketbayes.data.pixels import image_preprocess
from pocketbayes.errors import DataError

_HOME = "http://ufldl.stanford.edu/housenumbers/"


def svhn(split: str, root: Path | None) -> ImageSet:
    """Digits of house numbers, 32 x 32 in colour: 73,257 to train on and 26,032 to test.

    Args:
        split: "train" or "test".
        root: the folder of train_32x32.mat and test_32x32.mat, or of svhn_train.npz and
            svhn_test.npz; or one above "svhn".
    """
    folder = require_root(root, "svhn")
    names = (f"{require_split(split, 'svhn')}_32x32.mat", f"svhn_{split}.npz")
    places = [(folder / below / name,) for below in ("svhn", "SVHN", ".") for name in names]
    (path,) = first_complete(places, f"the {split} images of svhn", _HOME)
    if path.suffix == ".npz":
        images, labels = labelled_images_of_npz(path, (32, 32, 3), classes=10)
    else:
        images, labels = read_mat(path)
    mean, std = [0.4377, 0.4438, 0.4728], [0.1980, 0.2010, 0.1970]
    preprocess = image_preprocess((3, 32, 32), mean, std)
    return ImageSet(
        torch.from_numpy(images),
        torch.from_numpy(labels),
        preprocess,
        tuple("0123456789"),
        augmentation=("crop",),
    )


def read_mat(path: Path) -> tuple[Bytes, Labels]:
    """Images (N, 3, 32, 32) and labels of a .mat file, where a zero is written as 10."""
    from scipy.io import loadmat  # type: ignore[import-untyped]

    with reading(path, "a .mat file of X and y"):
        content = loadmat(path, variable_names=("X", "y"))
        images, labels = np.asarray(content["X"]), np.asarray(content["y"])
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[:3] != (32, 32, 3):
        raise DataError(
            f"{path}: X is {images.dtype} of shape {images.shape}; it must be uint8 of "
            "(32, 32, 3, N)"
        )
    checked = checked_labels(path, labels.reshape(-1), images.shape[3], classes=11)
    return np.ascontiguousarray(images.transpose(3, 2, 0, 1)), checked % 10
