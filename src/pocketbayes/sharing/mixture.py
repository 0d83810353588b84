"""A mixture of two-dimensional Gaussians fitted to millions of points in a second.

Pure functions of arrays. Points go into the bins of a grid once, with exact moments; all the
fitting happens on bins, and each point then looks at the few components near its bin.
"""

from heapq import heappop, heappush
from math import log, pi
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pocketbayes.sharing.histogram import (
    CHUNK,
    Array,
    Grid,
    Histogram,
    bin_numbers,
    chunks,
    filled_bins,
    made_grid,
    products,
    row_lookup,
    scaled,
)

_FLOOR = 1e-6  # of a component's variance, in units of the whole cloud's


class Mixture(NamedTuple):
    """Components: weights that sum to 1, means and covariances (xx, xy, yy)."""

    weight: Array
    mean: Array
    covariance: Array


def fitted_mixture(
    x: Tensor, y: Tensor, components: int, side: int = 256, iterations: int = 8, nearest: int = 10
) -> tuple[Mixture, Grid, Histogram]:
    """Expectation maximisation on bins, from a weighted kd-split.

    Args:
        x: first coordinate of each point.
        y: second coordinate.
        components: how many Gaussians at most.
        side: bins along each axis.
        iterations: of expectation maximisation.
        nearest: components that a bin looks at.
    """
    grid = made_grid(x, y, side)
    bins = filled_bins(x, y, grid)
    scale = grid.width
    inner = scaled(bins, 1 / scale)
    mixture = split_bins(inner, components)
    known = 0
    for step in range(iterations):
        if step % 3 == 0 or len(mixture.weight) != known:  # empty ones are dropped as it goes
            near, known = nearest_components(inner.mean, mixture.mean, nearest), len(mixture.weight)
        mixture = improved(inner, mixture, near)
    return _scaled_mixture(mixture, scale), grid, bins


def _scaled_mixture(mixture: Mixture, factor: Array) -> Mixture:
    return mixture._replace(
        mean=mixture.mean * factor, covariance=mixture.covariance * products(factor[None])
    )


def split_bins(bins: Histogram, components: int) -> Mixture:
    """The Gaussian of each group that `split_labels` makes."""
    label = split_labels(bins, components)
    return from_shares(bins, label[:, None], np.ones((len(label), 1)), int(label.max()) + 1)


def split_labels(bins: Histogram, components: int) -> NDArray[np.int64]:
    """Halves the group of bins that spreads most, again and again, until there are enough."""
    everything = np.arange(len(bins.size))
    heap: list[tuple[float, int, NDArray[np.int64], int]] = []
    done: list[NDArray[np.int64]] = []
    _push(heap, bins, everything, 0)
    number = 1
    while heap and len(heap) + len(done) < components:
        _, _, members, axis = heappop(heap)
        order = members[np.argsort(bins.mean[members, axis], kind="stable")]
        before = np.cumsum(bins.size[order])
        cut = int(np.searchsorted(before, before[-1] / 2)) + 1
        cut = min(max(cut, 1), len(order) - 1)
        for half in (order[:cut], order[cut:]):
            if len(half) > 1:
                _push(heap, bins, half, number)
            else:
                done.append(half)
            number += 1
    groups = [members for _, _, members, _ in heap] + done
    label = np.empty(len(everything), dtype=np.int64)
    for index, members in enumerate(groups):
        label[members] = index
    return label


def _push(
    heap: list[tuple[float, int, NDArray[np.int64], int]],
    bins: Histogram,
    members: NDArray[np.int64],
    number: int,
) -> None:
    """Adds a group with its spread: count times variance along its longer axis."""
    count = bins.size[members]
    total = count.sum()
    mean = count @ bins.mean[members] / total
    spread = count @ ((bins.mean[members] - mean) ** 2)
    axis = int(spread[1] > spread[0])
    heappush(heap, (-(float(spread[axis]) ** 0.5) * total**0.5, number, members, axis))


def from_shares(
    bins: Histogram, label: NDArray[np.int64], share: Array, components: int
) -> Mixture:
    """The components whose moments are those of the bins' shares; empty ones are dropped.

    Args:
        bins: the data.
        label: the components that each bin is shared between, one row per bin.
        share: of the bin in each of those.
        components: their number.
    """

    def summed(values: Array) -> Array:
        return np.bincount(label.ravel(), values.ravel(), components).astype(np.float64)

    weight = share * bins.size[:, None]
    total = summed(weight)
    kept = total > 1e-9 * bins.size.sum()
    safe = np.where(kept, total, 1.0)
    mean = np.stack([summed(weight * bins.mean[:, [i]]) for i in range(2)], 1) / safe[:, None]
    apart = bins.mean[:, None] - mean[label]
    second = [
        summed(weight * (bins.covariance[:, [c]] + apart[..., i] * apart[..., j]))
        for c, (i, j) in enumerate(((0, 0), (0, 1), (1, 1)))
    ]
    covariance = np.stack(second, 1) / safe[:, None]
    covariance[:, [0, 2]] += _FLOOR
    return Mixture(total[kept] / total[kept].sum(), mean[kept], covariance[kept])


def nearest_components(points: Array, means: Array, count: int) -> NDArray[np.int64]:
    """The components whose means lie nearest to each place."""
    from scipy.spatial import cKDTree  # type: ignore[import-untyped]

    count = min(count, len(means))
    found = cKDTree(means).query(points, count, workers=-1)[1]
    return np.asarray(found, dtype=np.int64).reshape(len(points), count)


def log_densities(
    points: Array, mixture: Mixture, near: NDArray[np.int64], covariance: Array | None = None
) -> Array:
    """log [pi_k N(place; m_k, S_k)] for each place and the components it looks at.

    With a covariance C of points around each place it is the mean over those points: less
    tr(S_k^-1 C) / 2.
    """
    inverse, constant = _precision(mixture)
    a, b, c = (inverse[:, i][near] for i in range(3))
    u, v = (points[:, [i]] - mixture.mean[:, i][near] for i in range(2))
    uu, uv, vv = u * u, u * v, v * v
    if covariance is not None:
        uu, uv, vv = (t + covariance[:, [i]] for i, t in enumerate((uu, uv, vv)))
    values: Array = constant[near] - (a * uu + 2 * b * uv + c * vv) / 2
    return values


def _precision(mixture: Mixture) -> tuple[Array, Array]:
    """The inverse covariances (xx, xy, yy), and log pi - log(2 pi) - log det / 2."""
    xx, xy, yy = mixture.covariance.T
    determinant = xx * yy - xy * xy
    inverse = np.stack([yy, -xy, xx], 1) / determinant[:, None]
    return inverse, np.log(mixture.weight) - log(2 * pi) - np.log(determinant) / 2


def improved(bins: Histogram, mixture: Mixture, near: NDArray[np.int64]) -> Mixture:
    """One step of expectation maximisation."""
    values = log_densities(bins.mean, mixture, near, bins.covariance)
    values -= values.max(1, keepdims=True)
    share = np.exp(values)
    share /= share.sum(1, keepdims=True)
    return from_shares(bins, near, share, len(mixture.weight))


def assigned(
    x: Tensor, y: Tensor, mixture: Mixture, grid: Grid, bins: Histogram, candidates: int = 4
) -> Tensor:
    """The likeliest component of every point, among the likeliest few of its bin.

    In a bin each candidate's log-density is a quadratic in the distance from the bin's mean,
    written out once per bin: log pi_k N = a + b u + c v + d u^2 + e u v + f v^2.
    """
    inner, same = scaled(bins, 1 / grid.width), _scaled_mixture(mixture, 1 / grid.width)
    near = nearest_components(inner.mean, same.mean, 3 * candidates)
    values = log_densities(inner.mean, same, near, inner.covariance)
    best = np.argsort(-values, 1)[:, :candidates]
    top = np.take_along_axis(near, best, 1)
    polynomial = torch.from_numpy(_polynomials(inner, same, top)).float().to(x.device)
    centers = torch.from_numpy(bins.mean).float().to(x.device)
    choices = torch.from_numpy(top).int().to(x.device)
    row_of = row_lookup(bins, grid, x.device)
    labels = torch.empty(len(x), dtype=torch.int32, device=x.device)
    for part in chunks(len(x), CHUNK // 8):
        row = row_of[bin_numbers(x[part], y[part], grid).long()]
        apart = torch.stack([x[part], y[part]], 1).sub_(centers.index_select(0, row))
        u, v = (apart[:, i] * (1 / grid.width[i]) for i in range(2))
        terms = polynomial.index_select(0, row)
        value = terms[:, 0].addcmul(terms[:, 1], u[:, None]).addcmul_(terms[:, 2], v[:, None])
        value.addcmul_(terms[:, 3], (u * u)[:, None]).addcmul_(terms[:, 4], (u * v)[:, None])
        value.addcmul_(terms[:, 5], (v * v)[:, None])
        labels[part] = choices[row, value.argmax(1)]
    return labels


def _polynomials(bins: Histogram, mixture: Mixture, top: NDArray[np.int64]) -> Array:
    """Coefficients [bin, term, candidate] of log pi_k N around each bin's mean."""
    inverse, _ = _precision(mixture)
    a, b, c = (inverse[:, i][top] for i in range(3))
    u, v = (bins.mean[:, [i]] - mixture.mean[top, i] for i in range(2))
    value = log_densities(bins.mean, mixture, top)
    value -= value.max(1, keepdims=True)
    terms = [value, -(a * u + b * v), -(b * u + c * v), -a / 2, -b, -c / 2]
    return np.stack(terms, 1)


def squared_mahalanobis(x: Tensor, y: Tensor, labels: Tensor, mixture: Mixture) -> Tensor:
    """(p - m_k)^T S_k^-1 (p - m_k) of every point and its component."""
    inverse, _ = _precision(mixture)
    components = torch.from_numpy(np.concatenate([mixture.mean, inverse], 1)).float().to(x.device)
    found = torch.empty(len(x), dtype=torch.float32, device=x.device)
    for part in chunks(len(x)):
        m, n, a, b, c = components.index_select(0, labels[part]).unbind(1)
        u, v = x[part] - m, y[part] - n
        found[part] = a * u * u + 2 * b * u * v + c * v * v
    return found


def blends(
    x: Tensor, y: Tensor, mixture: Mixture, scale: Array, nearest: int = 5, kept: int = 2
) -> tuple[NDArray[np.int64], Array]:
    """For points far from their component: the likeliest `kept` of the `nearest`, and their shares.

    Shares are in proportion to the densities N(p; m_k, S_k), without the components' weights, and
    sum to 1. Distances are measured in units of `scale`.
    """
    points = torch.stack([x, y], 1).double().cpu().numpy()
    near = nearest_components(points / scale, mixture.mean / scale, nearest)
    even = mixture._replace(weight=np.ones_like(mixture.weight))
    values = log_densities(points, even, near)
    order = np.argsort(-values, 1, kind="stable")[:, :kept]
    values = np.take_along_axis(values, order, 1)
    share = np.exp(values - values[:, :1])
    return np.take_along_axis(near, order, 1), share / share.sum(1, keepdims=True)


def small_components(labels: Tensor, components: int, least: int) -> Tensor:
    """Marks the components that fewer than `least` points belong to."""
    return torch.bincount(labels, minlength=components) < least
