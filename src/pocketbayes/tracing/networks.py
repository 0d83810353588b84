"""A network without numbers: plain layers whose weights are operands of a program."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from pocketbayes.errors import ProgramError
from pocketbayes.layers import (
    OURS,
    BayesianModule,
    LayerPosteriors,
    bayesian_modules,
    describe,
    dropout_modules,
    head_of,
    named_posteriors,
    plain_class_of,
    posteriors_of,
)
from pocketbayes.programs import Weight
from pocketbayes.tracing.value import Recorder, Traced


def weights_in(network: nn.Module) -> dict[str, Any]:
    """Posteriors and tensors of a network by all their names, tied ones several times."""
    posteriors = {
        f"{prefix}.{name}".lstrip("."): posterior
        for prefix, layer in bayesian_modules(network)
        for name, posterior in posteriors_of(layer).by_name().items()
    }
    plain: list[tuple[str, Any]] = [*network.named_parameters(remove_duplicate=False)]
    plain += network.named_buffers(remove_duplicate=False)
    return dict(plain) | posteriors


def without_numbers(
    network: nn.Module, recorder: Recorder, numbers: Mapping[str, int]
) -> nn.Module:
    """A copy in evaluation mode whose weights of these names are traced; others are constants."""
    operands: dict[int, Traced] = {}
    for name, value in weights_in(network).items():
        if name in numbers and id(value) not in operands:
            weight = Weight(numbers[name])
            operands[id(value)] = Traced(
                recorder, weight, tuple(value.shape), None, _type_of(value)
            )
    memo: dict[int, Any] = {id(value): value for value in _shared(network)} | operands
    tables = [(posteriors_of(layer), LayerPosteriors()) for _, layer in bayesian_modules(network)]
    memo |= {id(table): empty for table, empty in tables}
    try:
        made = copy.deepcopy(network, memo)
    except Exception as error:
        raise ProgramError(
            f"{type(network).__name__} cannot be copied ({error}), so that no program can be made "
            "of it: save without example="
        ) from error
    made.eval()
    layers = zip(modules_with_posteriors(network), modules_with_posteriors(made), strict=True)
    for layer, plain in layers:
        own = posteriors_of(layer).by_name()
        _make_plain_(plain, {n: operands[id(q)] for n, q in own.items()})
    if describe(network).keeps_dropout:
        for module in dropout_modules(made):
            module.training = True
    return made


def modules_with_posteriors(network: nn.Module) -> list[BayesianModule]:
    """In a fixed order."""
    return [layer for _, layer in bayesian_modules(network)]


def _type_of(value: Any) -> torch.dtype:
    return value.dtype if isinstance(value, Tensor) else torch.float32


def _shared(network: nn.Module) -> Iterator[object]:
    """What a copy need not copy: it is not read."""
    head = head_of(network)
    if head is not None:
        yield head


def _make_plain_(layer: BayesianModule, weights: Mapping[str, Traced]) -> None:
    """The plain layer, with the means of its posteriors as weights."""
    layer.__class__ = plain_class_of(layer)  # type: ignore[assignment]
    del layer._modules[OURS]
    for name, weight in weights.items():
        layer._parameters[name] = weight  # type: ignore[assignment]
    if isinstance(layer, nn.RNNBase):
        names: list[str] = layer._flat_weights_names
        layer.__dict__["_flat_weights"] = [getattr(layer, name) for name in names]
        layer.__dict__["_flat_weight_refs"] = [None for _ in names]


def means_in(network: nn.Module) -> dict[str, Tensor]:
    """The mean of every posterior, and all that is deterministic, by name."""
    known = {name: posterior.expectation() for name, posterior in named_posteriors(network)}
    tensors = weights_in(network)
    return {name: t for name, t in tensors.items() if isinstance(t, Tensor)} | known
