"""Plans of sharing that count bytes: a table chosen by rate and distortion, to fit a size."""

from collections.abc import Sequence
from math import log, log2
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pocketbayes.cells import Cells, Grid, chunks, filled_cells, made_grid
from pocketbayes.errors import PocketBayesError
from pocketbayes.rate_distortion import (
    Codebook,
    assigned_entries,
    chosen,
    fitted_codebook,
    statistics_of,
)
from pocketbayes.weight_sharing import SIDE, Plan

ENTRY_BITS = 64  # of the table: a mean and a log-std
_MOST_LOG_RATE = 200.0


def planned_codebook(
    mean: Tensor, std: Tensor, entries: int, rate: float, parts: Sequence[slice] = ()
) -> Plan:
    """A table chosen for bytes and nats together: see `rate_distortion`.

    A weight stays whole where its entry costs more than its own mean, std and place would.

    Args:
        mean: of all weights, one tensor after the other.
        std: likewise.
        entries: of the table, at most.
        rate: nats of KL that one nat of label is worth.
        parts: where the weights of each tensor stand; without them all are one.
    """
    return _planned(mean, std, _Places.of(mean, std, parts), entries, rate)


class _Places(NamedTuple):
    """Where weights lie in the (mean, log std) plane, all together and tensor by tensor."""

    grid: Grid
    cells: Cells
    parts: tuple[slice, ...]
    tensors: tuple[Cells, ...]

    @classmethod
    def of(cls, mean: Tensor, std: Tensor, parts: Sequence[slice]) -> "_Places":
        log_std = _above_zero(std).log()
        grid = made_grid(mean, log_std, SIDE)
        parts = tuple(parts) or (slice(0, len(mean)),)
        tensors = tuple(filled_cells(mean[part], log_std[part], grid) for part in parts)
        return cls(grid, filled_cells(mean, log_std, grid), parts, tensors)


def _planned(mean: Tensor, std: Tensor, places: _Places, entries: int, rate: float) -> Plan:
    limit, std = _nats_of_whole(len(mean), rate), _above_zero(std)
    tables = fitted_codebook(places.cells, entries, rate, places.tensors, limit, tolerance=2e-5)
    label, dear = [], []
    for number, (part, cells) in enumerate(zip(places.parts, places.tensors, strict=True)):
        own, mu, s = tables.of(number), mean[part], std[part]
        label.append(assigned_entries(mu, s, own, rate, places.grid, cells))
        dear.append(_costs(mu, s, label[-1], own, rate) > limit)
    outlier = torch.cat(dear).nonzero().flatten()
    none, blank = outlier.new_empty(0), mean.new_empty(0)
    pair = none.view(0, 1).expand(0, 2)
    book = tables.codebook
    root = np.sqrt(book.variance)
    return Plan(book.mean, root, torch.cat(label), outlier, none, pair, blank, None, rate)


def _above_zero(std: Tensor) -> Tensor:
    """Stds with logarithms: those of half-precision weights may have become 0."""
    return std.clamp_min(torch.finfo(std.dtype).tiny)


def bits_of_whole(weights: int) -> float:
    """Bits of a weight that does not share: two 32-bit numbers, and its place."""
    return 64 + log2(max(2, weights))


def _nats_of_whole(weights: int, rate: float) -> float:
    """What those bits are worth."""
    return rate * log(2) * bits_of_whole(weights)


def _costs(mean: Tensor, std: Tensor, label: Tensor, codebook: Codebook, rate: float) -> Tensor:
    """KL(N_k || q_i) - rate log pi_k of every weight and its entry."""
    table = torch.from_numpy(
        np.stack([codebook.mean, codebook.variance, -rate * np.log(codebook.share)], 1)
    ).to(mean.device)
    found = torch.empty(len(mean), dtype=torch.float64, device=mean.device)
    for part in chunks(len(mean)):
        m, v, index = table[label[part].long()].unbind(1)
        s2 = std[part].double().square()
        divergence = ((v + (mean[part].double() - m).square()) / s2 - 1 + (s2 / v).log()) / 2
        found[part] = divergence + index
    return found


def planned_to_fit(
    mean: Tensor, std: Tensor, entries: int, target: int, parts: Sequence[slice] = ()
) -> Plan:
    """The table of smallest rate, to a few percent, whose weights take at most `target` bytes."""
    places = _Places.of(mean, std, parts)
    rate = _rate_for_bytes(places, entries, target)
    while True:  # cells are coarser than weights
        plan = _planned(mean, std, places, entries, rate)
        if coded_bytes(plan, places.parts) <= target:
            return plan
        rate *= 1.05


def coded_bytes(plan: Plan, parts: Sequence[slice] = ()) -> float:
    """Bytes of each tensor's labels at their entropy, of outliers with places, of the table."""
    plain = torch.ones(len(plan.label), dtype=torch.bool, device=plan.label.device)
    plain[plan.outlier] = False
    labels = sum(
        coded_bits(plan.label[part][plain[part]], len(plan.mean))
        for part in parts or (slice(0, len(plain)),)
    )
    whole = len(plan.outlier) * bits_of_whole(len(plan.label))
    return (labels + whole + ENTRY_BITS * len(plan.mean)) / 8


def rate_for_bytes(
    mean: Tensor, std: Tensor, entries: int, target: int, parts: Sequence[slice] = ()
) -> float:
    """About the smallest rate at which labels and table fit into `target` bytes, by bisection.

    They are counted on cells instead of weights.
    """
    return _rate_for_bytes(_Places.of(mean, std, parts), entries, target)


def _rate_for_bytes(places: _Places, entries: int, target: int, steps: int = 10) -> float:
    low, high = log(1e-5), log(1e3)
    while _bits_on_cells(places, entries, np.exp(high)) > 8 * target:
        if 8 * target < ENTRY_BITS or high > _MOST_LOG_RATE:
            weights = int(places.cells.size.sum())
            raise PocketBayesError(
                f"target_bytes={target} is less than the smallest table for {weights} weights"
            )
        low, high = high, high + log(1e3)
    for _ in range(steps):
        middle = (low + high) / 2
        fits = _bits_on_cells(places, entries, np.exp(middle)) <= 8 * target
        low, high = (low, middle) if fits else (middle, high)
    return float(np.exp(high))


def _bits_on_cells(places: _Places, entries: int, rate: float) -> float:
    """Bits of labels, table and weights that stay whole."""
    weights = int(places.cells.size.sum())
    limit = _nats_of_whole(weights, rate)
    tables = fitted_codebook(places.cells, entries, rate, places.tensors, limit, tolerance=1e-4)
    bits = float(ENTRY_BITS * len(tables.codebook.share))
    for number, cells in enumerate(places.tensors):
        book = tables.of(number)
        choice, cost = chosen(statistics_of(cells), book, rate)
        label = -np.log2(book.share)[choice]
        bits += float(cells.size @ np.where(cost <= limit, label, bits_of_whole(weights)))
    return bits


def coded_bits(label: Tensor, entries: int) -> float:
    """The entropy of labels, in bits for all of them together."""
    count = torch.bincount(label.long(), minlength=entries).double()
    used = count[count > 0]
    return float(-(used * (used / used.sum()).log2()).sum())


def nearest_entries(mean: Tensor, std: Tensor, table: Codebook, rate: float) -> Tensor:
    """The entry of least KL(N_k || q_i) - rate log pi_k for every weight."""
    places = _Places.of(mean, std, ())
    return assigned_entries(mean, _above_zero(std), table, rate, places.grid, places.cells)
