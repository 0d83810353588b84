"""Merging components of a mixture that lie close together."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pocketbayes.sharing.histogram import Array
from pocketbayes.sharing.mixture import Mixture

Labels = NDArray[np.int64]
MERGES = ("moments", "paper")


def squared_w2(one: Mixture, other: Mixture) -> Array:
    """W2^2 between Gaussians, pair by pair, without any eigenvalue.

    |m1 - m2|^2 + tr S1 + tr S2 - 2 tr (S1^(1/2) S2 S1^(1/2))^(1/2), and for 2 x 2 matrices the
    last trace is sqrt(tr(S1 S2) + 2 sqrt(det S1 det S2)).
    """
    apart = ((one.mean - other.mean) ** 2).sum(1)
    distance: Array = apart + _trace(one) + _trace(other) - 2 * _root_trace(one, other)
    return distance.clip(0)


def _trace(mixture: Mixture) -> Array:
    return mixture.covariance[:, 0] + mixture.covariance[:, 2]


def _determinant(mixture: Mixture) -> Array:
    xx, xy, yy = mixture.covariance.T
    determinant: Array = xx * yy - xy * xy
    return determinant


def _root_trace(one: Mixture, other: Mixture) -> Array:
    """tr (S1^(1/2) S2 S1^(1/2))^(1/2)."""
    a, b = one.covariance, other.covariance
    product = a[:, 0] * b[:, 0] + 2 * a[:, 1] * b[:, 1] + a[:, 2] * b[:, 2]
    roots: Array = np.sqrt((_determinant(one) * _determinant(other)).clip(0))
    trace: Array = np.sqrt(product + 2 * roots)
    return trace


def merged(
    mixture: Mixture,
    threshold: float,
    may_merge: Callable[[Labels, Labels], NDArray[np.bool_]] | None = None,
    how: str = "moments",
) -> tuple[Mixture, Labels]:
    """Merges pairs with W2^2 < threshold, the closest first, until there are none.

    Args:
        mixture: components in coordinates in which distances make sense.
        threshold: of W2^2. As W2 is no less than the distance of the means, only components
            within its root of each other are looked at.
        may_merge: which pairs of the first mixture's components may be merged at all; a merged
            component is known by its largest part.
        how: "moments" keeps the moments of the two together; "paper" is its equations 5 and 6,
            which inflate: two equal Gaussians get 1.5 times their covariance.

    Returns:
        The smaller mixture, and for each old component the number of its new one.
    """
    from scipy.spatial import cKDTree  # type: ignore[import-untyped]

    label = np.arange(len(mixture.weight))
    chief = label.copy()
    while len(mixture.weight) > 1:
        pairs = cKDTree(mixture.mean).query_pairs(np.sqrt(threshold), output_type="ndarray")
        if may_merge is not None and len(pairs):
            pairs = pairs[may_merge(chief[pairs[:, 0]], chief[pairs[:, 1]])]
        distance = squared_w2(taken(mixture, pairs[:, 0]), taken(mixture, pairs[:, 1]))
        order = np.argsort(distance, kind="stable")
        chosen = _disjoint(pairs[order[distance[order] < threshold]], len(mixture.weight))
        if len(chosen) == 0:
            break
        mixture, step, kept = _joined(mixture, chosen, how)
        label, chief = step[label], chief[kept]
    return mixture, label


def taken(mixture: Mixture, index: Labels) -> Mixture:
    """Some of the components, their weights as they were."""
    return Mixture(mixture.weight[index], mixture.mean[index], mixture.covariance[index])


def _disjoint(pairs: Labels, number: int) -> Labels:
    """The pairs, first come first served, none of whose members was in one before."""
    free = np.ones(number, dtype=bool)
    chosen = []
    for i, j in pairs.tolist():
        if free[i] and free[j]:
            free[i] = free[j] = False
            chosen.append((i, j))
    return np.array(chosen, dtype=np.int64).reshape(-1, 2)


def _joined(mixture: Mixture, pairs: Labels, how: str) -> tuple[Mixture, Labels, Labels]:
    """One component for each pair, the new number of each old one, and those that stand for new."""
    one, other = taken(mixture, pairs[:, 0]), taken(mixture, pairs[:, 1])
    new = _moment_matched(one, other) if how == "moments" else _by_the_paper(one, other)
    heavier = np.where(one.weight >= other.weight, pairs[:, 0], pairs[:, 1])
    lighter = pairs.sum(1) - heavier
    kept = np.delete(np.arange(len(mixture.weight)), lighter)
    number = np.full(len(mixture.weight), -1)
    number[kept] = np.arange(len(kept))
    number[lighter] = number[heavier]
    weight, mean, covariance = (array[kept].copy() for array in mixture)
    place = number[heavier]
    weight[place], mean[place], covariance[place] = new
    return Mixture(weight, mean, covariance), number, kept


def _moment_matched(one: Mixture, other: Mixture) -> Mixture:
    """The Gaussian with the mean and covariance of the two together."""
    weight = one.weight + other.weight
    a, b = (one.weight / weight)[:, None], (other.weight / weight)[:, None]
    covariance = a * one.covariance + b * other.covariance + a * b * _products_of(one, other)
    return Mixture(weight, a * one.mean + b * other.mean, covariance)


def _by_the_paper(one: Mixture, other: Mixture) -> Mixture:
    """Mean (m1 + m2) / 2; covariance (S1 + S2) / 2 + d d^T / 8 + R / 2.

    With d = m1 - m2 and R = (S1^(1/2) S2 S1^(1/2))^(1/2).
    """
    root = _root_of_product(one.covariance, other.covariance)
    covariance = (one.covariance + other.covariance) / 2 + _products_of(one, other) / 8 + root / 2
    return Mixture(one.weight + other.weight, (one.mean + other.mean) / 2, covariance)


def _products_of(one: Mixture, other: Mixture) -> Array:
    x, y = (one.mean - other.mean).T
    return np.stack([x * x, x * y, y * y], 1)


def _root_of_product(one: Array, other: Array) -> Array:
    """(S1^(1/2) S2 S1^(1/2))^(1/2) of 2 x 2 matrices (xx, xy, yy)."""
    root = _root(one)
    a, b, c = root.T
    x, y, z = other.T
    left = (a * x + b * y, a * y + b * z, b * x + c * y, b * y + c * z)
    inner = np.stack(
        [left[0] * a + left[1] * b, left[0] * b + left[1] * c, left[2] * b + left[3] * c], 1
    )
    return _root(inner)


def _root(matrices: Array) -> Array:
    """The square root of symmetric matrices (xx, xy, yy): (M + s I) / sqrt(tr M + 2 s)."""
    xx, xy, yy = matrices.T
    s = np.sqrt((xx * yy - xy * xy).clip(0))
    scale = np.sqrt(xx + yy + 2 * s)
    safe = np.where(scale > 0, scale, 1.0)
    return np.stack([xx + s, xy, yy + s], 1) / safe[:, None]
