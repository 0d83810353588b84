"""A table of Gaussians chosen for bytes and nats together.

Every weight q_i = N(mu_i, s_i^2) is replaced by one of a few N(m_k, v_k). That costs nats,
KL(q_i || N_k), and bits, -log2 pi_k for its index, so index i is chosen to minimise

    KL(q_i || N_k) - rate log pi_k,

and m_k, v_k, pi_k are fitted to the weights that chose k. The KL is linear in mu_i and
t_i = s_i^2 + mu_i^2 up to a term without k, so the mean over a cell of points is exact.
"""

from collections.abc import Sequence
from math import log
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pocketbayes.cells import CHUNK, Array, Cells, Grid, cell_numbers, chunks, row_lookup
from pocketbayes.mixture import split_labels

_DROPPED = 1e-9  # share below which an entry is dropped
_UNSEEN = 1e-7  # share, in a tensor, of an entry that none of its weights has chosen
_BLOCK = 1 << 14


class Codebook(NamedTuple):
    """Entries of the table: means, variances, and the share of weights that use each."""

    mean: Array
    variance: Array
    share: Array


class Statistics(NamedTuple):
    """Groups of weights: how many, and the means of mu and of s^2 + mu^2."""

    size: Array
    mean: Array
    second: Array


def statistics_of(cells: Cells) -> Statistics:
    """What the fit needs of cells in the (mean, std) plane."""
    mean, std = cells.mean.T
    xx, _, yy = cells.covariance.T
    return Statistics(cells.size, mean, mean**2 + xx + std**2 + yy)


class Tables(NamedTuple):
    """One table for all tensors, and the share that each entry has in each of them."""

    codebook: Codebook
    share: Array  # (tensors, entries)

    def of(self, tensor: int) -> Codebook:
        """The table as one tensor sees it."""
        return self.codebook._replace(share=self.share[tensor])


def fitted_codebook(
    cells: Cells,
    entries: int,
    rate: float,
    tensors: Sequence[Cells] = (),
    iterations: int = 100,
    tolerance: float = 1e-6,
) -> Tables:
    """Alternates choice and fit from a kd-split until the cost falls no more; empty entries go.

    A file codes each tensor's labels by their own frequencies: what is rare in the network may be
    common in one layer, and cheap there. So an entry k costs a weight of tensor t -log pi_kt.

    Args:
        cells: weights in the (mean, std) plane.
        entries: at most; the rate decides how many are left.
        rate: nats of KL that one nat of index is worth; 0 ignores the index.
        tensors: the same weights, tensor by tensor; without them all are one.
        iterations: at most.
        tolerance: stops when the cost per weight falls by less.
    """
    data = [statistics_of(part) for part in tensors or [cells]]
    if len(data) > 1:  # most entries go at once where all weights are one tensor, which is fast
        codebook = fitted_codebook(cells, entries, rate / 4, (), 30, 1e-4).codebook
    else:
        codebook = refitted(statistics_of(cells), split_labels(cells, entries), entries)
    tables = Tables(codebook, np.tile(codebook.share, (len(data), 1)))
    total, last = sum(part.size.sum() for part in data), np.inf
    for _ in range(iterations):
        found = [chosen(part, tables.of(t), rate) for t, part in enumerate(data)]
        cost = sum(float(p.size @ value) for p, (_, value) in zip(data, found, strict=True)) / total
        tables = _refitted_tables(data, [choice for choice, _ in found], len(codebook.share))
        codebook = tables.codebook
        if last - cost < tolerance:
            break
        last = cost
    return tables


def _refitted_tables(
    data: Sequence[Statistics], choices: Sequence[NDArray[np.int64]], entries: int
) -> Tables:
    """The table fitted to all tensors, and the shares of its entries in each."""
    joined = Statistics(*(np.concatenate(arrays) for arrays in zip(*data, strict=True)))
    counts = [np.bincount(c, p.size, entries) for p, c in zip(data, choices, strict=True)]
    kept = sum(counts) > _DROPPED * joined.size.sum()
    codebook = refitted(joined, np.concatenate(choices), entries)
    share = np.stack([count[kept] / max(count.sum(), 1) for count in counts])
    return Tables(codebook, np.maximum(share, _UNSEEN))


def refitted(data: Statistics, choice: NDArray[np.int64], entries: int) -> Codebook:
    """The entry with the moments of the weights that chose it: m = mean mu, v = mean t - m^2."""
    size = np.bincount(choice, data.size, entries)
    kept = size > _DROPPED * data.size.sum()
    size = size[kept]
    mean = np.bincount(choice, data.size * data.mean, entries)[kept] / size
    second = np.bincount(choice, data.size * data.second, entries)[kept] / size
    variance = np.maximum(second - mean**2, 1e-12 * second)
    return Codebook(mean, variance, size / size.sum())


def terms_of(codebook: Codebook, rate: float) -> Array:
    """Rows a, b, c of the cost a t + b mu + c of each entry.

    KL(q || N_k) = [(t - 2 m mu + m^2) / v + log v] / 2 - (1 + log s^2) / 2.
    """
    precision = 1 / codebook.variance
    constant = (codebook.mean**2 * precision + np.log(codebook.variance)) / 2
    constant -= rate * np.log(codebook.share)
    return np.stack([precision / 2, -codebook.mean * precision, constant])


def chosen(data: Statistics, codebook: Codebook, rate: float) -> tuple[NDArray[np.int64], Array]:
    """The cheapest entry for each group, and its cost less the term without k."""
    terms = terms_of(codebook, rate)
    rows = np.stack([data.second, data.mean, np.ones_like(data.mean)], 1)
    choice = np.empty(len(rows), dtype=np.int64)
    value = np.empty(len(rows))
    for begin in range(0, len(rows), _BLOCK):
        part = slice(begin, begin + _BLOCK)
        cost = rows[part] @ terms
        choice[part] = cost.argmin(1)
        value[part] = np.take_along_axis(cost, choice[part, None], 1)[:, 0]
    return choice, value


def assigned_entries(
    mean: Tensor,
    std: Tensor,
    codebook: Codebook,
    rate: float,
    grid: Grid,
    cells: Cells,
    candidates: int = 4,
) -> Tensor:
    """The cheapest entry for every weight, among the cheapest few of its cell."""
    data, terms = statistics_of(cells), terms_of(codebook, rate)
    count = min(candidates, len(codebook.share))
    rows = np.stack([data.second, data.mean, np.ones_like(data.mean)], 1)
    best = np.concatenate(
        [
            np.argpartition(rows[i : i + _BLOCK] @ terms, count - 1, 1)[:, :count]
            for i in range(0, len(rows), _BLOCK)
        ]
    )
    choices = torch.from_numpy(best).int().to(mean.device)
    row_of = row_lookup(cells, grid, mean.device)
    table = torch.from_numpy(terms.T.copy()).to(mean.device)
    labels = torch.empty(len(mean), dtype=torch.int32, device=mean.device)
    for part in chunks(len(mean), CHUNK // 8):
        options = choices[row_of[cell_numbers(mean[part], std[part], grid).long()]]
        a, b, c = table[options.long()].unbind(2)
        mu, s = mean[part].double()[:, None], std[part].double()[:, None]
        cost = a * (s * s + mu * mu) + b * mu + c
        labels[part] = options.gather(1, cost.argmin(1, keepdim=True)).flatten()
    return labels


class Tradeoff(NamedTuple):
    """Nats of KL and bits of index per weight."""

    distortion: float
    bits: float


def tradeoff(mean: Tensor, std: Tensor, labels: Tensor, codebook: Codebook) -> Tradeoff:
    """What an assignment costs: mean KL(q_i || N_k), and the entropy of the indices in use."""
    sums = torch.zeros(3, len(codebook.share), dtype=torch.float64, device=mean.device)
    log_std = 0.0
    for part in chunks(len(mean)):
        mu, s, index = mean[part].double(), std[part].double(), labels[part].long()
        for row, values in enumerate((torch.ones_like(mu), mu, mu * mu + s * s)):
            sums[row].index_add_(0, index, values)
        log_std += float(s.log().sum())
    size, first, second = sums.cpu().numpy()
    m, v = codebook.mean, codebook.variance
    total = ((second - 2 * m * first + size * m**2) / v + size * np.log(v)).sum() / 2
    used = size[size > 0] / len(mean)
    distortion = total / len(mean) - 0.5 - log_std / len(mean)
    return Tradeoff(float(distortion), float(-(used * np.log(used)).sum() / log(2)))
