"""A histogram of millions of points in the plane, each bin with its exact moments."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]
CHUNK = 1 << 21


class Grid(NamedTuple):
    """Bins of equal width in z = u / (2 + |u|), u = (x - center) / width, which spares long tails.

    `low` and `step` are those of z; `side` is the number of bins along each axis.
    """

    center: Array
    width: Array
    low: Array
    step: Array
    side: int


class Histogram(NamedTuple):
    """Bins that hold points: numbers, sizes (in points), means, covariances (xx, xy, yy)."""

    number: NDArray[np.int64]
    size: Array
    mean: Array
    covariance: Array


def made_grid(x: Tensor, y: Tensor, side: int) -> Grid:
    """A grid over all points, centred and scaled by mean and standard deviation."""
    center = np.array([float(t.mean(dtype=torch.float64)) for t in (x, y)])
    width = np.array([float(t.std(correction=0)) for t in (x, y)])
    width = np.where(width > 0, width, 1e-3 * np.abs(center) + 1e-12)
    ends = np.array([[float(t.min()), float(t.max())] for t in (x, y)])
    u = (ends - center[:, None]) / width[:, None]
    z = u / (2 + np.abs(u))
    step = np.maximum(z[:, 1] - z[:, 0], 1e-12) / side * (1 + 1e-6)
    return Grid(center, width, z[:, 0], step, side)


def bin_numbers(x: Tensor, y: Tensor, grid: Grid) -> Tensor:
    """The number of each point's bin."""
    parts = []
    for axis, values in enumerate((x, y)):
        u = (values - grid.center[axis]).mul_(1 / grid.width[axis])
        z = u.div_(u.abs().add_(2))
        place = z.sub_(grid.low[axis]).mul_(1 / grid.step[axis]).to(torch.int32)
        parts.append(place.clamp_(0, grid.side - 1))
    number: Tensor = parts[0].mul_(grid.side).add_(parts[1])
    return number


def row_lookup(bins: Histogram, grid: Grid, device: torch.device) -> Tensor:
    """For every bin of the grid its row among the bins that hold points; 0 for the others."""
    row_of = torch.zeros(grid.side**2, dtype=torch.int64)
    row_of[torch.from_numpy(bins.number)] = torch.arange(len(bins.number))
    return row_of.to(device)


def filled_bins(x: Tensor, y: Tensor, grid: Grid) -> Histogram:
    """Counts and exact moments of all bins that hold points, summed in float64."""
    sums = torch.zeros(6, grid.side**2, dtype=torch.float64, device=x.device)
    for part in chunks(len(x)):
        number = bin_numbers(x[part], y[part], grid).long()
        u, v = (t[part].double() - c for t, c in zip((x, y), grid.center, strict=True))
        for row, values in enumerate((torch.ones_like(u), u, v, u * u, u * v, v * v)):
            sums[row].index_add_(0, number, values)
    totals = sums.cpu().numpy()
    occupied = np.flatnonzero(totals[0]).astype(np.int64)
    count, u, v, uu, uv, vv = totals[:, occupied]
    mean = np.stack([u, v], 1) / count[:, None]
    second = np.stack([uu, uv, vv], 1) / count[:, None]
    covariance = second - products(mean)
    covariance[:, [0, 2]] = covariance[:, [0, 2]].clip(0)
    return Histogram(occupied, count, mean + grid.center, covariance)


def products(vectors: Array) -> Array:
    """Xx, xy and yy of each vector."""
    x, y = vectors[:, 0], vectors[:, 1]
    return np.stack([x * x, x * y, y * y], 1)


def chunks(length: int, size: int = CHUNK) -> Iterator[slice]:
    """Slices of at most `size` that cover the length."""
    return (slice(i, i + size) for i in range(0, length, size))


def scaled(bins: Histogram, factor: Array) -> Histogram:
    """The same bins with each axis multiplied by its factor."""
    return bins._replace(
        mean=bins.mean * factor, covariance=bins.covariance * products(factor[None])
    )
