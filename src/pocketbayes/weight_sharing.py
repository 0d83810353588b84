"""Which weights share a Gaussian, which are blends of two, and which stay whole.

Pure functions of arrays: a mean, a std and a mean absolute gradient for every weight of a network
go in, a `Plan` comes out.
"""

from dataclasses import dataclass
from math import log, log2
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pocketbayes.cells import Array, Cells, Grid, chunks, filled_cells, made_grid
from pocketbayes.errors import PocketBayesError
from pocketbayes.merging import merged, taken
from pocketbayes.mixture import (
    Mixture,
    assigned,
    blends,
    fitted_mixture,
    small_components,
    squared_mahalanobis,
)
from pocketbayes.rate_distortion import Codebook, assigned_entries, fitted_codebook

_SIDE = 256  # cells of the grid along each axis
_ENTRY_BITS = 64  # of the table: a mean and a log-std
_CROWD = 4  # components get at least this many times the smallest allowed cluster


@dataclass(frozen=True)
class Rules:
    """Thresholds of the paper; `methods.Sharing` says what each means."""

    components: int
    outlier_mean: float | None
    outlier_gradient: float
    least_members: int
    blend_beyond: float | None
    blend_nearest: int
    merge: str
    merge_below: float
    merge_gradient: float
    merge_variance: float


class Plan(NamedTuple):
    """A table, and what each weight is in it.

    Attributes:
        mean: of each entry.
        std: of each entry.
        label: the entry of each weight; of outliers and blends it means nothing.
        outlier: sorted places of the weights that stay whole.
        blend: sorted places of the weights between two entries.
        blend_label: those two.
        blend_share: of the first of them.
        mixture: the components in the (mean, std) plane, or None: the table was not made by one.
    """

    mean: Array
    std: Array
    label: Tensor
    outlier: Tensor
    blend: Tensor
    blend_label: Tensor
    blend_share: Tensor
    mixture: Mixture | None


def planned_mixture(mean: Tensor, std: Tensor, gradient: Tensor | None, rules: Rules) -> Plan:
    """A mixture fitted to all weights but the outliers, then refined.

    Args:
        mean: of every weight.
        std: of every weight.
        gradient: mean absolute gradient of the loss at every mean; None: not looked at.
        rules: the thresholds.
    """
    inside = ~_stands_out(mean, gradient, rules)
    place = inside.nonzero().flatten()
    if len(place) == 0:
        raise PocketBayesError(
            "no weight is left to share: every mean lies beyond outlier_mean; raise it, or set it "
            "to None"
        )
    x, y = mean[place], std[place]
    most = max(1, len(place) // (_CROWD * rules.least_members))
    mixture, grid, cells = fitted_mixture(x, y, min(rules.components, most), _SIDE)
    label = assigned(x, y, mixture, grid, cells).long()
    mixture, label, kept = _without_small(mixture, label, rules.least_members)
    inside[place[~kept]] = False
    place, x, y, label = place[kept], x[kept], y[kept], label[kept]
    if rules.merge != "none":
        mixture, label = _merged(
            mixture, label, None if gradient is None else gradient[place], rules
        )
    everywhere = torch.zeros(len(mean), dtype=torch.int32, device=mean.device)
    everywhere[place] = label.int()
    far, pair, share = _blended(x, y, label, mixture, grid, rules)
    center, spread = _entries(x, y, label, far, mixture, rules)
    outlier = (~inside).nonzero().flatten()
    return Plan(center, spread, everywhere, outlier, place[far], pair, share, mixture)


def _entries(
    x: Tensor, y: Tensor, label: Tensor, far: Tensor, mixture: Mixture, rules: Rules
) -> tuple[Array, Array]:
    """Mean and std of each entry: E[w] and sqrt(Var[w]) of a weight of one of its members.

    Var[w] = mean(sigma^2) + Var[mu] over the members. Components merged as in the paper keep the
    covariances that its equation gives them: s^2 + S_ss + S_mm.
    """
    m, s = mixture.mean.T
    v = s**2 + mixture.covariance[:, 0] + mixture.covariance[:, 2]
    if rules.merge != "paper":
        plain = torch.ones(len(x), dtype=torch.bool, device=x.device)
        plain[far] = False
        k, mu = label[plain], x[plain].double()
        sums = [torch.bincount(k, t, len(m)) for t in (mu, mu.square() + y[plain].square())]
        size = torch.bincount(k, minlength=len(m)).cpu().numpy()
        first, second = (t.cpu().numpy() / np.maximum(size, 1) for t in sums)
        m = np.where(size > 0, first, m)
        v = np.where(size > 0, np.maximum(second - first**2, 1e-9 * second), v)
    return m, np.sqrt(v)


def _stands_out(mean: Tensor, gradient: Tensor | None, rules: Rules) -> Tensor:
    """Marks weights of large mean, and those of the largest gradients."""
    out = torch.zeros(len(mean), dtype=torch.bool, device=mean.device)
    if rules.outlier_mean is not None:
        out |= mean.abs() > rules.outlier_mean
    count = int(rules.outlier_gradient * len(mean))
    if gradient is not None and count > 0:
        values = gradient.cpu().numpy()
        border = float(np.partition(values, len(values) - count)[len(values) - count])
        out |= (gradient >= border) & (gradient > 0)
    return out


def _without_small(mixture: Mixture, label: Tensor, least: int) -> tuple[Mixture, Tensor, Tensor]:
    """The mixture without components of fewer members, new labels, and which weights have one."""
    small = small_components(label, len(mixture.weight), least)
    if bool(small.all()):
        small[torch.bincount(label, minlength=len(small)).argmax()] = False
    number = torch.cumsum(~small, 0) - 1
    kept = taken(mixture, (~small).cpu().numpy().nonzero()[0])
    return kept._replace(weight=kept.weight / kept.weight.sum()), number[label], ~small[label]


def _merged(
    mixture: Mixture, label: Tensor, gradient: Tensor | None, rules: Rules
) -> tuple[Mixture, Tensor]:
    """Merges components that lie close, have small gradients and vary little."""
    calm = np.ones(len(mixture.weight), dtype=bool)
    spread = mixture.covariance[:, 0] + mixture.covariance[:, 2]
    calm &= spread <= np.quantile(spread, rules.merge_variance)
    if gradient is not None:
        sums = torch.bincount(label, gradient.double(), len(calm))
        average = (sums / torch.bincount(label, minlength=len(calm)).clamp(min=1)).cpu().numpy()
        calm &= average <= np.quantile(average, rules.merge_gradient)

    def may_merge(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.bool_]:
        allowed: NDArray[np.bool_] = calm[one] & calm[other]
        return allowed

    mixture, number = merged(mixture, rules.merge_below, may_merge, rules.merge)
    return mixture, torch.from_numpy(number).to(label.device)[label]


def _blended(
    x: Tensor, y: Tensor, label: Tensor, mixture: Mixture, grid: Grid, rules: Rules
) -> tuple[Tensor, Tensor, Tensor]:
    """The weights far from their component: which, their two components, the first one's share."""
    if rules.blend_beyond is None or len(mixture.weight) < 2:
        far = label.new_empty(0)
    else:
        distance = squared_mahalanobis(x, y, label, mixture)
        far = (distance > rules.blend_beyond).nonzero().flatten()
    if len(far) == 0:
        return far, label.new_empty(0, 2), x.new_empty(0)
    nearest = max(2, rules.blend_nearest)
    pair, share = blends(x[far], y[far], mixture, grid.width, nearest)
    first = torch.from_numpy(share[:, 0]).to(x)
    return far, torch.from_numpy(pair).to(label.device), first.clamp(0, 1)


def planned_codebook(mean: Tensor, std: Tensor, entries: int, rate: float) -> Plan:
    """A table chosen for bytes and nats together: see `rate_distortion`.

    A weight stays whole where its entry costs more than its own mean, std and place would.
    """
    grid = made_grid(mean, std, _SIDE)
    cells = filled_cells(mean, std, grid)
    codebook = fitted_codebook(cells, entries, rate)
    label = assigned_entries(mean, std, codebook, rate, grid, cells)
    limit = rate * log(2) * bits_of_whole(len(mean))
    outlier = (_costs(mean, std, label, codebook, rate) > limit).nonzero().flatten()
    none = outlier.new_empty(0)
    blank = mean.new_empty(0)
    pair = none.view(0, 1).expand(0, 2)
    root = np.sqrt(codebook.variance)
    return Plan(codebook.mean, root, label, outlier, none, pair, blank, None)


def bits_of_whole(weights: int) -> float:
    """Bits of a weight that does not share: two 32-bit numbers, and its place."""
    return 64 + log2(max(2, weights))


def _costs(mean: Tensor, std: Tensor, label: Tensor, codebook: Codebook, rate: float) -> Tensor:
    """KL(q_i || N_k) - rate log pi_k of every weight and its entry."""
    table = torch.from_numpy(
        np.stack([codebook.mean, codebook.variance, -rate * np.log(codebook.share)], 1)
    ).to(mean.device)
    found = torch.empty(len(mean), dtype=torch.float32, device=mean.device)
    for part in chunks(len(mean)):
        m, v, index = table[label[part].long()].unbind(1)
        s2 = std[part].double().square()
        divergence = ((s2 + (mean[part].double() - m).square()) / v - 1 - (s2 / v).log()) / 2
        found[part] = (divergence + index).float()
    return found


def planned_to_fit(mean: Tensor, std: Tensor, entries: int, target: int) -> Plan:
    """The table of smallest rate, to a few percent, whose weights take at most `target` bytes."""
    rate = rate_for_bytes(mean, std, entries, target)
    while True:  # cells are coarser than weights, and know of no outliers
        plan = planned_codebook(mean, std, entries, rate)
        if coded_bytes(plan) <= target:
            return plan
        rate *= 1.05


def coded_bytes(plan: Plan) -> float:
    """Bytes of labels at their entropy, of outliers with their places, and of the table."""
    plain = torch.ones(len(plan.label), dtype=torch.bool, device=plan.label.device)
    plain[plan.outlier] = False
    labels = coded_bits(plan.label, plain, len(plan.mean))
    whole = len(plan.outlier) * bits_of_whole(len(plan.label))
    return (labels + whole + _ENTRY_BITS * len(plan.mean)) / 8


def rate_for_bytes(mean: Tensor, std: Tensor, entries: int, target: int, steps: int = 10) -> float:
    """About the smallest rate at which labels and table fit into `target` bytes, by bisection.

    They are counted on cells instead of weights.
    """
    grid = made_grid(mean, std, _SIDE)
    cells = filled_cells(mean, std, grid)
    low, high = log(1e-5), log(1e3)
    if _bits_on_cells(cells, entries, np.exp(high)) > 8 * target:
        raise PocketBayesError(
            f"target_bytes={target} is less than the smallest table for {len(mean)} weights"
        )
    for _ in range(steps):
        middle = (low + high) / 2
        fits = _bits_on_cells(cells, entries, np.exp(middle)) <= 8 * target
        low, high = (low, middle) if fits else (middle, high)
    return float(np.exp(high))


def _bits_on_cells(cells: Cells, entries: int, rate: float) -> float:
    codebook = fitted_codebook(cells, entries, rate, tolerance=1e-4)
    share = codebook.share
    return float(-(share * np.log2(share)).sum() * cells.size.sum()) + _ENTRY_BITS * len(share)


def coded_bits(label: Tensor, plain: Tensor, entries: int) -> float:
    """The entropy of the labels that are read, in bits for all of them together."""
    count = torch.bincount(label[plain].long(), minlength=entries).double()
    used = count[count > 0]
    return float(-(used * (used / used.sum()).log2()).sum())


def nearest_entries(mean: Tensor, std: Tensor, table: Codebook, rate: float) -> Tensor:
    """The entry of least KL(q_i || N_k) - rate log pi_k for every weight."""
    grid = made_grid(mean, std, _SIDE)
    return assigned_entries(mean, std, table, rate, grid, filled_cells(mean, std, grid))
