"""A codebook of Gaussians chosen for bytes and nats together.

Every weight q_i = N(mu_i, s_i^2) is replaced by one of a few N(m_k, v_k). That costs nats,
KL(N_k || q_i), and bits, -log2 pi_k for its index, so index i is chosen to minimise

    KL(N_k || q_i) - rate log pi_k,

and m_k, v_k, pi_k are fitted to the weights that chose k. Where q is the best factorised posterior
and the loss about quadratic, the objective of training (expected loss + beta KL to the prior) rises
by beta KL(N_k || q_i): this direction. The other one would make an entry as wide as its weights lie
apart, and the network unsure.

With the precision p_i = 1 / s_i^2 the KL is linear in p_i, p_i mu_i and a term without k, so their
means over a bin of points are all that is needed.
"""

from collections.abc import Iterator, Sequence
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
    row_lookup,
)
from pocketbayes.sharing.mixture import split_labels

_DROPPED = 1e-9  # share below which an entry is dropped
_UNSEEN = 1e-7  # share, in a tensor, of an entry that none of its weights has chosen
_LITTLE_WORK = 1 << 21  # costs of bins at entries
_BLOCK = 1 << 18  # costs at a time, which stay in a processor's cache


class CodebookEntries(NamedTuple):
    """Entries of the codebook: means, variances, and the share of weights that use each."""

    mean: Array
    variance: Array
    share: Array


class Statistics(NamedTuple):
    """Groups of weights: how many, and the means of p, p mu and (p mu^2 - log p - 1) / 2."""

    size: Array
    precision: Array
    weighted: Array
    rest: Array


def statistics_of(bins: Histogram) -> Statistics:
    """What the fit needs of bins in the (mean, log std) plane, to second order in their width."""
    mean, log_std = bins.mean.T
    xx, xy, yy = bins.covariance.T
    precision, more = np.exp(-2 * log_std), 1 + 2 * yy
    square = precision * (mean**2 * more + xx - 4 * mean * xy)
    return Statistics(
        bins.size,
        precision * more,
        precision * (mean * more - 2 * xy),
        square / 2 + log_std - 0.5,
    )


class TensorCodebooks(NamedTuple):
    """One codebook for all tensors, and the share that each entry has in each of them."""

    codebook: CodebookEntries
    share: Array  # (tensors, entries)

    def of(self, tensor: int) -> CodebookEntries:
        """The codebook as one tensor sees it."""
        return self.codebook._replace(share=self.share[tensor])


def joined_codebooks(
    first: TensorCodebooks, second: TensorCodebooks, uses_first: NDArray[np.bool_]
) -> TensorCodebooks:
    """The entries of both that are in use, where each tensor uses those of one."""
    own = uses_first[:, None]
    parts = [np.where(own, first.share, _UNSEEN), np.where(own, _UNSEEN, second.share)]
    share = np.concatenate(parts, 1)
    used = (share > _UNSEEN).any(0)
    books = zip(first.codebook, second.codebook, strict=True)
    mean, variance, shares = (np.concatenate(arrays)[used] for arrays in books)
    return TensorCodebooks(CodebookEntries(mean, variance, shares / shares.sum()), share[:, used])


def fitted_codebook(
    bins: Histogram,
    entries: int,
    rate: float,
    tensors: Sequence[Histogram] = (),
    limit: float = np.inf,
    tolerance: float = 1e-6,
) -> TensorCodebooks:
    """Alternates choice and fit until the cost falls no more; empty entries go.

    A file codes each tensor's labels by their own frequencies: what is rare in the network may be
    common in one layer, and cheap there. So an entry k costs a weight of tensor t -log pi_kt.
    Alternation ends in the optimum next to its start: of those from several starts, the best.

    Args:
        bins: weights in the (mean, log std) plane.
        entries: at most; the rate decides how many are left.
        rate: nats of KL that one nat of index is worth; 0 ignores the index.
        tensors: the same weights, tensor by tensor; without them all are one.
        limit: what a weight costs that does not share. Those that would cost more do not count, or
            a few that are known exactly would take the entries for themselves.
        tolerance: stops when the cost per weight falls by less.
    """
    data = [statistics_of(part) for part in tensors or [bins]]
    size = sum(len(part.size) for part in data)
    found = [
        _alternated(data, start, rate, limit, tolerance)
        for start in _starts(bins, entries, rate, size, tolerance)
    ]
    return min(found, key=lambda one: one.cost).codebooks


class _Fit(NamedTuple):
    """Codebooks, and what they cost per weight, at most."""

    codebooks: TensorCodebooks
    cost: float


def _starts(
    bins: Histogram, entries: int, rate: float, size: int, tolerance: float
) -> Iterator[CodebookEntries]:
    """Codebooks where all weights are one tensor, which is fast: for this rate and for a lower one.

    Entries that pay in some tensors only are left by the lower one, so many that this is worth its
    time only for few bins or few entries.
    """
    whole = statistics_of(bins)
    split = refitted(whole, split_labels(bins, entries), entries)

    def fitted(start: CodebookEntries, own_rate: float, iterations: int) -> CodebookEntries:
        fit = _alternated([whole], start, own_rate, np.inf, tolerance, iterations)
        return fit.codebooks.codebook

    middle = fitted(split, rate, 100)
    yield middle
    if rate > 0 and len(middle.share) * size <= _LITTLE_WORK:
        yield fitted(split, rate / 4, 30)


def _alternated(
    data: Sequence[Statistics],
    start: CodebookEntries,
    rate: float,
    limit: float,
    tolerance: float,
    iterations: int = 100,
) -> _Fit:
    """Choice and fit in turn, as long as that pays."""
    codebooks = TensorCodebooks(start, np.tile(start.share, (len(data), 1)))
    total, cost = sum(part.size.sum() for part in data), np.inf
    for _ in range(iterations):
        found = [chosen(part, codebooks.of(t), rate) for t, part in enumerate(data)]
        values = [value for _, value in found]
        last, cost = (
            cost,
            sum(float(p.size @ np.minimum(v, limit)) for p, v in zip(data, values, strict=True)),
        )
        cost /= total
        sharing = [
            p._replace(size=p.size * (v <= limit)) for p, v in zip(data, values, strict=True)
        ]
        if not any(part.size.any() for part in sharing):
            break
        codebooks = _refitted_codebooks(
            sharing, [k for k, _ in found], len(codebooks.codebook.share)
        )
        if last - cost < tolerance:
            break
    return _Fit(codebooks, cost)


def _refitted_codebooks(
    data: Sequence[Statistics], choices: Sequence[NDArray[np.int64]], entries: int
) -> TensorCodebooks:
    """The codebook fitted to all tensors, and the shares of its entries in each."""
    joined = Statistics(*(np.concatenate(arrays) for arrays in zip(*data, strict=True)))
    counts = [np.bincount(c, p.size, entries) for p, c in zip(data, choices, strict=True)]
    kept = sum(counts) > _DROPPED * joined.size.sum()
    codebook = refitted(joined, np.concatenate(choices), entries)
    share = np.stack([count[kept] / max(count.sum(), 1) for count in counts])
    return TensorCodebooks(codebook, np.maximum(share, _UNSEEN))


def refitted(data: Statistics, choice: NDArray[np.int64], entries: int) -> CodebookEntries:
    """The best entry for the weights that chose it: m = sum p mu / sum p, 1 / v = mean p."""
    size = np.bincount(choice, data.size, entries)
    kept = size > _DROPPED * data.size.sum()
    size = size[kept]
    precision = np.bincount(choice, data.size * data.precision, entries)[kept]
    weighted = np.bincount(choice, data.size * data.weighted, entries)[kept]
    return CodebookEntries(weighted / precision, size / precision, size / size.sum())


def terms_of(codebook: CodebookEntries, rate: float) -> Array:
    """Rows a, b, c of the cost a p + b p mu + c of each entry, but for the term without k.

    KL(N_k || q) = [(v + m^2) p - 2 m p mu - log v] / 2 + (p mu^2 - log p - 1) / 2.
    """
    constant = -np.log(codebook.variance) / 2 - rate * np.log(codebook.share)
    return np.stack([(codebook.variance + codebook.mean**2) / 2, -codebook.mean, constant])


def chosen(
    data: Statistics, codebook: CodebookEntries, rate: float
) -> tuple[NDArray[np.int64], Array]:
    """The cheapest entry for each group, and its cost."""
    terms = terms_of(codebook, rate)
    rows = _rows(data)
    choice = np.empty(len(rows), dtype=np.int64)
    value = np.empty(len(rows))
    for part in _blocks(len(rows), terms):
        cost = _costs(rows[part], terms)
        choice[part] = cost.argmin(1)
        value[part] = np.take_along_axis(cost, choice[part, None], 1)[:, 0]
    return choice, value + data.rest


def _rows(data: Statistics) -> Array:
    return np.stack([data.precision, data.weighted, np.ones_like(data.precision)], 1)


def _costs(rows: Array, terms: Array) -> Array:
    """The product of both, without BLAS: its threads would wait for each other at three columns."""
    product: Array = np.einsum("ij,jk->ik", rows, terms)
    return product


def _blocks(rows: int, terms: Array) -> Iterator[slice]:
    return chunks(rows, max(64, _BLOCK // terms.shape[1]))


def assigned_entries(
    mean: Tensor,
    log_std: Tensor,
    codebook: CodebookEntries,
    rate: float,
    grid: Grid,
    bins: Histogram,
    candidates: int = 4,
) -> Tensor:
    """The cheapest entry for every weight, among the cheapest few of its bin."""
    data, terms = statistics_of(bins), terms_of(codebook, rate)
    count = min(candidates, len(codebook.share))
    rows = _rows(data)
    best = np.empty((len(rows), count), dtype=np.int32)
    for part in _blocks(len(rows), terms):
        best[part] = np.argpartition(_costs(rows[part], terms), count - 1, 1)[:, :count]
    choices = torch.from_numpy(best).to(mean.device)
    row_of = row_lookup(bins, grid, mean.device)
    term_rows = torch.from_numpy(terms.T.copy()).to(mean.device)
    labels = torch.empty(len(mean), dtype=torch.int32, device=mean.device)
    for part in chunks(len(mean), CHUNK // 8):
        options = choices[row_of[bin_numbers(mean[part], log_std[part], grid).long()]]
        a, b, c = term_rows[options.long()].unbind(2)
        mu, p = mean[part].double()[:, None], (-2 * log_std[part].double()).exp()[:, None]
        cost = a * p + b * p * mu + c
        labels[part] = options.gather(1, cost.argmin(1, keepdim=True)).flatten()
    return labels
