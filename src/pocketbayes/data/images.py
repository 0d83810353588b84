"""Images that live on the training device as bytes; crop, mirror, cut, normalise happen there."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pocketbayes.data.pixels import (
    augmented,
    channel_scale,
    cut_out,
    image_form,
    in_channels,
    resized,
    scaled,
)
from pocketbayes.errors import DataError

Index = Tensor | NDArray[np.int64] | Sequence[int]


def row_numbers(index: Index, device: torch.device) -> Tensor:
    """An index as row numbers on a device; a mask becomes the rows where it is true."""
    rows = torch.as_tensor(index, device=device)
    return rows.nonzero().flatten() if rows.dtype == torch.bool else rows.long()


@dataclass(frozen=True, eq=False)
class ImageSet:
    """uint8 images (N, channels, height, width), labels (N,), and how a model wants them.

    Args:
        images: the pixels.
        labels: the class of each image, int64.
        preprocess: {"kind": "image", "shape": [C, H, W], "mean": [...], "std": [...]}, mean and
            std being those of each channel's pixels scaled to 0..1. A "resize" of "crop" says
            that images of other proportions are cut to shape; without it they are stretched.
        classes: the name of each class.
        augmentation: what leaves the class as it is, any of "crop", "mirror" and "cutout".
    """

    images: Tensor
    labels: Tensor
    preprocess: dict[str, Any]
    classes: tuple[str, ...] = ()
    augmentation: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.dim() != 4:
            raise DataError(
                f"images are {self.images.dtype} of shape {tuple(self.images.shape)}; they must "
                "be uint8 of (N, channels, height, width)"
            )
        if self.labels.dtype != torch.int64 or self.labels.shape != self.images.shape[:1]:
            raise DataError(
                f"labels are {self.labels.dtype} of shape {tuple(self.labels.shape)}; they must "
                f"be int64 of ({len(self.images)},)"
            )
        unknown = set(self.augmentation) - {"crop", "mirror", "cutout"}
        if unknown:
            raise DataError(f"augmentation is 'crop', 'mirror' or 'cutout', not {sorted(unknown)}")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def device(self) -> torch.device:
        """Where the images lie and batches are made."""
        return self.images.device

    @property
    def likelihood(self) -> str:
        """What the labels call for."""
        return "categorical"

    def to(self, device: torch.device | str) -> "ImageSet":
        """The same images on a device."""
        return replace(self, images=self.images.to(device), labels=self.labels.to(device))

    def subset(self, index: Index) -> "ImageSet":
        """The images with these row numbers."""
        rows = row_numbers(index, self.device)
        return replace(
            self, images=self.images.index_select(0, rows), labels=self.labels.index_select(0, rows)
        )

    def with_cutout(self) -> "ImageSet":
        """The same images, of which augmentation leaves a random square out as well."""
        kinds = dict.fromkeys((*self.augmentation, "cutout"))
        return replace(self, augmentation=tuple(kinds))

    @cached_property
    def _scale(self) -> tuple[Tensor, Tensor]:
        """Uploaded once, not with every batch; usable in training even if first used elsewhere."""
        with torch.inference_mode(False):
            return channel_scale(self.preprocess, self.device)

    def batch(self, index: Index, augment: bool = False) -> tuple[Tensor, Tensor]:
        """Normalised images and labels of these rows; augmented as fits the data, if asked."""
        rows = row_numbers(index, self.device)
        images = self.images.index_select(0, rows)
        if augment and self.augmentation:
            images = augmented(images, self.augmentation)
        inputs = scaled(images, *self._scale)
        if augment and "cutout" in self.augmentation:
            inputs = cut_out(inputs)
        return inputs, self.labels.index_select(0, rows)

    def fitted(self, preprocess: dict[str, Any]) -> "ImageSet":
        """The same images as a model with that preprocess wants them: channels, size and scale."""
        form = image_form(preprocess)
        images = in_channels(self.images, form.channels)
        images = resized(images, form.height, form.width, form.crops)
        return replace(self, images=images, preprocess=preprocess)
