"""Which weights share a Gaussian, which are blends of two, and which are outliers.

Pure functions of arrays: a mean, a std and a mean absolute gradient for every weight of a network
go in, a `Plan` comes out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pocketbayes.errors import PocketBayesError
from pocketbayes.sharing.histogram import Array, Grid
from pocketbayes.sharing.merging import merged, taken
from pocketbayes.sharing.mixture import (
    Mixture,
    assigned,
    blends,
    fitted_mixture,
    nearest_components,
    small_components,
    squared_mahalanobis,
)

SIDE = 256  # bins of the grid along each axis
Numbers = NDArray[np.int64]
PairTest = Callable[[Numbers, Numbers], NDArray[np.bool_]]
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
    paper: bool = False


class Plan(NamedTuple):
    """A codebook, and what each weight is in it.

    Attributes:
        mean: of each entry.
        std: of each entry.
        label: the entry of each weight; of outliers and blends it means nothing.
        outlier: sorted positions of the outliers.
        blend: sorted positions of the weights between two entries.
        blend_label: those two.
        blend_share: of the first of them.
        mixture: the components in the (mean, std) plane, or None: the codebook was not made by one.
        rate: that labels were chosen by; 0 for a mixture.
    """

    mean: Array
    std: Array
    label: Tensor
    outlier: Tensor
    blend: Tensor
    blend_label: Tensor
    blend_share: Tensor
    mixture: Mixture | None = None
    rate: float = 0.0

    def keeping_as_outliers(self, place: Tensor) -> "Plan":
        """The plan with these weights among the outliers."""
        blended = ~torch.isin(self.blend, place)
        return self._replace(
            outlier=torch.cat([self.outlier, place]).unique(),  # type: ignore[no-untyped-call]
            blend=self.blend[blended],
            blend_label=self.blend_label[blended],
            blend_share=self.blend_share[blended],
        )

    def on(self, device: torch.device) -> "Plan":
        """The plan with its tensors on this device."""
        label, outlier, blend, pair, share = (t.to(device) for t in self[2:7])
        return self._replace(
            label=label, outlier=outlier, blend=blend, blend_label=pair, blend_share=share
        )


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
            "no weight is left to share: all lie beyond outlier_mean, or in the share "
            "outlier_gradient; raise the first (None: no limit), lower the second"
        )
    x, y = mean[place], std[place]
    most = max(1, len(place) // (_CROWD * rules.least_members))
    mixture, grid, bins = fitted_mixture(x, y, min(rules.components, most), SIDE)
    label = assigned(x, y, mixture, grid, bins).long()
    mixture, label, kept = _without_small(mixture, label, rules.least_members)
    inside[place[~kept]] = False
    place, x, y, label = place[kept], x[kept], y[kept], label[kept]
    slope = None if gradient is None else gradient[place]
    mixture, label, (far, pair, share) = _refined(x, y, label, slope, mixture, grid, rules)
    everywhere = torch.zeros(len(mean), dtype=torch.int32, device=mean.device)
    everywhere[place] = label.int()
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
        largest = np.argpartition(values, len(values) - count)[len(values) - count :]
        out[torch.from_numpy(largest[values[largest] > 0]).to(out.device)] = True
    return out


def _without_small(mixture: Mixture, label: Tensor, least: int) -> tuple[Mixture, Tensor, Tensor]:
    """The mixture without components of fewer members, new labels, and which weights have one."""
    small = small_components(label, len(mixture.weight), least)
    if bool(small.all()):
        small[torch.bincount(label, minlength=len(small)).argmax()] = False
    number = torch.cumsum(~small, 0) - 1
    kept = taken(mixture, (~small).cpu().numpy().nonzero()[0])
    return kept._replace(weight=kept.weight / kept.weight.sum()), number[label], ~small[label]


def _refined(
    x: Tensor,
    y: Tensor,
    label: Tensor,
    gradient: Tensor | None,
    mixture: Mixture,
    grid: Grid,
    rules: Rules,
) -> tuple[Mixture, Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Merged components, the label of each weight, and blends: those of merged components.

    By the paper's Algorithm 1 blends are found first and keep their shares; one whose two
    components merge is an ordinary weight of that one.
    """
    blended = _blended(x, y, label, mixture, grid, rules) if rules.paper else None
    mixture, number = _merged(mixture, label, gradient, rules)
    label = number[label]
    if blended is None:
        return mixture, label, _blended(x, y, label, mixture, grid, rules)
    far, pair, share = blended
    pair = number[pair]
    apart = pair[:, 0] != pair[:, 1]
    label[far[~apart]] = pair[~apart, 0]
    return mixture, label, (far[apart], pair[apart], share[apart])


def _merged(
    mixture: Mixture, label: Tensor, gradient: Tensor | None, rules: Rules
) -> tuple[Mixture, Tensor]:
    """Merges components that lie close, by their gradients and variances; the new numbers."""
    if rules.merge == "none":
        return mixture, torch.arange(len(mixture.weight), device=label.device)
    limited = [(mixture.covariance[:, 0] + mixture.covariance[:, 2], rules.merge_variance)]
    if gradient is not None:
        sums = torch.bincount(label, gradient.double(), len(mixture.weight))
        size = torch.bincount(label, minlength=len(mixture.weight)).clamp(min=1)
        limited.append(((sums / size).cpu().numpy(), rules.merge_gradient))
    tests = [(_alike if rules.paper else _small)(v, share, mixture.mean) for v, share in limited]

    def may_merge(one: Numbers, other: Numbers) -> NDArray[np.bool_]:
        allowed: NDArray[np.bool_] = np.all([test(one, other) for test in tests], axis=0)
        return allowed

    mixture, number = merged(mixture, rules.merge_below, may_merge, rules.merge)
    return mixture, torch.from_numpy(number).to(label.device)


def _small(values: Array, share: float, places: Array) -> PairTest:
    """Pairs of components both of whose values are among the lowest share of all."""
    small = values <= np.quantile(values, share)
    return lambda one, other: small[one] & small[other]


def _alike(values: Array, share: float, places: Array) -> PairTest:
    """Pairs whose values differ by no more than this share of nearest neighbours' do."""
    if len(values) < 2:
        return lambda one, other: np.ones(len(one), dtype=bool)
    neighbour = nearest_components(places, places, 2)[:, 1]
    most = np.quantile(np.abs(values - values[neighbour]), share)
    return lambda one, other: np.abs(values[one] - values[other]) <= most


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
