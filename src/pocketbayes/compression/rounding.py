"""Coarse storage of weights without stds: every tensor in steps that the loss can bear."""

import copy
import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from pocketbayes.compression.vectors import round_vectors_
from pocketbayes.layers import Ensemble, Inputs, named_posteriors
from pocketbayes.posteriors import Point, SparsePoint
from pocketbayes.training import curvatures

NATS_AN_EXAMPLE = 0.01  # by which a tolerance of 1 lets the loss of points rise
_DIRECTIONS = 4
_WIDEST = 2.0  # root mean squares of a tensor: a larger step leaves nothing of it
_DIGITS = 6  # bits of a step, so that its multiples are exact in float32


def sensitivities(
    model: nn.Module, likelihood: str, batches: Iterable[tuple[Inputs, Tensor]]
) -> dict[str, float]:
    """By name of each tensor of points: d^2 loss / dw^2, the mean over its weights and examples.

    Empty for networks that have no points, or other weights without a mean of their own.
    """
    if not any(isinstance(q, Point | SparsePoint) for _, q in named_posteriors(model)):
        return {}
    if isinstance(model, Ensemble):
        batches = list(batches)
        return {
            f"members.{number}.{name}": value
            for number, member in enumerate(model.members)
            for name, value in sensitivities(member, likelihood, batches).items()
        }
    if not all(hasattr(q, "mean") for _, q in named_posteriors(model)):
        return {}
    found = curvatures(model, likelihood, batches, only_last=False, most=_DIRECTIONS)
    known = dict(named_posteriors(model))
    return {
        name: float(value.detach().mean())
        for name, value in found.items()
        if isinstance(known[name], Point | SparsePoint)
    }


@torch.no_grad()
def rounded(model: nn.Module, sensitivity: Mapping[str, float], tolerance: float) -> nn.Module:
    """A copy whose points are multiples of a step of their tensor, and its vectors as well.

    Errors that are even in +-h/2 raise the loss by c h^2 / 24 for a weight of second derivative c.
    The bits, -log2 h for each of the n weights, are fewest for a rise of e in all where

        h^2 = 24 e / (n c),    e = NATS_AN_EXAMPLE * tolerance.

    All steps are one number times powers of two: multiples of the smallest are one section.
    """
    model = copy.deepcopy(model)
    round_vectors_(model, tolerance)
    if not sensitivity:
        return model
    points = {
        name: q
        for name, q in named_posteriors(model)
        if name in sensitivity and isinstance(q, Point | SparsePoint)
    }
    number = sum(q.num_active for q in points.values())
    rise = NATS_AN_EXAMPLE * tolerance
    steps = {
        name: _step(q.mean, 24 * rise / (number * max(sensitivity[name], 1e-300)))
        for name, q in points.items()
    }
    largest = max(points, key=lambda name: points[name].num_active)
    unit = _short(steps[largest])
    for name, q in points.items():
        if unit > 0 and steps[name] > 0:
            step = math.ldexp(unit, round(math.log2(steps[name] / unit)))
            q.mean.copy_((q.mean.double() / step).round() * step)
    return model


def _step(mean: Tensor, square: float) -> float:
    """The root, but no more than the weights themselves are large; 0 where all are 0."""
    size = float(mean.double().square().mean().sqrt()) if mean.numel() else 0.0
    return min(math.sqrt(square), _WIDEST * size)


def _short(step: float) -> float:
    """Down to so few bits."""
    fraction, exponent = math.frexp(step)
    return math.ldexp(math.floor(math.ldexp(fraction, _DIGITS)), exponent - _DIGITS)
