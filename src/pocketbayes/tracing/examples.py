"""Runs a network on an example, or says which layer refuses it and what that one takes."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pocketbayes.errors import PocketBayesError, ProgramError
from pocketbayes.layers import OURS, drawing_by, plain_class_of, restored_mode, run


class Call(NamedTuple):
    """A layer that has begun: its name, and the shape of what it was given."""

    name: str
    layer: nn.Module
    shape: tuple[int, ...] | None


@torch.no_grad()
def answer_to(network: nn.Module, one: tuple[Tensor, ...]) -> Tensor:
    """What the mean network gives for a batch of one example, or an error about the example."""
    with restored_mode(network), drawing_by(network, "mean"):
        network.eval()
        try:
            return run(network, _copied(one))
        except (PocketBayesError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            raise ProgramError(_refusal(network, one, error)) from error


def _refusal(network: nn.Module, one: tuple[Tensor, ...], error: Exception) -> str:
    shapes = " and ".join(str(tuple(tensor.shape)) for tensor in one)
    said = (str(error).strip().splitlines() or [type(error).__name__])[0]
    refused = _refusing(network, one)
    where = "" if refused is None else f" {_described(refused)}"
    return (
        f"the network itself does not run on this example, one of which is {shapes}:{where} "
        f"{said}. example must be a batch of inputs as the model sees them, x[:1] for instance, "
        "with the examples along the first axis"
    )


def _described(call: Call) -> str:
    layer = call.layer
    kind = plain_class_of(layer).__name__
    wanted = None
    if isinstance(layer, nn.modules.conv._ConvNd):
        wanted = f"{layer.in_channels} channels along axis 1"
    elif isinstance(layer, nn.Linear):
        wanted = f"{layer.in_features} features along the last axis"
    elif isinstance(layer, nn.RNNBase):
        wanted = f"{layer.input_size} features along the last axis"
    takes = "" if wanted is None else f" takes {wanted} and"
    given = "its input" if call.shape is None else str(call.shape)
    return f"layer {call.name} ({kind}){takes} was given {given}."


def _refusing(network: nn.Module, one: tuple[Tensor, ...]) -> Call | None:
    """The innermost layer that began and did not end; None: it runs now, or fails elsewhere."""
    with _noted_calls(network) as begun:
        try:
            run(network, _copied(one))
        except Exception:
            return begun[-1] if begun else None
    return None


@contextmanager
def _noted_calls(network: nn.Module) -> Iterator[list[Call]]:
    """What has begun and not ended yet, the innermost last."""
    begun = list[Call]()

    def before(layer: nn.Module, args: tuple[Any, ...]) -> None:
        shape = tuple(args[0].shape) if args and isinstance(args[0], Tensor) else None
        begun.append(Call(names[layer], layer, shape))

    def after(*_: Any) -> None:
        begun.pop()

    every = [(n, m) for n, m in network.named_modules() if OURS not in n.split(".")]
    names = {module: name for name, module in every}
    with ExitStack() as stack:
        for _, module in every[1:]:
            stack.enter_context(module.register_forward_pre_hook(before))
            stack.enter_context(module.register_forward_hook(after))
        yield begun


def _copied(one: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(tensor.clone() for tensor in one)
