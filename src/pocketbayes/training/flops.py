"""What training costs in operations: a number that no machine, kernel or compiler changes.

It says what a device that skips zeros would have to do, not what this one did: torch's kernels
multiply by zeros too. For that, look at seconds and bytes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pocketbayes.layers import (
    BayesianModule,
    Inputs,
    called,
    num_examples,
    restored_mode,
    tensors_of,
)
from pocketbayes.methods import ExchangingMethod, Method
from pocketbayes.posteriors import isolated_randomness


@dataclass(frozen=True)
class TrainingFlops:
    """FLOPs per training example and step: of the weights there are, and if all were there.

    Attributes:
        active: with the weights that exist; exchanges of weights included, averaged over steps.
        dense: with all weights.
    """

    active: float
    dense: float

    @property
    def ratio(self) -> float:
        """Active over dense."""
        return self.active / self.dense


def training_flops(model: nn.Module, x: Inputs, method: Method | None = None) -> TrainingFlops:
    """Floating-point operations of training on one example of `x`.

    A multiply-add with a weight counts 2; norms, activations, noise and attention's products of
    activations, small or equal for both, do not count. With f the forward pass of one example, f_S
    over the active weights and f_D over all, a step takes 3 f (forward, gradients of activations,
    gradients of weights). A sparse method adds 2 f_S + f_D in each step that exchanges weights,
    since growth needs the gradient of all. The local reparameterisation doubles everything, for
    sparse and dense alike, and is left out.

    Args:
        model: a network, converted or not; it is run once, without gradients.
        x: inputs of one batch: a tensor, or several in a tuple or, by name, in a dict.
        method: how it is trained, for the exchanges of sparse methods.

    Example:
        >>> training_flops(model, x, Subspace(density=0.05)).ratio
    """
    uses = _uses_of_weights(model, x)
    dense = 2 * sum(count * size for count, size, _ in uses) / num_examples(x)
    active = 2 * sum(count * kept for count, _, kept in uses) / num_examples(x)
    extra = 0.0
    if isinstance(method, ExchangingMethod) and active < dense:
        passes = method.growth_steps if method.growth == "multi_step" else 1
        share = method.exchange_until * passes / method.update_every
        extra = share * (2 * active + dense)
    return TrainingFlops(3 * active + extra, 3 * dense)


def _uses_of_weights(model: nn.Module, x: Inputs) -> list[tuple[int, int, int]]:
    """For each weight tensor: how often a pass over `x` uses it, its size, and its active size."""
    found: list[tuple[int, int, int]] = []

    def note(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        count = _positions(module, inputs, output)
        found.extend((count, size, kept) for size, kept in _sizes(module))

    device = tensors_of(x)[0].device
    with (
        _hooked(model, note), restored_mode(model), isolated_randomness(device), torch.no_grad()
    ):  # fmt: skip
        model.eval()
        called(model, x)
    return found


@contextmanager
def _hooked(model: nn.Module, note: Any) -> Iterator[None]:
    handles = [m.register_forward_hook(note) for m in model.modules() if _positions_known(m)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _positions_known(module: nn.Module) -> bool:
    return isinstance(
        module, nn.Linear | nn.modules.conv._ConvNd | nn.MultiheadAttention | nn.RNNBase
    )


def _positions(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> int:
    """How many times a layer applies its weight: once per row, output pixel or token."""
    if isinstance(module, nn.Linear):
        return int(output.numel() // module.out_features)
    if isinstance(module, nn.modules.conv._ConvTransposeNd):
        return int(inputs[0].numel() // module.in_channels)
    if isinstance(module, nn.modules.conv._ConvNd):
        return int(output.numel() // module.out_channels)
    if isinstance(module, nn.MultiheadAttention):
        return int(output[0].numel() // module.embed_dim)
    tokens = inputs[0] if isinstance(inputs[0], Tensor) else inputs[0].data
    return int(tokens.numel() // module.input_size)  # type: ignore[operator]


def _sizes(module: nn.Module) -> Iterator[tuple[int, int]]:
    """Size and active size of each weight matrix that this layer's own forward multiplies by."""
    own = [module]
    if isinstance(module, nn.MultiheadAttention):
        own.append(module.out_proj)  # read by attention, never called
    for layer in own:
        for parameter in layer.parameters(recurse=False):
            if parameter.dim() > 1:
                yield parameter.numel(), parameter.numel()
        if isinstance(layer, BayesianModule):
            for posterior in map(layer.posterior, layer.posteriors):
                if len(posterior.shape) > 1:
                    yield posterior.shape.numel(), posterior.num_active
