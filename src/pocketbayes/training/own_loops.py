"""The loss of a training loop of one's own: what `fit` minimises, in one call."""

from typing import Any

import torch
from torch import Tensor, nn

from pocketbayes.errors import DataError, PocketBayesError, require_count, require_number
from pocketbayes.layers import (
    describe,
    forget_calibration,
    forget_head,
    leave_noise_to_loss,
    named_posteriors,
    require_module,
    require_tensor,
    update_description,
)
from pocketbayes.likelihoods import Likelihood, learned_of, likelihood_of, start_learned_, total_kl
from pocketbayes.methods import MeanField, VariationalMethod, averaged
from pocketbayes.training.defaults import with_constant_beta, with_defaults
from pocketbayes.training.priors import EVERY, RATE, begin_priors_, learns_prior, renew_priors_

_NOISE_STEP = 0.05  # of a noise's logarithm: at most this, and this part of its gradient


def loss(
    model: nn.Module,
    output: Any,
    target: Tensor,
    dataset_size: int,
    beta: float | None = None,
    *,
    likelihood: str | None = None,
    progress: float = 1.0,
) -> Tensor:
    """The loss of one batch, as `fit` has it: nll + beta / N KL. Call `backward` on it.

    A noise that the likelihood needs, and a prior that is learned, are the model's, and each call
    moves them a little; your optimiser takes only `model.parameters()`. (A noise that `fit` has
    made is among these and left to it.)

    Args:
        model: the result of `bayesianize_`.
        output: what `model(x)` gave for the batch.
        target: its targets.
        dataset_size: N, the number of training examples, not of the batch.
        beta: weight of the KL. None: as in `fit`, by likelihood and network: see `MeanField`; 0.1
            where `fit` has a beta that follows doubt, which needs epochs.
        likelihood: as in `fit`. None: the model's; else "categorical" for integer targets and
            "gaussian" for others.
        progress: share of training that has passed, from 0 to 1: beta rises with it as in `fit`.

    Example:
        >>> for x, y in loader:
        ...     optimizer.zero_grad()
        ...     loss(model, model(x), y, dataset_size=len(dataset)).backward()
        ...     optimizer.step()
    """
    require_module(model)
    require_count(dataset_size, "dataset_size")
    require_number(progress, "progress", least=0, most=1)
    posteriors = [posterior for _, posterior in named_posteriors(model)]
    if not posteriors:
        raise PocketBayesError("this model has no posterior: call bayesianize_(net) first")
    output = require_tensor(output)
    if not isinstance(target, Tensor):
        raise DataError(f"the target is a {type(target).__name__}; pass a tensor")
    if torch.is_grad_enabled():
        forget_calibration(model)
        forget_head(model)
        if describe(model).training is not None:
            update_description(model, training=None)
    kind = _likelihood(model, target, likelihood)
    method = _method(model, kind, beta, dataset_size)
    nll = _nll(model, kind, output, target)
    if learns_prior(method) and torch.is_grad_enabled():
        renew_priors_(model, RATE / EVERY)
    return nll + method.kl_weight(progress) / dataset_size * total_kl(posteriors)


def _likelihood(model: nn.Module, target: Tensor, chosen: str | None) -> Likelihood:
    """The likelihood, which the model's description then has."""
    by_target = "gaussian" if target.is_floating_point() else "categorical"
    kind = likelihood_of(model, chosen or describe(model).likelihood or by_target)
    if describe(model).likelihood != kind.name:
        update_description(model, likelihood=kind.name)
    return kind


def _method(model: nn.Module, kind: Likelihood, beta: float | None, size: int) -> VariationalMethod:
    """The beta, prior and warm-up of `fit`; at the first call the prior begins."""
    method = with_defaults(MeanField(beta=beta), model, kind.name, fits=False)
    assert isinstance(method, VariationalMethod)
    method = with_constant_beta(method)
    known = describe(model)
    if known.beta != method.beta or (learns_prior(method) and known.prior != "learned"):
        begin_priors_(model, method, size)
    return method


def _nll(model: nn.Module, kind: Likelihood, output: Tensor, target: Tensor) -> Tensor:
    """The mean NLL; a noise that no optimiser has follows its gradient by itself."""
    if learned_of(model, kind) is None:
        start_learned_(model, kind, output, target)
        for noise in (learned_of(model, kind) or {}).values():
            averaged(noise.requires_grad_(False))
        leave_noise_to_loss(model, True)
    learned = learned_of(model, kind) or {}
    own = {name: noise for name, noise in learned.items() if not noise.requires_grad}
    if own and torch.is_grad_enabled():
        _move_noise_(kind, output.detach(), target, learned, own)
    nll, _ = kind.nll(output, target, learned)
    if not nll.isfinite():
        kind.require_possible(output, target)
    return nll


def _move_noise_(
    kind: Likelihood,
    output: Tensor,
    target: Tensor,
    learned: dict[str, Tensor],
    own: dict[str, Tensor],
) -> None:
    """One small step of each logarithm against the gradient of the NLL."""
    free = {name: noise.detach().clone().requires_grad_() for name, noise in own.items()}
    nll, _ = kind.nll(output, target, learned | free)
    gradients = torch.autograd.grad(nll, list(free.values()))
    for noise, gradient in zip(own.values(), gradients, strict=True):
        step = (_NOISE_STEP * averaged(gradient)).clamp(-_NOISE_STEP, _NOISE_STEP)
        noise.sub_(step.nan_to_num(0.0))
