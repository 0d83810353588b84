"""From one family to another: with a std and without, with all weights and with some."""

from math import log

import torch
from torch import Tensor, nn

from pocketbayes.posteriors.base import Posterior
from pocketbayes.posteriors.gaussian import Gaussian
from pocketbayes.posteriors.packed import Packed
from pocketbayes.posteriors.point import Point
from pocketbayes.posteriors.sparse import Sparse, SparsePoint
from pocketbayes.posteriors.structures import to_units


def as_point(posterior: Posterior) -> Posterior:
    """The posterior's mean with no noise; a sparse one on the same support."""
    trainable = is_trainable(posterior)
    if isinstance(posterior, Sparse):
        q = posterior
        mean = q.mean.detach().clone()
        return SparsePoint(q.index.clone(), mean, q.shape, q.prior_std, q.structure, trainable)
    if not posterior.is_random:
        return posterior
    mean = nn.Parameter(posterior.expectation().detach().clone(), trainable)
    return Point(mean, float(posterior.prior_std))


def as_spread(posterior: Posterior, std: float) -> Posterior:
    """A point with this std around it; a sparse one on the same support."""
    if isinstance(posterior, Point):
        return Gaussian.around(posterior.mean, std, float(posterior.prior_std))
    if isinstance(posterior, SparsePoint):
        q = posterior
        index, mean = q.index.clone(), q.mean.detach().clone()
        log_std = torch.full_like(mean, log(std))
        return Sparse(index, mean, log_std, q.shape, q.prior_std, q.structure, is_trainable(q))
    return posterior


def as_dense(posterior: Packed) -> Gaussian | Point:
    """All weights there: those that were not have mean 0 and the average std of the others."""
    trainable, prior = is_trainable(posterior), posterior.prior_std
    mean = nn.Parameter(posterior.expectation().detach(), trainable)
    if not isinstance(posterior, Sparse):
        return Point(mean, prior)
    average = float(posterior.std.detach().mean().log())
    return Gaussian(mean, posterior.placed(posterior.log_std.detach(), fill=average), prior)


def as_packed(dense: Gaussian | Point, index: Tensor, structure: str) -> Packed:
    """Some units of a dense posterior; `index` holds their sorted numbers."""
    shape, prior, trainable = dense.shape, dense.prior_std, is_trainable(dense)
    mean = to_units(dense.mean.detach(), structure)[index]
    if isinstance(dense, Point):
        return SparsePoint(index, mean, shape, prior, structure, trainable)
    log_std = to_units(dense.log_std.detach(), structure)[index]
    return Sparse(index, mean, log_std, shape, prior, structure, trainable)


def is_trainable(posterior: Posterior) -> bool:
    """Whether any parameter of it learns."""
    return any(p.requires_grad for p in posterior.parameters())
