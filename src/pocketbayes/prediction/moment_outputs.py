"""Outputs by moments: mean and variance of what a network gives, in one pass without draws."""

import math
import sys
from contextlib import AbstractContextManager, ExitStack, nullcontext

import torch
from torch import Tensor, nn

from pocketbayes.layers import (
    Inputs,
    describe,
    explained_failure,
    first_parameter,
    mapped,
    members_of,
    modules_of,
    run,
)
from pocketbayes.moments import Moments, carrying
from pocketbayes.posteriors import current_drawing
from pocketbayes.prediction.alone import alone, must_be_alone
from pocketbayes.prediction.gaussian_outputs import draws_of_gaussian, full_precision


def moment_draws(model: nn.Module, x: Inputs, num_samples: int) -> Tensor:
    """(S, N, ...) draws of outputs that are Gaussian; members of an ensemble have equally many."""
    factor = describe(model).moments_factor or 1.0
    pairs = [output_moments_of(member, x) for member in members_of(model)]
    each = math.ceil(num_samples / len(pairs)) if any(v is not None for _, v in pairs) else 1
    draws = [
        m.expand(each, *m.shape) if v is None else draws_of_gaussian(m, v * factor, each)
        for m, v in pairs
    ]
    return torch.cat(draws)


def output_moments_of(network: nn.Module, x: Inputs) -> tuple[Tensor, Tensor | None]:
    """Mean and variance of every output, in float32 at least; None: nothing is random."""
    device = first_parameter(network).device.type
    keeps_dropout, drawing = describe(network).keeps_dropout, current_drawing()
    x = mapped(_as_random if keeps_dropout else torch.clone, x)
    with ExitStack() as stack:
        is_alone = keeps_dropout or must_be_alone(modules_of(network))
        if is_alone and drawing is not None:
            stack.enter_context(alone(network, drawing))
        for context in (carrying(), full_precision(device), _as_written()):
            stack.enter_context(context)
        with explained_failure(x):
            output = run(network, x)
    if isinstance(output, Moments):
        return output.expected, output.variance
    return output.to(torch.promote_types(output.dtype, torch.float32)), None


def _as_random(x: Tensor) -> Tensor:
    """An input that dropout, which stays on, finds the moments of."""
    return Moments(x.clone(), torch.zeros_like(x)) if x.is_floating_point() else x.clone()


def _as_written() -> AbstractContextManager[object]:
    """Compiled networks run as they are written: compilers know nothing of moments."""
    if "torch._dynamo" not in sys.modules:
        return nullcontext()
    eager: AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    return eager
