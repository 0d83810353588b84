"""Draws of the outputs from one pass of the mean network, by the head that `distill_` taught."""

from contextlib import ExitStack

import torch
from torch import Tensor, nn

from pocketbayes.errors import PocketBayesError, warn
from pocketbayes.layers import (
    Inputs,
    OnePassHead,
    describe,
    explained_failure,
    has_stale_head,
    head_inputs,
    head_of,
    home,
    like_output,
    mapped,
    modules_of,
    noting,
    spread,
    usable_head,
)
from pocketbayes.likelihoods import LIKELIHOODS, Likelihood
from pocketbayes.posteriors import current_drawing
from pocketbayes.prediction.alone import alone, must_be_alone
from pocketbayes.prediction.compilation import pass_on
from pocketbayes.prediction.gaussian_outputs import ONE_PASS, draws_of_gaussian, full_precision


def with_one_pass(model: nn.Module, estimator: str | None, likelihood: Likelihood) -> str | None:
    """The estimator as chosen; by itself a model with a head of its weights takes one pass.

    The head must have been taught for the same kind of outputs: classes, labels or values.
    """
    if estimator == ONE_PASS and has_stale_head(model):
        raise PocketBayesError(
            "the weights have changed since distill_, so its head knows nothing of them: call "
            'distill_(model, loader) again, or draw by estimator="weight"'
        )
    if estimator is None and not usable_head(model):
        return None
    if estimator not in (None, ONE_PASS) or head_of(model) is None:
        return estimator
    taught = taught_for(model)
    if taught is None or taught.kind == likelihood.kind:
        return ONE_PASS
    told = (
        f'the one-pass head was taught for likelihood="{taught.name}" ({taught.kind}), and knows '
        f'nothing of "{likelihood.name}" ({likelihood.kind})'
    )
    if estimator == ONE_PASS:
        raise PocketBayesError(
            f'{told}: call distill_(model, loader, likelihood="{likelihood.name}"), or draw by '
            'estimator="weight"'
        )
    warn(f"{told}: the network is drawn")
    return None


def taught_for(model: nn.Module) -> Likelihood | None:
    """The likelihood that the model's head was taught for; None: a head of old, nobody knows."""
    name = require_head(model).likelihood or describe(model).likelihood
    return None if name is None else LIKELIHOODS[name]


def one_pass_draws(model: nn.Module, x: Inputs, num_samples: int) -> Tensor:
    """(S, N, ...) well-spread draws from the Gaussian that the head gives."""
    mean, variance = one_pass_gaussian(model, x)
    return draws_of_gaussian(mean, variance, num_samples)


def one_pass_gaussian(model: nn.Module, x: Inputs) -> tuple[Tensor, Tensor]:
    """Mean and variance of the outputs, each in the shape of the output."""
    head = require_head(model)
    drawing = current_drawing()
    with ExitStack() as stack:
        if drawing is not None and must_be_alone(drawing.modules.get(model) or modules_of(model)):
            stack.enter_context(alone(model, drawing))
        notes = stack.enter_context(noting())
        with explained_failure(x):
            output = pass_on(model, x)(mapped(torch.clone, x))
    root = home(model)
    ready = head.ready(root)
    with full_precision(output.device.type):
        given = head_inputs(root, head, notes, output)
        if given.features.shape[1] != ready.linear.shape[1]:
            raise PocketBayesError(
                f"the one-pass head was taught {ready.linear.shape[1]} features, but there are "
                f"{given.features.shape[1]}: the model has changed, so call distill_ again"
            )
        mean, variance = spread(ready, *given)
    return like_output(mean, output), like_output(variance, output)


def require_head(model: nn.Module) -> OnePassHead:
    """The model's head, or an error."""
    head = head_of(model)
    if head is None:
        raise PocketBayesError(
            'estimator="one_pass" needs a head: call distill_(model, loader) first; on the command '
            "line, pocketbayes distill"
        )
    return head
