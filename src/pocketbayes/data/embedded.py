"""Data that comes with scikit-learn: digits to learn, and photographs that are no digits."""

from pathlib import Path

import numpy as np
import torch

from pocketbayes.data.files import require_split
from pocketbayes.data.images import ImageSet
from pocketbayes.data.pixels import in_channels, measured
from pocketbayes.errors import optional_module

_TRAIN_DIGITS = 1287  # where the labels begin anew with 0..9, 0..9: another writer
_SIDE, _PATCHES, _PATCH_SEED = 8, 1000, 8


def digits(split: str, root: Path | None) -> ImageSet:
    """Handwritten digits, 8 x 8 grey: 1,287 to train on and 510 to test; no files are needed.

    Neighbours come from one writer, so the test set is the last of them, not a random part.

    Args:
        split: "train" or "test".
        root: not needed.
    """
    require_split(split, "digits")
    bunch = optional_module("sklearn.datasets", extra="demo").load_digits()
    levels = torch.from_numpy(bunch.images).float()
    images = (levels * 255 / 16).round().to(torch.uint8).unsqueeze(1)
    labels = torch.from_numpy(np.asarray(bunch.target, dtype=np.int64))
    part = slice(_TRAIN_DIGITS) if split == "train" else slice(_TRAIN_DIGITS, None)
    preprocess = measured(images[:_TRAIN_DIGITS])
    return ImageSet(images[part], labels[part], preprocess, tuple("0123456789"))


def photo_patches(split: str, root: Path | None) -> ImageSet:
    """Pieces of two photographs, 8 x 8 grey: 1,000 examples of what is not a digit.

    They are a stand-in for unknown inputs, so there is only a test split and one label.

    Args:
        split: "test".
        root: not needed.
    """
    require_split(split, "photo-patches", ("test",))
    photographs = optional_module("sklearn.datasets", extra="demo").load_sample_images().images
    patches = torch.cat([_grid_of_patches(np.asarray(photo)) for photo in photographs])
    rng = np.random.default_rng(_PATCH_SEED)
    chosen = np.sort(rng.choice(len(patches), _PATCHES, replace=False))
    images = patches[torch.from_numpy(chosen)]
    labels = torch.zeros(_PATCHES, dtype=torch.int64)
    return ImageSet(images, labels, measured(images), ("photo",))


def _grid_of_patches(photo: np.ndarray) -> torch.Tensor:
    """Grey squares side by side, (N, 1, 8, 8), of a photograph (height, width, 3)."""
    grey = in_channels(torch.from_numpy(photo.copy()).permute(2, 0, 1).unsqueeze(0), 1)[0, 0]
    squares = grey.unfold(0, _SIDE, _SIDE).unfold(1, _SIDE, _SIDE)
    return squares.reshape(-1, 1, _SIDE, _SIDE).contiguous()
