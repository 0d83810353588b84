"""Sharpness-aware steps (Nguyen et al. 2024): gradients from where the loss nearby is worst."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from pocketbayes.methods import MeanField, Method


def flatness_of(method: Method) -> float:
    """The radius of sharpness-aware steps; 0: plain steps."""
    return method.flatness if isinstance(method, MeanField) else 0.0


@contextmanager
def at_worst_means(means: Sequence[nn.Parameter], radius: float) -> Iterator[None]:
    """Moves means by radius g / |g|, g the gradients that they have; afterwards they are as before.

    The loss grows fastest in that direction: to first order no point so near has a larger one.
    """
    moved = [mean for mean in means if mean.grad is not None]
    kept = [mean.detach().clone() for mean in moved]
    _move_(moved, radius)
    try:
        yield
    finally:
        with torch.no_grad():
            for mean, before in zip(moved, kept, strict=True):
                mean.copy_(before)


@torch.no_grad()
def _move_(means: Sequence[nn.Parameter], radius: float) -> None:
    gradients = [mean.grad for mean in means if mean.grad is not None]
    share = radius / _length(gradients)
    for mean, gradient in zip(means, gradients, strict=True):
        mean.add_(share.to(gradient) * gradient)


def _length(gradients: Sequence[Tensor]) -> Tensor:
    """Of all together; where they are zero there is no direction, and any length will do."""
    length = nn.utils.get_total_norm(gradients)
    return length.clamp_min(torch.finfo(length.dtype).tiny ** 0.5)
