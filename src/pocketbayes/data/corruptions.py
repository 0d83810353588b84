"""The 15 corruptions of CIFAR-10-C, at the strengths published for CIFAR, on byte images.

Hendrycks and Dietterich (2019), "Benchmarking neural network robustness to common corruptions
and perturbations". Only the numbers are theirs; docs/metrics.md says what differs.
"""

from collections import Counter
from collections.abc import Callable
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from pocketbayes.data.draws import Draws
from pocketbayes.data.filters import (
    blurred,
    box_matrix,
    disk,
    filtered,
    looked_up,
    motion_blurred,
    sampled,
    separable,
    zoom_matrix,
    zoom_sizes,
)
from pocketbayes.data.weather import fog, frost, snow
from pocketbayes.errors import DataError, nearest
from pocketbayes.posteriors import mixed_seed

SEVERITIES = (1, 2, 3, 4, 5)
_VALUES_AT_A_TIME = 1 << 21
_ROUNDING_ERROR = 1e-3


class Corruption(NamedTuple):
    """What is done to float images in 0 .. 255, and its numbers at each severity."""

    apply: Callable[..., Tensor]
    settings: tuple[tuple[Any, ...], ...]


def corrupted(images: Tensor, name: str, severity: int, seed: int = 0, first: int = 0) -> Tensor:
    """The images as they would be in CIFAR-10-C, as bytes on the same device.

    What is random depends on the seed, the severity and the number of an image, not on the
    others of the batch: images 500 .. 999 alone, with first=500, are those of the whole set.
    A GPU draws the same numbers too. Only the last bit of a sum may differ with the batch or
    the device, which at times moves a value by one level.

    Args:
        images: uint8 of (N, 1 or 3, height, width).
        name: one of `CORRUPTIONS`.
        severity: 1 (mild) to 5.
        seed: another one, other noise.
        first: the number of the first image.

    Example:
        >>> corrupted(torch.zeros(2, 3, 32, 32, dtype=torch.uint8), "fog", severity=3).shape
        torch.Size([2, 3, 32, 32])
    """
    _check(images, name, severity, seed, first)
    if images.numel() == 0:
        return images.clone()
    apply, settings = CORRUPTIONS[name]
    mixed = mixed_seed(seed, list(CORRUPTIONS).index(name), severity)
    made = []
    with torch.autocast(images.device.type, enabled=False):
        for part in torch.split(images, max(1, _VALUES_AT_A_TIME // images[0].numel())):
            draws = Draws(mixed, first, len(part), part.device)
            made.append(_as_bytes(apply(part.float(), draws, *settings[severity - 1])))
            first += len(part)
    return torch.cat(made)


def _check(images: Tensor, name: str, severity: int, seed: int, first: int) -> None:
    if not isinstance(name, str) or name not in CORRUPTIONS:
        known = ", ".join(CORRUPTIONS)
        hint = nearest(name, CORRUPTIONS)
        raise DataError(f"there is no corruption {name!r}{hint}; there are {known}")
    if type(severity) is not int or severity not in SEVERITIES:
        raise DataError(f"severity must be a whole number from 1 to 5; got {severity!r}")
    for word, number in (("seed", seed), ("first", first)):
        if type(number) is not int or number < 0:
            raise DataError(f"{word} must be a whole number of at least 0; got {number!r}")
    if not isinstance(images, Tensor):
        raise DataError(f"images must be a tensor; got a {type(images).__name__}")
    if images.dtype != torch.uint8 or images.dim() != 4 or images.shape[1] not in (1, 3):
        raise DataError(
            f"images are {images.dtype} of shape {tuple(images.shape)}; they must be uint8 of "
            "(N, 1 or 3, height, width), before any normalisation"
        )


def _as_bytes(values: Tensor) -> Tensor:
    """Cut off, not rounded, as the published images are."""
    return (values + _ROUNDING_ERROR).clamp_(0, 255).to(torch.uint8)


def gaussian_noise(images: Tensor, draws: Draws, std: float) -> Tensor:
    """Normal noise on every value."""
    return images.add(draws.normal(*images.shape[1:]), alpha=255 * std)


def shot_noise(images: Tensor, draws: Draws, photons: int) -> Tensor:
    """Each value as a Poisson count; a full one has this many photons on average.

    Bytes have 256 levels, so the counts are looked up in their distribution functions, which
    lie one behind another: level + P(count <= k), for the k that are not cut off.
    """
    levels = torch.arange(256, device=images.device, dtype=torch.float64)[:, None]
    counts = torch.arange(photons, device=images.device, dtype=torch.float64)
    at_most = torch.special.gammaincc(counts + 1, levels * (photons / 255))
    wanted = draws.uniform(*images.shape[1:]).add_(images)
    found = torch.searchsorted((levels + at_most).flatten(), wanted, right=True)
    drawn = (found - images.long() * photons).clamp_(0, photons)
    return drawn.double().mul_(255 / photons)


def impulse_noise(images: Tensor, draws: Draws, share: float) -> Tensor:
    """A share of all values becomes black or white."""
    chance = draws.uniform(*images.shape[1:])
    return images.masked_fill(chance < share, 255).masked_fill(chance < share / 2, 0)


def defocus_blur(images: Tensor, draws: Draws, radius: float, softness: float) -> Tensor:
    """Each pixel as a disk."""
    return filtered(images, disk(radius, softness), "reflect")


def glass_blur(images: Tensor, draws: Draws, std: float, rounds: int) -> Tensor:
    """Pixels replaced by near ones, between two blurs.

    The published code means to swap two pixels; as its arrays share memory it copies one over
    the other, and so does this. As it goes from the last pixel to the first and copies from
    before, all can be copied at once.
    """
    height, width = images.shape[2:]
    images = (blurred(images, std) + _ROUNDING_ERROR).floor()
    rows = torch.arange(height, device=images.device)[:, None]
    columns = torch.arange(width, device=images.device)
    inside = (rows >= 2) & (columns >= 2)
    for _ in range(rounds):
        up, left = ((draws.uniform(2, height, width) < 0.5) & inside).long().unbind(1)
        images = looked_up(images, rows - up, columns - left)
    return blurred(images, std)


def motion_blur(images: Tensor, draws: Draws, radius: int, std: float) -> Tensor:
    """Each image smeared in its own direction, at most 45 degrees from the horizontal."""
    return motion_blurred(images, radius, std, draws.uniform(1).squeeze(1) * 90 - 45).round_()


def zoom_blur(images: Tensor, draws: Draws, steps: int) -> Tensor:
    """The mean of the image and of itself enlarged by 0, 1, 2, ... per cent.

    Many factors give the same whole numbers of pixels; each of those is made once.
    """
    sizes = images.shape[2:]
    factors = [1 + step * 0.01 for step in range(steps)]
    shapes = Counter(tuple(zoom_sizes(size, factor) for size in sizes) for factor in factors)
    total = images.clone()
    for shape, times in shapes.items():
        rows, columns = (
            zoom_matrix(size, *made).to(images.device)
            for size, made in zip(sizes, shape, strict=True)
        )
        total.add_(separable(images, rows, columns), alpha=times)
    return total / (steps + 1)


def brightness(images: Tensor, draws: Draws, more: float) -> Tensor:
    """The value of HSV, which is the largest channel, raised; hue and saturation stay."""
    value = images.amax(1, keepdim=True)
    raised = (value + 255 * more).clamp_(max=255)
    return torch.where(value > 0, images * (raised / value.clamp(min=1)), raised)


def contrast(images: Tensor, draws: Draws, kept: float) -> Tensor:
    """Each channel drawn towards its mean over the image."""
    return images.mean((2, 3), keepdim=True).lerp(images, kept)


def elastic_transform(
    images: Tensor, draws: Draws, strength: float, smoothness: float, corners: float
) -> Tensor:
    """A random affine map, then smooth random shifts; lengths are shares of the shorter side."""
    height, width = images.shape[2:]
    side = min(height, width)
    rows = torch.arange(height, device=images.device).double()[:, None]
    columns = torch.arange(width, device=images.device).double()
    middle = torch.tensor([height // 2, width // 2], device=images.device).double()
    signs = torch.tensor([[1, 1], [1, -1], [-1, -1]], device=images.device)
    before = middle + signs * max(1, side // 3)
    after = before + (2 * draws.uniform(3, 2) - 1) * (corners * side)
    known = torch.cat([after, torch.ones_like(after[:, :, :1])], 2)
    back = torch.linalg.solve(known, before.expand_as(after))[..., None, None]
    down, right = (back[:, 0, to] * rows + back[:, 1, to] * columns + back[:, 2, to]
                   for to in (0, 1))  # fmt: skip
    images = sampled(images, down, right, "reflect")
    if strength == 0:
        return images
    shifts = 2 * draws.uniform(2, height, width).float() - 1
    shifts = blurred(shifts, smoothness * side, 3.0, "symmetric") * (strength * side)
    return sampled(images, rows + shifts[:, 0], columns + shifts[:, 1], "symmetric")


def pixelate(images: Tensor, draws: Draws, scale: float) -> Tensor:
    """Made smaller and large again, without smoothing; whole bytes after each step, as Pillow's."""
    small = [max(1, int(size * scale)) for size in images.shape[2:]]
    for sizes in (small, list(images.shape[2:])):
        for dim in (3, 2):
            matrix = box_matrix(images.shape[dim], sizes[dim - 2]).to(images.device)
            images = images @ matrix.T if dim == 3 else matrix @ images
            images = images.add(0.5 + _ROUNDING_ERROR).floor_()
    return images


def jpeg_compression(images: Tensor, draws: Draws, quality: int) -> Tensor:
    """Each image as it comes back from a JPEG file."""
    made = []
    for image in images.to("cpu", torch.uint8).permute(0, 2, 3, 1).squeeze(3).numpy():
        file = BytesIO()
        Image.fromarray(np.ascontiguousarray(image)).save(file, "JPEG", quality=quality)
        made.append(np.asarray(Image.open(file)))
    back = torch.from_numpy(np.stack(made)).to(images)
    return back.unsqueeze(1) if images.shape[1] == 1 else back.permute(0, 3, 1, 2)


def _each(*numbers: float) -> tuple[tuple[float], ...]:
    return tuple((number,) for number in numbers)


CORRUPTIONS: dict[str, Corruption] = {
    "gaussian_noise": Corruption(gaussian_noise, _each(0.04, 0.06, 0.08, 0.09, 0.10)),
    "shot_noise": Corruption(shot_noise, _each(500, 250, 100, 75, 50)),
    "impulse_noise": Corruption(impulse_noise, _each(0.01, 0.02, 0.03, 0.05, 0.07)),
    "defocus_blur": Corruption(
        defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))
    ),
    "glass_blur": Corruption(glass_blur, ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))),
    "motion_blur": Corruption(motion_blur, ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5))),
    "zoom_blur": Corruption(zoom_blur, _each(7, 12, 16, 21, 26)),
    "snow": Corruption(
        snow,
        (
            (0.1, 0.2, 1.0, 0.6, 8, 3.0, 0.95),
            (0.1, 0.2, 1.0, 0.5, 10, 4.0, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4.0, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6.0, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12.0, 0.8),
        ),
    ),
    "frost": Corruption(frost, ((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))),
    "fog": Corruption(fog, ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))),
    "brightness": Corruption(brightness, _each(0.05, 0.1, 0.15, 0.2, 0.3)),
    "contrast": Corruption(contrast, _each(0.75, 0.5, 0.4, 0.3, 0.15)),
    "elastic_transform": Corruption(
        elastic_transform,
        ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    ),
    "pixelate": Corruption(pixelate, _each(0.95, 0.9, 0.85, 0.75, 0.65)),
    "jpeg_compression": Corruption(jpeg_compression, _each(80, 65, 58, 50, 40)),
}
