"""Rules of moments beside what 100,000 draws say."""

import torch
from torch import Tensor

from pocketbayes.moments import Moments

DRAWS = 100_000
# Two-sided 4e-8 for each number that is compared: with 10,000 of them a false alarm in 2,500 runs.
SIGMAS = 5.5


def gaussians(*shape, seed=0, positions=None, scale=1.0, shift=0.0) -> Moments:
    """Means around `shift`, stds between 0.3 and 1 times `scale`."""
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(shape, generator=generator) + shift
    std = (0.3 + 0.7 * torch.rand(shape, generator=generator)) * scale
    return Moments(mean, std.square(), positions)


def drawn(x: Moments, number: int, seed: int) -> Tensor:
    """(number, ...) draws, whose noise is common along `positions`."""
    sizes = [1 if common else size for size, common in zip(x.shape, x.positions, strict=True)]
    noise = torch.randn(number, *sizes, generator=torch.Generator().manual_seed(seed))
    return x.expected + x.variance.sqrt() * noise


def assert_agrees(operation, *values: Moments, mean_slack=0.0, variance_slack=0.0) -> None:
    """The moments of operation(*values) are those of its draws.

    Slack is what a rule that is no identity may be off by: of the std, and of the variance.
    """
    with torch.no_grad():
        found = operation(*values)
        draws = [drawn(x, DRAWS, seed) for seed, x in enumerate(values, 100)]
        outputs = torch.func.vmap(operation, chunk_size=20_000)(*draws)
    assert isinstance(found, Moments)
    assert found.shape == outputs.shape[1:]
    assert_moments(found.expected, found.variance, outputs, mean_slack, variance_slack)


def assert_moments(mean, variance, outputs, mean_slack=0.0, variance_slack=0.0) -> None:
    """These moments are those of (draws, ...) outputs, but for slack and chance."""
    truth = outputs.mean(0, dtype=torch.float64)
    squares = (outputs - truth.to(outputs.dtype)).square_()
    spread, fourth = (t.mean(0, dtype=torch.float64) for t in (squares, squares.square()))
    root = len(outputs) ** 0.5
    of_mean = SIGMAS * spread.sqrt() / root + mean_slack * spread.sqrt() + 1e-6
    of_variance = SIGMAS * (fourth - spread.square()).clamp_min(0).sqrt() / root
    assert ((mean - truth).abs() <= of_mean).all(), ((mean - truth) / spread.sqrt()).abs().max()
    slack = of_variance + variance_slack * spread + 1e-6
    assert ((variance - spread).abs() <= slack).all(), (variance / spread - 1).abs().max()
