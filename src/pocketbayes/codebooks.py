"""Plans of sharing that count bytes: a table chosen by rate and distortion, to fit a size."""

from math import log, log2

import numpy as np
import torch
from torch import Tensor

from pocketbayes.cells import Cells, chunks, filled_cells, made_grid
from pocketbayes.errors import PocketBayesError
from pocketbayes.rate_distortion import Codebook, assigned_entries, fitted_codebook
from pocketbayes.weight_sharing import SIDE, Plan

ENTRY_BITS = 64  # of the table: a mean and a log-std


def planned_codebook(mean: Tensor, std: Tensor, entries: int, rate: float) -> Plan:
    """A table chosen for bytes and nats together: see `rate_distortion`.

    A weight stays whole where its entry costs more than its own mean, std and place would.
    """
    grid = made_grid(mean, std, SIDE)
    cells = filled_cells(mean, std, grid)
    codebook = fitted_codebook(cells, entries, rate)
    label = assigned_entries(mean, std, codebook, rate, grid, cells)
    limit = rate * log(2) * bits_of_whole(len(mean))
    outlier = (_costs(mean, std, label, codebook, rate) > limit).nonzero().flatten()
    none = outlier.new_empty(0)
    blank = mean.new_empty(0)
    pair = none.view(0, 1).expand(0, 2)
    root = np.sqrt(codebook.variance)
    return Plan(codebook.mean, root, label, outlier, none, pair, blank, None, rate)


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
    labels = coded_bits(plan.label[plain], len(plan.mean))
    whole = len(plan.outlier) * bits_of_whole(len(plan.label))
    return (labels + whole + ENTRY_BITS * len(plan.mean)) / 8


def rate_for_bytes(mean: Tensor, std: Tensor, entries: int, target: int, steps: int = 10) -> float:
    """About the smallest rate at which labels and table fit into `target` bytes, by bisection.

    They are counted on cells instead of weights.
    """
    grid = made_grid(mean, std, SIDE)
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
    return float(-(share * np.log2(share)).sum() * cells.size.sum()) + ENTRY_BITS * len(share)


def coded_bits(label: Tensor, entries: int) -> float:
    """The entropy of labels, in bits for all of them together."""
    count = torch.bincount(label.long(), minlength=entries).double()
    used = count[count > 0]
    return float(-(used * (used / used.sum()).log2()).sum())


def nearest_entries(mean: Tensor, std: Tensor, table: Codebook, rate: float) -> Tensor:
    """The entry of least KL(q_i || N_k) - rate log pi_k for every weight."""
    grid = made_grid(mean, std, SIDE)
    return assigned_entries(mean, std, table, rate, grid, filled_cells(mean, std, grid))
