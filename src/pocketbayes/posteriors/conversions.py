"""From one family to another: with a std and without, all weights or some, shared or not."""

from math import log
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from pocketbayes.posteriors.base import Posterior
from pocketbayes.posteriors.gaussian import Gaussian, suitable_std
from pocketbayes.posteriors.log_uniform import LogUniform
from pocketbayes.posteriors.packed import Packed
from pocketbayes.posteriors.point import Point
from pocketbayes.posteriors.shared import Shared
from pocketbayes.posteriors.sparse import Sparse, SparsePoint
from pocketbayes.posteriors.spike_slab import SpikeSlab
from pocketbayes.posteriors.structures import to_units

Kind = TypeVar("Kind", bound=Posterior)


def as_point(posterior: Posterior) -> Posterior:
    """The posterior's mean with no noise; a sparse one on the same support."""
    posterior = as_unshared(posterior)
    if isinstance(posterior, Sparse):
        q = posterior
        mean = q.mean.detach().clone()
        return _frozen_as(q, SparsePoint(q.index.clone(), mean, q.shape, q.prior_std, q.structure))
    if not posterior.is_random:
        return posterior
    mean = nn.Parameter(posterior.expectation().detach().clone(), is_trainable(posterior))
    return Point(mean, float(posterior.prior_std))


def as_unshared(posterior: Posterior) -> Posterior:
    """A mean and std for each weight that shared them; a blend gets those of its mixture."""
    if not isinstance(posterior, Shared):
        return posterior
    q = posterior
    mean, variance = (dense.detach() for dense in q.moments())
    learns = is_trainable(q)
    if q.index is None or q.structure is None:
        return Gaussian(nn.Parameter(mean.clone(), learns), variance.log() / 2, q.prior_std.clone())
    mean, variance = (to_units(dense, q.structure)[q.index] for dense in (mean, variance))
    log_std, prior = variance.log() / 2, q.prior_std.clone()
    return Sparse(q.index.clone(), mean, log_std, q.shape, prior, q.structure, learns)


def as_random(posterior: Posterior, std: float | None) -> Posterior:
    """A point with this std around it, a sparse one on its support; Gaussian priors throughout.

    None: a std that suits the size of the weights, see `suitable_std`.
    """
    if std is None and isinstance(posterior, Point | SparsePoint):
        std = suitable_std(posterior.mean)
    if isinstance(posterior, Point):
        return Gaussian.around(posterior.mean, cast(float, std), float(posterior.prior_std))
    if isinstance(posterior, SparsePoint):
        q = posterior
        index, mean = q.index.clone(), q.mean.detach().clone()
        log_std = torch.full_like(mean, log(cast(float, std)))
        trainable = q.mean.requires_grad
        return Sparse(index, mean, log_std, q.shape, q.prior_std, q.structure, trainable)
    return as_gaussian(posterior) if isinstance(posterior, LogUniform) else posterior


def as_log_uniform(posterior: Gaussian) -> LogUniform:
    """The same Gaussian under a log-uniform prior."""
    q = posterior
    return _frozen_as(q, LogUniform(q.mean, q.log_std.detach().clone(), q.prior_std.clone()))


def as_gaussian(posterior: LogUniform) -> Gaussian:
    """The same Gaussian under its Gaussian prior."""
    q = posterior
    return _frozen_as(q, Gaussian(q.mean, q.log_std.detach().clone(), q.prior_std.clone()))


def as_dense(posterior: Packed) -> Gaussian | Point:
    """All weights there: those that were not have mean 0 and the average std of the others."""
    mean, prior = posterior.expectation().detach(), posterior.prior_std
    if not isinstance(posterior, Sparse):
        return _frozen_as(posterior, Point(mean, prior))
    average = float(posterior.std.detach().mean().log())
    log_std = posterior.placed(posterior.log_std.detach(), fill=average)
    return _frozen_as(posterior, Gaussian(mean, log_std, prior))


def as_packed(dense: Gaussian | Point, index: Tensor, structure: str) -> Packed:
    """Some units of a dense posterior; `index` holds their sorted numbers."""
    mean = to_units(dense.mean.detach(), structure)[index]
    if isinstance(dense, Point):
        point = SparsePoint(index, mean, dense.shape, dense.prior_std, structure)
        return _frozen_as(dense, point)
    log_std = to_units(dense.log_std.detach(), structure)[index]
    return _frozen_as(dense, Sparse(index, mean, log_std, dense.shape, dense.prior_std, structure))


def thinned(posterior: Posterior, keep: Tensor) -> Posterior:
    """What is left when only some units stay; dense if all do, without inclusion variables.

    Args:
        posterior: of a Gaussian or a point, sparse or not, or with inclusion variables.
        keep: a flat mask of the units that are there: weights, units of a sparse tensor, inclusion
        variables.
    """
    q = posterior
    if isinstance(q, Packed):
        return q if bool(keep.all()) else _thinner(q, keep)
    if isinstance(q, SpikeSlab):
        keep = q.each(keep.view_as(q.log_odds)).expand(q.shape).flatten()
        q = _frozen_as(q, Gaussian(q.mean, q.log_std.detach().clone(), q.prior_std.clone()))
    assert isinstance(q, Gaussian | Point)
    if bool(keep.all()):
        return as_gaussian(q) if isinstance(q, LogUniform) else q
    return as_packed(q, keep.nonzero().flatten(), "none")


def _thinner(q: Packed, keep: Tensor) -> Packed:
    index, mean, prior = q.index[keep], q.mean.detach()[keep], q.prior_std.clone()
    if not isinstance(q, Sparse):
        return _frozen_as(q, SparsePoint(index, mean, q.shape, prior, q.structure))
    log_std = q.log_std.detach()[keep]
    return _frozen_as(q, Sparse(index, mean, log_std, q.shape, prior, q.structure))


def _frozen_as(old: Posterior, new: Kind) -> Kind:
    """The new posterior, whose parameters learn if those of the same name did."""
    learns = {name: p.requires_grad for name, p in old.named_parameters()}
    for name, parameter in new.named_parameters():
        parameter.requires_grad_(learns[name])
    return new


def is_trainable(posterior: Posterior) -> bool:
    """Whether any parameter of it learns."""
    return any(p.requires_grad for p in posterior.parameters())
