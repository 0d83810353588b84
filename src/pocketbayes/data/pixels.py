"""Pure functions on batches of byte images: normalise, augment, change channels and size."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from pocketbayes.errors import DataError

BORDER = 4
LARGEST_SIDE = 4096
# ITU-R 601 luma in 1/65536, rounded: the very integers of Pillow's convert("L").
_LUMA = (19595, 38470, 7471)
_PIXELS_AT_A_TIME = 1 << 24


class ImageForm(NamedTuple):
    """A checked preprocess: the shape a model wants and the scale of each channel."""

    channels: int
    height: int
    width: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crops: bool


def image_form(preprocess: Any) -> ImageForm:
    """The contents of an image preprocess, each checked: it may come from a stranger's file."""
    if not isinstance(preprocess, dict) or preprocess.get("kind") != "image":
        kind = preprocess.get("kind") if isinstance(preprocess, dict) else preprocess
        raise DataError(f"images need a preprocess of kind 'image'; this one is {kind!r}")
    shape: Any = preprocess.get("shape")
    mean: Any = preprocess.get("mean")
    std: Any = preprocess.get("std")
    if not (
        isinstance(shape, list | tuple)
        and len(shape) == 3
        and all(type(side) is int and 1 <= side <= LARGEST_SIDE for side in shape)
    ):
        raise DataError(
            f"the preprocess has shape {shape!r}; it must be [channels, height, width], each a "
            f"whole number from 1 to {LARGEST_SIDE}"
        )
    for name, values in (("mean", mean), ("std", std)):
        if not (isinstance(values, list | tuple) and len(values) == shape[0]) or not all(
            type(v) in (int, float) and math.isfinite(v) and (name == "mean" or v > 0)
            for v in values
        ):
            raise DataError(
                f"the preprocess has {name} {values!r}; it must be {shape[0]} finite numbers, "
                "one per channel" + (", above 0" if name == "std" else "")
            )
    resize = preprocess.get("resize", "stretch")
    if resize not in ("stretch", "crop"):
        raise DataError(f"the preprocess has resize {resize!r}; it must be 'stretch' or 'crop'")
    channels, height, width = shape
    return ImageForm(channels, height, width, tuple(mean), tuple(std), resize == "crop")


def measured(images: Tensor) -> dict[str, Any]:
    """The preprocess of these byte images: their shape, and mean and std of each channel."""
    levels = torch.arange(256, dtype=torch.float64) / 255
    mean, std = [], []
    for channel in images.unbind(1):
        counts = torch.bincount(channel.flatten(), minlength=256).cpu().double()
        centre = float(counts @ levels) / channel.numel()
        spread = math.sqrt(float(counts @ (levels - centre).square()) / channel.numel())
        mean.append(centre)
        std.append(spread if spread > 1e-6 else 1.0)
    return image_preprocess(tuple(images.shape[1:]), mean, std)


def image_preprocess(shape: Sequence[int], mean: list[float], std: list[float]) -> dict[str, Any]:
    """How images of a data set are prepared; those of another shape are to be cut to it."""
    return {
        "kind": "image", "shape": list(shape), "mean": mean, "std": std, "resize": "crop"
    }  # fmt: skip


def channel_scale(preprocess: dict[str, Any], device: torch.device) -> tuple[Tensor, Tensor]:
    """Mean and std of each channel in units of bytes, shaped to go with (N, C, H, W)."""
    mean, std = (
        torch.tensor(preprocess[name], dtype=torch.float32, device=device).view(-1, 1, 1) * 255
        for name in ("mean", "std")
    )
    return mean, std


def normalised(images: Tensor, preprocess: dict[str, Any]) -> Tensor:
    """(x / 255 - mean) / std per channel as float32; colour images are channels_last."""
    return scaled(images, *channel_scale(preprocess, images.device))


def scaled(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """(x - mean) / std as float32; colour images are channels_last."""
    values = (images.float() - mean) / std
    return values.contiguous(memory_format=torch.channels_last) if len(mean) > 1 else values


def augmented(images: Tensor, kinds: tuple[str, ...], border: int = BORDER) -> Tensor:
    """Each image at its own random place in a border of zeros, mirrored with probability 1/2.

    `kinds` holds "crop", "mirror", both or neither; others are no matter of bytes. One gather does
    it: on two CPU cores this took a sixth of the time of indexing with one tensor per dimension.
    """
    count, channels, height, width = images.shape
    device = images.device
    rows = torch.arange(height, device=device).expand(count, -1)
    columns = torch.arange(width, device=device).expand(count, -1)
    if "mirror" in kinds:
        turned = torch.rand(count, 1, device=device) < 0.5
        columns = torch.where(turned, columns.flip(1), columns)
    if "crop" in kinds:
        images = F.pad(images, (border,) * 4)
        top, left = torch.randint(2 * border + 1, (2, count, 1), device=device)
        rows, columns = rows + top, columns + left
    places = rows.unsqueeze(2) * images.shape[3] + columns.unsqueeze(1)
    places = places.view(count, 1, -1).expand(-1, channels, -1)
    return images.flatten(2).gather(2, places).view(count, channels, height, width)


def cut_out(images: Tensor) -> Tensor:
    """Each normalised image without one square of half its side: 0, the mean colour, is left there.

    The middle of the square is anywhere in the image, so part of it may lie outside.
    """
    count, _, height, width = images.shape
    beyond_rows = _beyond_window(count, height, images.device).unsqueeze(2)
    beyond_columns = _beyond_window(count, width, images.device).unsqueeze(1)
    return images * (beyond_rows | beyond_columns).unsqueeze(1)


def _beyond_window(count: int, length: int, device: torch.device) -> Tensor:
    """Per image, the places of a side that lie outside a window of half its length."""
    first = torch.randint(length, (count, 1), device=device) - length // 4
    places = torch.arange(length, device=device)
    return (places < first) | (places >= first + length // 2)


def in_channels(images: Tensor, channels: int) -> Tensor:
    """The images with that many channels: grey is repeated, colour becomes its luma."""
    has = images.shape[1]
    if has == channels:
        return images
    if has == 1 and channels == 3:
        return images.repeat(1, 3, 1, 1)
    if has == 3 and channels == 1:
        red, green, blue = images.int().unbind(1)
        luma = red * _LUMA[0] + green * _LUMA[1] + blue * _LUMA[2] + (1 << 15)
        return (luma >> 16).to(torch.uint8).unsqueeze(1)
    raise DataError(
        f"the images have {has} channels and the model wants {channels}; only grey (1) and "
        "colour (3) can be turned into each other"
    )


def resized(images: Tensor, height: int, width: int, crops: bool = False) -> Tensor:
    """The images in another size, antialiased; with `crops` none is stretched, edges are cut."""
    was = tuple(images.shape[2:])
    if was == (height, width):
        return images
    size = covering_size(was, (height, width)) if crops else (height, width)
    per_image = images[0].numel() + images.shape[1] * math.prod(size)
    parts = [
        F.interpolate(part.float(), size, mode="bilinear", antialias=True)
        .round_()
        .clamp_(0, 255)
        .to(torch.uint8)
        for part in torch.split(images, max(1, _PIXELS_AT_A_TIME // per_image))
    ]
    top, left = (size[0] - height) // 2, (size[1] - width) // 2
    return torch.cat(parts)[:, :, top : top + height, left : left + width].contiguous()


def covering_size(was: tuple[int, ...], wanted: tuple[int, int]) -> tuple[int, int]:
    """The least (height, width) in the proportions of `was` that covers the wanted one."""
    factor = max(wanted[0] / was[0], wanted[1] / was[1])
    return max(wanted[0], round(was[0] * factor)), max(wanted[1], round(was[1] * factor))
