"""Priors that are learned: empirical Bayes, one variance for each tensor."""

import math

import torch
from torch import Tensor, nn

from pocketbayes.layers import describe, named_posteriors, update_description
from pocketbayes.methods import Method, VariationalMethod, agree_on_state
from pocketbayes.posteriors import Posterior, is_trainable

EVERY = 10  # optimiser steps from one move to the next
RATE = 0.2  # part of the way that a variance goes in one move


@torch.no_grad()
def move_priors_(model: nn.Module, rate: float = RATE) -> None:
    """Moves the prior of every tensor that learns towards the one its KL is least at.

    prior variance <- (1 - rate) prior variance + rate mean(mean^2 + std^2)
    """
    for _, posterior in named_posteriors(model):
        best = posterior.best_prior_variance() if is_trainable(posterior) else None
        if best is not None:
            _set_prior_(posterior, torch.lerp(_wide(posterior.prior_std).square(), best, rate))


def _wide(number: Tensor) -> Tensor:
    return number.to(torch.promote_types(number.dtype, torch.float32))


def _set_prior_(posterior: Posterior, variance: Tensor) -> None:
    tiny = torch.finfo(posterior.prior_std.dtype).tiny
    posterior.prior_std.copy_(variance.sqrt().clamp_min(tiny))


def learns_prior(method: Method) -> bool:
    """Whether this method, its defaults filled in, learns the prior."""
    return isinstance(method, VariationalMethod) and method.prior == "learned"


def begin_priors_(model: nn.Module, method: Method, size: int) -> None:
    """Notes how the prior comes about; one that is learned begins at its best for the start."""
    if learns_prior(method) and describe(model).prior != "learned":
        agree_on_state(model)  # several processes may have begun with several networks
        move_priors_(model, rate=1.0)
    if isinstance(method, VariationalMethod):
        chosen = "fixed" if describe(model).prior else None  # None: nobody named it
        update_description(
            model,
            prior="learned" if learns_prior(method) else chosen,
            beta=method.beta,
            decay_std=decay_std(method, size),
        )


def decay_std(method: VariationalMethod, size: int) -> float | None:
    """The std of the Gaussian prior that weight decay puts on the means, beside the KL's.

    decay / 2 |mean|^2 for each example is beta / N |mean|^2 / (2 s^2) with s^2 = beta / (N decay).
    """
    if not method.weight_decay or not method.beta:
        return None
    return math.sqrt(method.beta / (size * method.weight_decay))
