"""Pure functions on batches of float images: blur, zoom, resize, look up other places."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

_SMALLEST_WEIGHT = 1e-5


def separable(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """rows @ image @ columns.T for each channel of each image."""
    return torch.matmul(rows, torch.matmul(images, columns.T))


def folded(places: Tensor, size: int, border: str) -> Tensor:
    """Places beside 0 .. size-1 as places inside.

    With "edge" it is the nearest, with "reflect" the image is mirrored at the centres of its
    outermost pixels, with "symmetric" at their outer edges.
    """
    if border == "edge":
        return places.clamp(0, size - 1)
    if border == "reflect":
        period = max(1, 2 * size - 2)
        places = places.remainder(period)
        return torch.minimum(places, period - places) if size > 1 else places
    places = places.remainder(2 * size)
    return torch.minimum(places, 2 * size - 1 - places)


def filtered(images: Tensor, kernel: Tensor, border: str) -> Tensor:
    """Each pixel as the sum of those around it, weighted by a kernel of odd sides."""
    height, width = images.shape[2:]
    reach = [side // 2 for side in kernel.shape]
    for dim, (size, beyond) in enumerate(zip((height, width), reach, strict=True), start=2):
        places = torch.arange(-beyond, size + beyond, device=images.device)
        images = images.index_select(dim, folded(places, size, border))
    total = torch.zeros_like(images[:, :, :height, :width])
    for (down, right), weight in zip(
        kernel.nonzero().tolist(), kernel[kernel != 0].tolist(), strict=True
    ):
        total.add_(images[:, :, down : down + height, right : right + width], alpha=weight)
    return total


def bell(std: float, reach: int) -> Tensor:
    """A Gaussian at -reach .. reach, with sum 1."""
    if reach == 0:
        return torch.ones(1, dtype=torch.float64)
    weights = torch.exp(-0.5 * (torch.arange(-reach, reach + 1).double() / std).square())
    return weights / weights.sum()


def disk(radius: float, std: float) -> Tensor:
    """A disk of whole pixels, with sum 1, its edge softened by a Gaussian over 3 x 3 pixels."""
    reach = int(radius) + 1
    squares = torch.arange(-reach, reach + 1).square()
    inside = (squares[:, None] + squares <= radius**2).double()
    soft = bell(std, 1)
    kernel = F.conv2d((inside / inside.sum())[None, None], torch.outer(soft, soft)[None, None],
                      padding=1)  # fmt: skip
    return kernel[0, 0]


def bell_matrix(size: int, std: float, truncate: float, border: str) -> Tensor:
    """The matrix that blurs `size` pixels by a Gaussian that ends at truncate * std."""
    weights = bell(std, int(truncate * std + 0.5))
    reach = len(weights) // 2
    matrix = torch.zeros(size, size, dtype=torch.float64)
    for step, weight in enumerate(weights.tolist(), start=-reach):
        places = folded(torch.arange(size) + step, size, border)
        matrix[torch.arange(size), places] += weight
    return matrix.float()


def blurred(images: Tensor, std: float, truncate: float = 4.0, border: str = "edge") -> Tensor:
    """The images blurred by a Gaussian."""
    height, width = (bell_matrix(n, std, truncate, border) for n in images.shape[2:])
    return separable(images, height.to(images.device), width.to(images.device))


def zoom_sizes(size: int, factor: float) -> tuple[int, int]:
    """How many pixels of the middle are enlarged, and to how many."""
    kept = math.ceil(size / factor)
    return kept, round(kept * factor)


def zoom_matrix(size: int, kept: int, made: int) -> Tensor:
    """The matrix that enlarges the middle of `size` pixels, ends to ends, and cuts to size."""
    cut = (made - size) // 2
    step = (kept - 1) / max(1, made - 1)
    places = (size - kept) // 2 + torch.arange(cut, cut + size).double() * step
    distances = (places[:, None] - torch.arange(size)).abs()
    return (1 - distances).clamp_(min=0).float()


def box_matrix(size: int, wanted: int) -> Tensor:
    """The matrix that makes `wanted` pixels of `size`: means of those with centres inside.

    Ties are decided by rounding errors, so the arithmetic is in the order of Pillow's.
    """
    scale = size / wanted
    wide = max(1.0, scale)
    centres = ((torch.arange(wanted).double() + 0.5) * scale)[:, None]
    places = torch.arange(size)
    distances = (places - centres + 0.5) * (1 / wide)
    begins, ends = (centres - wide * 0.5 + 0.5).floor(), (centres + wide * 0.5 + 0.5).floor()
    inside = (places >= begins) & (places < ends) & (distances > -0.5) & (distances <= 0.5)
    covered = inside.double()
    return (covered / covered.sum(1, keepdim=True)).float()


def motion_blurred(images: Tensor, radius: int, std: float, degrees: Tensor) -> Tensor:
    """Each image smeared along its own direction, by half a Gaussian over 2 * radius + 1 pixels.

    As ImageMagick's: pixels are looked up at whole places, and are those of the edge outside.
    """
    height, width = images.shape[2:]
    weights = torch.exp(-0.5 * (torch.arange(2 * radius + 1).double() / std).square())
    radians = torch.deg2rad(degrees.double())
    total = torch.zeros_like(images)
    for step, weight in enumerate((weights / weights.sum()).tolist()):
        if weight > _SMALLEST_WEIGHT:
            down = torch.ceil(step * radians.sin() - 0.5).long()
            right = torch.ceil(step * radians.cos() - 0.5).long()
            rows = torch.arange(height, device=images.device) + down[:, None]
            columns = torch.arange(width, device=images.device) + right[:, None]
            total.add_(looked_up(images, rows[:, :, None], columns[:, None, :]), alpha=weight)
    return total


def looked_up(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The pixels at these whole places, which broadcast to (images, height, width)."""
    count, channels, height, width = images.shape
    places = rows.clamp(0, height - 1) * width + columns.clamp(0, width - 1)
    places = places.view(count, 1, -1).expand(-1, channels, -1)
    return images.flatten(2).gather(2, places).view(images.shape)


def sampled(images: Tensor, rows: Tensor, columns: Tensor, border: str) -> Tensor:
    """Linear interpolation at places (images, height, width); border "reflect" or "symmetric"."""
    at_centres = border == "reflect"
    scaled = [
        2 * places / max(1, size - 1) - 1 if at_centres else (2 * places + 1) / size - 1
        for places, size in ((columns, images.shape[3]), (rows, images.shape[2]))
    ]
    grid = torch.stack(scaled, 3).to(images.dtype)
    return F.grid_sample(images, grid, padding_mode="reflection", align_corners=at_centres)
