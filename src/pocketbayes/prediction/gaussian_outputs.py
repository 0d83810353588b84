"""Well-spread draws of outputs whose distribution is Gaussian."""

from functools import lru_cache

import torch
from torch import Tensor

_MOST_SOBOL = 21201  # dimensions that torch's engine has


def draws_of_gaussian(mean: Tensor, variance: Tensor, num_samples: int) -> Tensor:
    """(S, N, K, ...) draws mean + sqrt(variance) z, from a mean and variance of shape (N, K, ...).

    z (S, K) are fixed quasi-random standard normals in pairs z, -z, whose mean is 0 and unbiased
    variance 1, the same for each example and position; uncorrelated where S > 2 K.
    """
    outputs = mean.shape[1] if mean.dim() > 1 else 1
    z = _normals(num_samples, outputs, mean.dtype, mean.device)
    rest = [1] * max(mean.dim() - 2, 0)
    shape = (num_samples, 1, outputs, *rest) if mean.dim() > 1 else (num_samples, 1)
    return torch.addcmul(mean, variance.sqrt(), z.view(shape))


@lru_cache(maxsize=64)
def _normals(count: int, dims: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    half = _half(count, dims)
    centre = torch.zeros(count % 2, dims, dtype=half.dtype)
    return torch.cat([half, centre, -half]).to(device, dtype)


def _half(count: int, dims: int) -> Tensor:
    """One of each pair; all together of unbiased variance 1."""
    pairs, degrees = count // 2, count - 1
    if pairs == 0:
        return torch.zeros(0, dims, dtype=torch.float64)
    normal = _raw_normals(pairs, dims)
    if pairs > dims:
        scatter = 2 * normal.T @ normal / degrees
        return torch.linalg.solve_triangular(
            torch.linalg.cholesky(scatter), normal.T, upper=False
        ).T
    return normal / (2 * normal.square().sum(0) / degrees).sqrt()


def _raw_normals(pairs: int, dims: int) -> Tensor:
    if dims <= _MOST_SOBOL:
        engine = torch.quasirandom.SobolEngine(dims, scramble=True, seed=0)
        uniform = engine.draw(pairs, dtype=torch.float64)
    else:
        generator = torch.Generator().manual_seed(0)
        uniform = torch.rand(pairs, dims, dtype=torch.float64, generator=generator)
    return torch.special.ndtri(uniform.clamp(1e-6, 1 - 1e-6))
