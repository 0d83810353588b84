"""A table of Gaussians chosen for bytes and nats together.

Every weight q_i = N(mu_i, s_i^2) is replaced by one of a few N(m_k, v_k). That costs nats,
KL(q_i || N_k), and bits, -log2 pi_k for its index, so index i is chosen to minimise

    KL(q_i || N_k) - rate log pi_k,

and m_k, v_k, pi_k are fitted to the weights that chose k. The KL is linear in mu_i and
t_i = s_i^2 + mu_i^2 up to a term without k, so the mean over a cell of points is exact.
"""

from collections.abc import Iterator, Sequence
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
_LITTLE_WORK = 1 << 21  # costs of cells at entries
_BLOCK = 1 << 18  # costs at a time, which stay in a processor's cache


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
    """Alternates choice and fit until the cost falls no more; empty entries go.

    A file codes each tensor's labels by their own frequencies: what is rare in the network may be
    common in one layer, and cheap there. So an entry k costs a weight of tensor t -log pi_kt.
    Alternation ends in the optimum next to its start: of those from several starts, the best.

    Args:
        cells: weights in the (mean, std) plane.
        entries: at most; the rate decides how many are left.
        rate: nats of KL that one nat of index is worth; 0 ignores the index.
        tensors: the same weights, tensor by tensor; without them all are one.
        iterations: at most.
        tolerance: stops when the cost per weight falls by less.
    """
    data = [statistics_of(part) for part in tensors or [cells]]
    size = sum(len(part.size) for part in data)
    found = [
        _alternated(data, start, rate, iterations, tolerance)
        for start in _starts(cells, entries, rate, size, tolerance)
    ]
    return min(found, key=lambda one: one.cost).tables


class _Fit(NamedTuple):
    """Tables, and at most what they cost per weight."""

    tables: Tables
    cost: float


def _starts(
    cells: Cells, entries: int, rate: float, size: int, tolerance: float
) -> Iterator[Codebook]:
    """Tables where all weights are one tensor, which is fast: for this rate and for a lower one.

    Entries that pay in some tensors only are left by the lower one, so many that this is worth its
    time only for few cells or few entries.
    """
    whole = statistics_of(cells)
    split = refitted(whole, split_labels(cells, entries), entries)

    def fitted(start: Codebook, own_rate: float, iterations: int) -> Codebook:
        return _alternated([whole], start, own_rate, iterations, tolerance).tables.codebook

    middle = fitted(split, rate, 100)
    yield middle
    if rate > 0 and len(middle.share) * size <= _LITTLE_WORK:
        yield fitted(split, rate / 4, 30)


def _alternated(
    data: Sequence[Statistics], start: Codebook, rate: float, iterations: int, tolerance: float
) -> _Fit:
    """Choice and fit in turn, as long as that pays."""
    tables = Tables(start, np.tile(start.share, (len(data), 1)))
    total, cost = sum(part.size.sum() for part in data), np.inf
    for _ in range(iterations):
        found = [chosen(part, tables.of(t), rate) for t, part in enumerate(data)]
        last, cost = cost, sum(float(p.size @ v) for p, (_, v) in zip(data, found, strict=True))
        cost /= total
        tables = _refitted_tables(data, [k for k, _ in found], len(tables.codebook.share))
        if last - cost < tolerance:
            break
    return _Fit(tables, cost)


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
    for part in _blocks(len(rows), terms):
        cost = _costs(rows[part], terms)
        choice[part] = cost.argmin(1)
        value[part] = np.take_along_axis(cost, choice[part, None], 1)[:, 0]
    return choice, value


def _costs(rows: Array, terms: Array) -> Array:
    """The product of both, without BLAS: its threads would wait for each other at three columns."""
    product: Array = np.einsum("ij,jk->ik", rows, terms)
    return product


def _blocks(rows: int, terms: Array) -> Iterator[slice]:
    return chunks(rows, max(64, _BLOCK // terms.shape[1]))


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
            np.argpartition(_costs(rows[part], terms), count - 1, 1)[:, :count]
            for part in _blocks(len(rows), terms)
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
