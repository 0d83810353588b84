"""Priors that are learned: empirical Bayes, one variance for each tensor."""

import math
from collections.abc import Iterator

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

    In place: compiled code keeps the buffers it was made with.
    """
    for posterior, std in _moved(model, rate):
        posterior.prior_std.copy_(std)


@torch.no_grad()
def renew_priors_(model: nn.Module, rate: float) -> None:
    """The same with new buffers: a loss that still waits for its backward pass keeps the old."""
    for posterior, std in _moved(model, rate):
        posterior.prior_std = std.to(posterior.prior_std)


def _moved(model: nn.Module, rate: float) -> Iterator[tuple[Posterior, Tensor]]:
    """Every posterior whose prior can be learned, with the std that it goes to."""
    for _, posterior in named_posteriors(model):
        best = posterior.best_prior_variance() if is_trainable(posterior) else None
        if best is not None:
            old = posterior.prior_std
            wide = old.to(torch.promote_types(old.dtype, torch.float32))
            std = torch.lerp(wide.square(), best.to(wide), rate).sqrt()
            yield posterior, std.clamp_min(torch.finfo(old.dtype).tiny)


def learns_prior(method: Method) -> bool:
    """Whether this method, its defaults filled in, learns the prior."""
    return isinstance(method, VariationalMethod) and method.prior == "learned"


def begin_priors_(model: nn.Module, method: Method, size: int) -> None:
    """Notes how the prior comes about; one that is learned begins at its best for the start."""
    known, beta_before = describe(model).prior, describe(model).beta
    learns = learns_prior(method) and any(True for _ in _moved(model, 1.0))
    if learns and known != "learned":
        agree_on_state(model)  # several processes may have begun with several networks
        move_priors_(model, rate=1.0)
    beta, decay = None, None
    if isinstance(method, VariationalMethod):
        beta, decay = method.beta, decay_std(method, size)
        if method.least_beta is not None and beta is not None and beta_before is not None:
            beta = min(beta, beta_before)  # which follows doubt from there
    prior = "learned" if learns else "fixed" if known else None  # None: nobody named it
    update_description(model, prior=prior, beta=beta, decay_std=decay)


def decay_std(method: VariationalMethod, size: int) -> float | None:
    """The std of the Gaussian prior that SGD's weight decay puts on the means, beside the KL's.

    decay / 2 |mean|^2 for each example is beta / N |mean|^2 / (2 s^2) with s^2 = beta / (N decay).
    AdamW's decay is no prior: it does not enter the gradient.
    """
    if method.optimizer != "sgd" or not method.weight_decay or not method.beta:
        return None
    return math.sqrt(method.beta / (size * method.weight_decay))
