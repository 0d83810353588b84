"""Draws of a network's output: which network runs, how often, with which noise."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn

from pocketbayes.errors import PocketBayesError
from pocketbayes.layers import (
    ESTIMATORS,
    Inputs,
    bayesian_modules,
    describe,
    drawing_by,
    dropout_modules,
    estimator_of,
    explained_failure,
    mapped,
    members_of,
    named_posteriors,
    restored_mode,
    run,
    small_products,
    tensors_of,
)
from pocketbayes.posteriors import (
    Codebook,
    JointDraw,
    codebooks_with_passes,
    isolated_randomness,
    joint_draws,
    passes_of,
    repeated_input,
    seed_everything,
)
from pocketbayes.prediction.moment_outputs import MOMENTS, moment_draws
from pocketbayes.prediction.one_pass import (
    ONE_PASS,
    chosen_estimator,
    one_pass_draws,
    require_head,
)

PREDICTIVES = (*ESTIMATORS, MOMENTS, ONE_PASS)


def drawn_by(
    model: nn.Module, num_samples: int, estimator: str | None
) -> Callable[[Inputs], Tensor]:
    """How (S, N, ...) outputs are made of a batch; to be called inside of `drawing`."""
    if estimator == ONE_PASS:
        require_head(model)
        return lambda x: one_pass_draws(model, x, num_samples)
    if estimator == MOMENTS:
        return lambda x: moment_draws(model, x, num_samples)
    passes = networks_to_run(model, num_samples, estimator)
    return lambda x: draws_of(passes, x)


def predictive_of(model: nn.Module, chosen: str | None) -> str:
    """How draws are made, as chosen or by itself; "none" if no weight is random."""
    chosen = chosen or chosen_estimator(model, None)
    random = any(posterior.is_random for _, posterior in named_posteriors(model))
    return chosen or (estimator_of(model) if random else "none")


def networks_to_run(model: nn.Module, num_samples: int, estimator: str | None) -> list[nn.Module]:
    """The network to run for each draw; members of an ensemble take turns, all equally often."""
    members = members_of(model)
    random = any(posterior.is_random for _, posterior in named_posteriors(model))
    if estimator == "mean" or not (random or describe(model).keeps_dropout):
        return members
    return members * math.ceil(num_samples / len(members))


def draws_of(passes: list[nn.Module], x: Inputs) -> Tensor:
    """(S, N, ...) outputs, from a copy of x that is mended if a network writes into it."""
    outputs, copy = [], mapped(torch.clone, x)
    copies = list(zip(tensors_of(copy), tensors_of(x), strict=True))
    with repeated_input(*tensors_of(copy)):
        with_passes = {network: _with_passes(network, x) for network in dict.fromkeys(passes)}
        for network in passes:
            for drawn in with_passes[network]:
                drawn.begin_pass()
            versions = [tensor._version for tensor, _ in copies]
            with explained_failure(x):
                outputs.append(run(network, copy))
            for version, (tensor, original) in zip(versions, copies, strict=True):
                if tensor._version != version:
                    tensor.copy_(original)
    draws = torch.stack(outputs)
    return draws.to(torch.promote_types(draws.dtype, torch.float32))


def _with_passes(network: nn.Module, x: Inputs) -> list[Codebook | JointDraw]:
    """What is drawn once in a pass of the network."""
    asked = [
        layer.posterior(name)
        for _, layer in bayesian_modules(network)
        for name in layer.posteriors
        if layer.estimator != "mean"
        and (layer.estimator == "weight" or not layer.posterior(name).is_independent)
    ]
    return [
        *codebooks_with_passes(network),
        *joint_draws(asked, any(map(_lies_channels_last, tensors_of(x)))),
    ]


def _lies_channels_last(x: Tensor) -> bool:
    return (
        x.dim() == 4
        and not x.is_contiguous()
        and x.is_contiguous(memory_format=torch.channels_last)
    )


@contextmanager
def drawing(
    model: nn.Module, estimator: str | None, generator: torch.Generator | None
) -> Iterator[None]:
    """Where the model draws as it predicts; afterwards its mode is as it was.

    For one pass it is the mean network.

    With a generator the global ones are so, too.
    """
    estimator = "mean" if estimator == ONE_PASS else estimator
    with (
        torch.inference_mode(False),
        torch.no_grad(),
        ready_to_predict(model, estimator),
        small_products(model),
        seeded(generator, next(model.parameters()).device),
        passes_of(model),
        repeated_input() if estimator == "moments" else nullcontext(),
    ):
        yield


@contextmanager
def ready_to_predict(model: nn.Module, estimator: str | None) -> Iterator[None]:
    """Evaluation mode and the wanted estimator; afterwards every module is as it was."""
    by_layers = None if estimator == "moments" else estimator
    with drawing_by(model, by_layers), restored_mode(model):
        model.eval()
        if describe(model).keeps_dropout and estimator != "mean":
            for module in dropout_modules(model):
                module.training = True
        yield


@contextmanager
def seeded(generator: torch.Generator | None, device: torch.device) -> Iterator[None]:
    """With a generator: a fork of the default generators, seeded by its next number."""
    if generator is None:
        yield
        return
    if not isinstance(generator, torch.Generator):
        raise PocketBayesError(f"generator must be a torch.Generator; got {generator!r}")
    seed = int(
        torch.empty((), dtype=torch.int64, device=generator.device).random_(generator=generator)
    )
    with isolated_randomness(device):
        seed_everything(seed, device)
        yield
