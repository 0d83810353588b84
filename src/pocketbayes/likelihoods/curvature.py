"""The curvature of each likelihood at a network's output, as a factor of its matrix."""

import math

import torch
from torch import Tensor

from pocketbayes.errors import PocketBayesError


def curvature_root(
    likelihood: str, output: Tensor, direction: Tensor, log_std: Tensor | None
) -> Tensor:
    """S v with S S^T = -E d^2 log p(y | f) / df^2, for the output f of one example.

    Classes, in dim 0: S S^T = diag(p) - p p^T, so S v = sqrt(p) v - p (sqrt(p) . v).
    Values: S v = v / std.
    """
    if likelihood == "categorical":
        probs = output.softmax(0)
        scaled = probs.sqrt() * direction
        return scaled - probs * scaled.sum(0)
    require_curvature(likelihood)
    if log_std is None:
        raise PocketBayesError("this model has learned no noise: its likelihood has no curvature")
    return direction * (-log_std).exp()


def require_curvature(likelihood: str) -> None:
    """An error unless the likelihood's curvature is known here."""
    if likelihood not in ("categorical", "gaussian"):
        raise PocketBayesError(
            f'Laplace knows the likelihoods "categorical" and "gaussian", not {likelihood!r}: '
            "train by MeanField() instead"
        )


def directions(like: Tensor, most: int) -> Tensor:
    """(K, ...) vectors v of the shape of `like` with E sum_k v v^T = 1.

    The unit vectors if there are at most that many; else that many of random signs.
    """
    size = like.numel()
    if size <= most:
        eye = torch.eye(size, dtype=like.dtype, device=like.device)
        return eye.reshape(size, *like.shape)
    bits = torch.randint(2, (most, *like.shape), device=like.device)
    signs: Tensor = 2 * bits.to(like.dtype) - 1
    return signs / math.sqrt(most)
