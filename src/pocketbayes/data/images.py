"""Images that live on the training device as bytes; crop, flip and normalise happen there."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class ImageSet:
    """uint8 images (N, channels, height, width), labels (N,), and how a model wants them.

    `preprocess` holds per-channel "mean" and "std" of pixel values scaled to 0..1.
    """

    images: Tensor
    labels: Tensor
    preprocess: dict[str, Any]
    classes: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device | str) -> "ImageSet":
        """The same images on a device."""
        return ImageSet(
            self.images.to(device), self.labels.to(device), self.preprocess, self.classes
        )


class ImageLoader:
    """Batches of an `ImageSet`, made on its device without workers.

    With `augment`: shuffled, each image cropped at random from a border of four zeros and
    mirrored with probability 1/2, and an incomplete last batch is left out.
    """

    def __init__(
        self, dataset: ImageSet, batch_size: int, augment: bool = False, channels_last: bool = True
    ) -> None:
        self.dataset, self.batch_size, self.augment = dataset, batch_size, augment
        self.format = torch.channels_last if channels_last else torch.contiguous_format

    def __len__(self) -> int:
        whole, rest = divmod(len(self.dataset), self.batch_size)
        return whole if self.augment or not rest else whole + 1

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        images, labels = self.dataset.images, self.dataset.labels
        order = torch.arange(len(labels), device=images.device)
        if self.augment:
            order = torch.randperm(len(labels), device=images.device)
        for number in range(len(self)):
            chosen = order[number * self.batch_size : (number + 1) * self.batch_size]
            batch = images[chosen]
            if self.augment:
                batch = cropped_and_mirrored(batch)
            yield self.normalised(batch), labels[chosen]

    def normalised(self, images: Tensor) -> Tensor:
        """(x / 255 - mean) / std per channel, as float32."""
        mean, std = (
            torch.tensor(self.dataset.preprocess[name], device=images.device).view(-1, 1, 1) * 255
            for name in ("mean", "std")
        )
        return ((images.float() - mean) / std).contiguous(memory_format=self.format)


def cropped_and_mirrored(images: Tensor, border: int = 4) -> Tensor:
    """Each image at its own offset in a border of zeros, every second one (at random) mirrored."""
    count, channels, height, width = images.shape
    device = images.device
    padded = F.pad(images, (border,) * 4)
    top, left = torch.randint(2 * border + 1, (2, count, 1), device=device)
    rows = top + torch.arange(height, device=device)
    columns = left + torch.arange(width, device=device)
    mirrored = torch.rand(count, 1, device=device) < 0.5
    columns = torch.where(mirrored, columns.flip(1), columns)
    return padded[
        torch.arange(count, device=device).view(-1, 1, 1, 1),
        torch.arange(channels, device=device).view(1, -1, 1, 1),
        rows.view(count, 1, height, 1),
        columns.view(count, 1, 1, width),
    ]
