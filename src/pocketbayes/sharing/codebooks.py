"""Plans of sharing that count bytes: a codebook chosen by rate and distortion, to fit a size."""

from collections.abc import Sequence
from math import exp, log, log2
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pocketbayes.errors import PocketBayesError
from pocketbayes.sharing.assignment import SIDE, Plan
from pocketbayes.sharing.histogram import Array, Grid, Histogram, chunks, filled_bins, made_grid
from pocketbayes.sharing.rate_distortion import (
    CodebookEntries,
    TensorCodebooks,
    assigned_entries,
    chosen,
    fitted_codebook,
    joined_codebooks,
    statistics_of,
)

ENTRY_BITS = 64  # of the codebook: a mean and a log-std
_MOST_LOG_RATE = 200.0
_LEAST_MEMBERS = 4  # weights per entry, on average: with one for each, no rate changes anything
_NEARLY = 0.95  # of a wanted size


def planned_codebook(
    mean: Tensor, std: Tensor, entries: int, rate: float, parts: Sequence[slice] = ()
) -> Plan:
    """A codebook chosen for bytes and nats together: see `rate_distortion`.

    A weight is an outlier where its entry costs more than its own mean, std and position would.

    Args:
        mean: of all weights, one tensor after the other.
        std: likewise.
        entries: of the codebook, at most.
        rate: nats of KL that one nat of label is worth.
        parts: where the weights of each tensor stand; without them all are one.
    """
    plane = _Plane.of(mean, std, parts)
    entries = min(entries, max(1, len(mean) // _LEAST_MEMBERS))
    return _planned(plane, _fitted(plane, entries, rate, tolerance=2e-5), rate)


class _Plane(NamedTuple):
    """Weights in the (mean, log std) plane, all together and tensor by tensor."""

    mean: Tensor
    log_std: Tensor
    parts: tuple[slice, ...]
    grid: Grid
    bins: Histogram
    tensors: tuple[Histogram, ...]

    @classmethod
    def of(cls, mean: Tensor, std: Tensor, parts: Sequence[slice]) -> "_Plane":
        log_std = _above_zero(std).log()
        grid = made_grid(mean, log_std, SIDE)
        parts = tuple(parts) or (slice(0, len(mean)),)
        tensors = tuple(filled_bins(mean[part], log_std[part], grid) for part in parts)
        return cls(mean, log_std, parts, grid, filled_bins(mean, log_std, grid), tensors)


def _fitted(plane: _Plane, entries: int, rate: float, tolerance: float) -> TensorCodebooks:
    limit = _outlier_nats(len(plane.mean), rate)
    return fitted_codebook(plane.bins, entries, rate, plane.tensors, limit, tolerance)


def _planned(plane: _Plane, codebooks: TensorCodebooks, rate: float) -> Plan:
    limit = _outlier_nats(len(plane.mean), rate)
    label, dear = [], []
    for number, (part, bins) in enumerate(zip(plane.parts, plane.tensors, strict=True)):
        own, mean, log_std = codebooks.of(number), plane.mean[part], plane.log_std[part]
        label.append(assigned_entries(mean, log_std, own, rate, plane.grid, bins))
        dear.append(_costs(mean, log_std, label[-1], own, rate) > limit)
    outlier = torch.cat(dear).nonzero().flatten()
    none, blank = outlier.new_empty(0), plane.mean.new_empty(0)
    pair = none.view(0, 1).expand(0, 2)
    book = codebooks.codebook
    root = np.sqrt(book.variance)
    return Plan(book.mean, root, torch.cat(label), outlier, none, pair, blank, None, rate)


def _above_zero(std: Tensor) -> Tensor:
    """Stds with logarithms and precisions: those of half-precision weights may have become 0."""
    return std.clamp_min(max(torch.finfo(std.dtype).tiny, torch.finfo(torch.float32).tiny))


def outlier_bits(weights: int) -> float:
    """Bits of a weight that does not share: two 32-bit numbers, and its place."""
    return 64 + log2(max(2, weights))


def _outlier_nats(weights: int, rate: float) -> float:
    """What those bits are worth."""
    return rate * log(2) * outlier_bits(weights)


def _costs(
    mean: Tensor, log_std: Tensor, label: Tensor, codebook: CodebookEntries, rate: float
) -> Tensor:
    """KL(N_k || q_i) - rate log pi_k of every weight and its entry."""
    rows = torch.from_numpy(
        np.stack([codebook.mean, codebook.variance, -rate * np.log(codebook.share)], 1)
    ).to(mean.device)
    found = torch.empty(len(mean), dtype=torch.float64, device=mean.device)
    for part in chunks(len(mean)):
        m, v, index = rows[label[part].long()].unbind(1)
        log_s2 = 2 * log_std[part].double()
        square = v + (mean[part].double() - m).square()
        found[part] = (square * (-log_s2).exp() - 1 + log_s2 - v.log()) / 2 + index
    return found


def planned_to_fit(
    mean: Tensor, std: Tensor, entries: int, target: int, parts: Sequence[slice] = ()
) -> Plan:
    """The codebook of smallest rate, to a few percent, whose weights take at most `target` bytes.

    Where sizes jump from one rate to the next, some tensors take the larger side of the jump. At
    most half of the bytes go to the codebook.
    """
    plane = _Plane.of(mean, std, parts)
    entries = min(entries, max(1, 8 * target // (2 * ENTRY_BITS)))
    plan = _planned_within(plane, entries, target, float(target))
    size = coded_bytes(plan, plane.parts)
    if size >= _NEARLY * target:
        return plan
    # Bins are coarser than weights, and here overstate the size.
    other = _planned_within(plane, entries, target, target**2 / size)
    return max(plan, other, key=lambda found: coded_bytes(found, plane.parts))


def _planned_within(plane: _Plane, entries: int, target: int, budget: float) -> Plan:
    """A plan of at most `target` bytes, chosen by bins for `budget`, or for as much as fits."""
    larger, fitting = _around(plane, entries, budget)
    while True:
        codebooks = _between(larger, fitting, 8 * budget)
        plan = _planned(plane, codebooks, fitting.rate)
        excess = coded_bytes(plan, plane.parts) - target
        if excess <= 0:
            return plan
        budget -= max(excess, 0.005 * target)
        if codebooks is fitting.codebooks:
            larger = fitting = _trial(plane, entries, 1.05 * fitting.rate)


def coded_bytes(plan: Plan, parts: Sequence[slice] = ()) -> float:
    """Bytes of each tensor's labels at their entropy, of outliers, of the codebook."""
    plain = torch.ones(len(plan.label), dtype=torch.bool, device=plan.label.device)
    plain[plan.outlier] = False
    labels = sum(
        coded_bits(plan.label[part][plain[part]], len(plan.mean))
        for part in parts or (slice(0, len(plain)),)
    )
    outlier_cost = len(plan.outlier) * outlier_bits(len(plan.label))
    return (labels + outlier_cost + ENTRY_BITS * len(plan.mean)) / 8


class _Trial(NamedTuple):
    """Codebooks for one rate, and what each tensor costs with them, counted on bins."""

    rate: float
    codebooks: TensorCodebooks
    bits: Array  # of labels and of outliers
    nats: Array  # of KL

    @property
    def total_bits(self) -> float:
        """Those of all tensors and of the codebook."""
        return float(self.bits.sum()) + ENTRY_BITS * len(self.codebooks.codebook.share)


def _around(plane: _Plane, entries: int, target: float, steps: int = 10) -> tuple[_Trial, _Trial]:
    """The trials at two neighbouring rates of which the second fits; both are it if all fit."""
    low, high, larger = log(1e-5), log(1e3), None
    while (fitting := _trial(plane, entries, exp(high))).total_bits > 8 * target:
        if 8 * target < ENTRY_BITS or high > _MOST_LOG_RATE:
            raise PocketBayesError(
                f"target_bytes={target:.0f} is less than the smallest codebook for "
                f"{len(plane.mean)} weights, of {ENTRY_BITS // 8} bytes"
            )
        low, high, larger = high, high + log(1e3), fitting
    for _ in range(steps):
        middle = (low + high) / 2
        found = _trial(plane, entries, exp(middle))
        if found.total_bits <= 8 * target:
            high, fitting = middle, found
        else:
            low, larger = middle, found
    return larger or fitting, fitting


def _trial(plane: _Plane, entries: int, rate: float) -> _Trial:
    limit, outlier_cost = _outlier_nats(len(plane.mean), rate), outlier_bits(len(plane.mean))
    codebooks = _fitted(plane, entries, rate, tolerance=1e-4)
    bits, nats = [], []
    for number, bins in enumerate(plane.tensors):
        book = codebooks.of(number)
        choice, cost = chosen(statistics_of(bins), book, rate)
        label = -np.log(book.share)[choice]
        shares = cost <= limit
        bits.append(bins.size @ np.where(shares, label / log(2), outlier_cost))
        nats.append(bins.size @ np.where(shares, cost - rate * label, 0.0))
    return _Trial(rate, codebooks, np.array(bits), np.array(nats))


def _between(larger: _Trial, fitting: _Trial, bits: float) -> TensorCodebooks:
    """Both codebooks in one: tensors that save most nats per bit use the larger one's entries.

    As many as `bits` allow.
    """
    left = bits - fitting.total_bits - ENTRY_BITS * len(larger.codebooks.codebook.share)
    more, saved = larger.bits - fitting.bits, fitting.nats - larger.nats
    taken = np.zeros(len(more), dtype=bool)
    for tensor in np.argsort(-saved / np.maximum(more, 1)):
        if saved[tensor] > 0 and more[tensor] <= left:
            taken[tensor] = True
            left -= more[tensor]
    if not taken.any():
        return fitting.codebooks
    return joined_codebooks(larger.codebooks, fitting.codebooks, taken)


def coded_bits(label: Tensor, entries: int) -> float:
    """The entropy of labels, in bits for all of them together."""
    count = torch.bincount(label.long(), minlength=entries).double()
    used = count[count > 0]
    return float(-(used * (used / used.sum()).log2()).sum())


def nearest_entries(mean: Tensor, std: Tensor, codebook: CodebookEntries, rate: float) -> Tensor:
    """The entry of least KL(N_k || q_i) - rate log pi_k for every weight."""
    if len(mean) == 0:
        return torch.empty(0, dtype=torch.int32, device=mean.device)
    plane = _Plane.of(mean, std, ())
    return assigned_entries(mean, plane.log_std, codebook, rate, plane.grid, plane.bins)
