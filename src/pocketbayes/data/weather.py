"""Snow, frost and fog on batches of float images in 0 .. 255, as in CIFAR-10-C."""

import torch
import torch.nn.functional as F
from torch import Tensor

from pocketbayes.data.draws import Draws
from pocketbayes.data.filters import motion_blurred, separable, zoom_matrix, zoom_sizes

_LUMA = (0.299, 0.587, 0.114)
# Of the five photographs behind the published frost, as it samples them: mean of each channel,
# spread of the level of crops, and spread of the pixels in a crop.
_FROST, _FROST_LEVELS, _FROST_PIXELS = (146.0, 167.0, 179.0), 39.0, 22.0
_RIDGES, _NEEDLES, _GRAINS = 0.6, 0.4, 0.7
_NEEDLE_SHARE = 0.03


def snow(
    images: Tensor,
    draws: Draws,
    mean: float,
    std: float,
    zoom: float,
    least: float,
    radius: int,
    blur: float,
    kept: float,
) -> Tensor:
    """Flakes of bright noise, smeared downwards in two directions, over a paler image."""
    height, width = images.shape[2:]
    noise = mean + std * draws.normal(1, height, width)
    rows, columns = (
        zoom_matrix(n, *zoom_sizes(n, zoom)).to(images.device) for n in (height, width)
    )
    flakes = separable(noise, rows, columns)
    flakes = torch.where(flakes < least, 0, flakes.clamp(0, 1) * 255).floor()
    angle = draws.uniform(1).squeeze(1) * 90 - 135
    flakes = motion_blurred(flakes, radius, blur, angle).round()
    pale = torch.maximum(images, luma(images) * 1.5 + 127.5)
    return kept * images + (1 - kept) * pale + flakes + flakes.flip(2, 3)


def frost(images: Tensor, draws: Draws, kept: float, share: float) -> Tensor:
    """The image under a share of ice.

    The published corruption blends crops of photographs. This one draws its own texture, of
    about their colour, level and contrast: results are not comparable with published ones.
    """
    height, width = images.shape[2:]
    ice = _RIDGES * standardised(ridges(draws, height, width))
    ice += _NEEDLES * standardised(needles(draws, height, width))
    ice += _GRAINS * draws.normal(1, height, width)
    ice = _FROST_PIXELS * standardised(ice)
    colour = images.new_tensor(_FROST).view(1, 3, 1, 1)
    if images.shape[1] == 1:
        colour = luma(colour)
    level = _FROST_LEVELS * draws.normal(1, 1, 1)
    return kept * images + share * (colour + level + ice).clamp(0, 255)


def ridges(draws: Draws, height: int, width: int) -> Tensor:
    """(images, 1, height, width): sharp crests of smooth noise, on ever finer grids."""
    cells, weight, total = 2, 1.0, torch.zeros(())
    while cells <= max(4, min(height, width) // 2):
        noise = draws.uniform(1, cells + 2, cells + 2).float() * 2 - 1
        smooth = F.interpolate(noise, (height, width), mode="bicubic", align_corners=True)
        total = total.to(smooth) + weight * (1 - smooth.abs())
        cells, weight = cells * 2, weight * 0.7
    return total


def needles(draws: Draws, height: int, width: int) -> Tensor:
    """(images, 1, height, width): crystals, each with six arms, all turned the same way."""
    seeds = (draws.uniform(1, height, width) < _NEEDLE_SHARE).float()
    radius = max(2, min(height, width) // 8)
    turn = draws.uniform(1).squeeze(1) * 60
    arms = [motion_blurred(seeds, radius, radius / 1.5, turn + 60 * arm) for arm in range(6)]
    return torch.stack(arms).amax(0)


def standardised(images: Tensor) -> Tensor:
    """Each channel of each image with mean 0 and std 1; one without a spread is all 0."""
    middle = images.mean((2, 3), keepdim=True)
    return (images - middle) / images.std((2, 3), keepdim=True, correction=0).clamp_min(1e-6)


def fog(images: Tensor, draws: Draws, strength: float, decay: float) -> Tensor:
    """Clouds on top, then all of it darkened until the brightest pixel could be as bright again."""
    height, width = images.shape[2:]
    brightest = images.amax((1, 2, 3), keepdim=True)
    clouds = plasma(draws, max(height, width), decay)[:, None, :height, :width]
    darker = brightest / (brightest + 255 * strength)
    return (images + 255 * strength * clouds) * darker


def plasma(draws: Draws, size: int, decay: float) -> Tensor:
    """(images, side, side) in 0 .. 1: diamond-square clouds that repeat beyond their edges.

    The side is the next power of two. Noise shrinks by decay squared from one scale to the
    next finer one.
    """
    side = max(2, 1 << (size - 1).bit_length())
    corners, noise = draws.uniform(1, 1) * 0, 100.0
    while corners.shape[1] < side:
        count = corners.shape[1]
        shakes = (2 * draws.uniform(3, count, count) - 1).mul_(noise**2).unbind(1)
        below, beside = corners.roll(-1, 1), corners.roll(-1, 2)
        centres = (corners + below + beside + below.roll(-1, 2)) / 4 + shakes[0]
        tops = (corners + beside + centres + centres.roll(1, 1)) / 4 + shakes[1]
        sides = (corners + below + centres + centres.roll(1, 2)) / 4 + shakes[2]
        upper = torch.stack([corners, tops], 3).flatten(2)
        lower = torch.stack([sides, centres], 3).flatten(2)
        corners = torch.stack([upper, lower], 2).flatten(1, 2)
        noise /= decay
    least, most = corners.amin((1, 2), keepdim=True), corners.amax((1, 2), keepdim=True)
    return ((corners - least) / (most - least)).float()


def luma(images: Tensor) -> Tensor:
    """The grey of colour images; grey ones as they are."""
    if images.shape[1] == 1:
        return images
    return (images * images.new_tensor(_LUMA).view(1, 3, 1, 1)).sum(1, keepdim=True)
