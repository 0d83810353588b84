"""Draws of outputs that are Gaussian: always the same ones, spread well."""

from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache

import torch
from torch import Tensor

MOMENTS, ONE_PASS = "moments", "one_pass"  # the estimators that give Gaussian outputs
_SEED = 20
_FLAT = 1e-9  # of the largest variance: what is not flat has at least 1e-5
_MOST_SOBOL = torch.quasirandom.SobolEngine.MAXDIM


def draws_of_gaussian(mean: Tensor, variance: Tensor, num_samples: int) -> Tensor:
    """(S, N, ...) draws mean + sqrt(variance) z, of outputs (N, C, ...) that are independent.

    z (S, C) is the same for all examples and positions: quasi-random, in pairs z and -z, with
    variance 1 in each output and, if S allows, no correlation. One draw is the mean.
    """
    outputs = mean.shape[1] if mean.dim() > 1 else 1
    noise = spread_normals(num_samples, outputs).to(mean)
    shape = (num_samples, 1, *mean.shape[1:2], *(1 for _ in mean.shape[2:]))
    return torch.addcmul(mean, variance.sqrt(), noise.view(shape))


@lru_cache(maxsize=64)
def spread_normals(number: int, dimensions: int) -> Tensor:
    """(number, dimensions) standard normal numbers whose sample moments are the exact ones."""
    half = number // 2
    if half == 0:
        return torch.zeros(number, dimensions, dtype=torch.float64)
    if dimensions <= _MOST_SOBOL:
        engine = torch.quasirandom.SobolEngine(dimensions, scramble=True, seed=_SEED)  # type: ignore[no-untyped-call]
        one_side = _stratified(engine.draw(half, dtype=torch.float64) - 0.5)
    else:
        generator = torch.Generator().manual_seed(_SEED)
        one_side = torch.randn(half, dimensions, dtype=torch.float64, generator=generator)
    middle = one_side.new_zeros(number % 2, dimensions)
    both = torch.cat([one_side, -one_side, middle])
    return _with_unit_moments(both) if half > dimensions else both / both.std(0)


def _stratified(signed: Tensor) -> Tensor:
    """Normals with these signs, whose sizes are n equally likely ones, in the order of these."""
    ranks = signed.abs().argsort(0).argsort(0)
    sizes: Tensor = torch.special.ndtri((ranks + 0.5) / (2 * len(signed)) + 0.5)
    return sizes * signed.sign()


def _with_unit_moments(normals: Tensor) -> Tensor:
    """The same, mapped so that their sample covariance is 1.

    Where they lie in a plane, as 8 in 3 dimensions do, each dimension is scaled alone.
    """
    covariance = normals.T @ normals / (len(normals) - 1)
    values, vectors = torch.linalg.eigh(covariance)
    if values[0] < _FLAT * values[-1]:
        return normals / normals.std(0)
    found: Tensor = normals @ (vectors * values.rsqrt()) @ vectors.T
    return found


def full_precision(device: str) -> AbstractContextManager[object]:
    """Where autocast, which would round means and variances, is off."""
    if torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()
