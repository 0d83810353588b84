"""What a network is called with: a tensor, several of them, or some by name."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from pocketbayes.errors import DataError, PocketBayesError

Inputs = Tensor | tuple[Tensor, ...] | dict[str, Tensor]


def run(model: nn.Module, x: Inputs) -> Tensor:
    """The network's output as one tensor."""
    return require_tensor(called(model, x))


def called(model: nn.Module, x: Inputs) -> Any:
    """What the network returns: forward(x), forward(*x) or forward(**x)."""
    if isinstance(x, Tensor):
        return model(x)
    return model(**x) if isinstance(x, dict) else model(*x)


def require_tensor(output: object) -> Tensor:
    """A network's output, or its "logits" if it has them beside other things; else an error."""
    if isinstance(output, Tensor):
        return output
    found = output.get("logits") if isinstance(output, Mapping) else None
    found = getattr(output, "logits", None) if found is None else found
    if isinstance(found, Tensor):
        return found
    raise DataError(
        f"the model returns a {type(output).__name__}, not a tensor nor something with .logits; "
        "wrap it in a module whose forward returns the logits or the prediction alone"
    )


def tensors_of(x: Inputs) -> tuple[Tensor, ...]:
    """All of them, in their order."""
    if isinstance(x, Tensor):
        return (x,)
    return tuple(x.values()) if isinstance(x, dict) else x


def named_tensors(x: Inputs) -> Iterator[tuple[str, Tensor]]:
    """Each with what an error calls it."""
    if isinstance(x, Tensor):
        yield "the input", x
    elif isinstance(x, dict):
        yield from ((f"input {name!r}", tensor) for name, tensor in x.items())
    else:
        yield from ((f"input {number}", tensor) for number, tensor in enumerate(x, 1))


def mapped(function: Callable[[Tensor], Tensor], x: Inputs) -> Inputs:
    """The same with the function of every tensor."""
    if isinstance(x, Tensor):
        return function(x)
    if isinstance(x, dict):
        return {name: function(tensor) for name, tensor in x.items()}
    return tuple(function(tensor) for tensor in x)


def moved(x: Inputs, device: torch.device) -> Inputs:
    """The same on a device; the host does not wait for a GPU, but for what comes from one."""
    return mapped(lambda tensor: tensor.to(device, non_blocking=device.type == "cuda"), x)


def num_examples(x: Inputs) -> int:
    """The size of the batch."""
    return len(tensors_of(x)[0])


def num_dims(x: Inputs) -> int:
    """The most dimensions that one of the tensors has."""
    return max(tensor.dim() for tensor in tensors_of(x))


def parts_of(x: Inputs, size: int) -> Iterator[Inputs]:
    """Some examples at a time."""
    if num_examples(x) <= size:
        yield x
        return
    for first in range(0, num_examples(x), size):
        yield mapped(lambda tensor, first=first: tensor[first : first + size], x)  # type: ignore[misc]


@contextmanager
def explained_failure(x: Inputs) -> Iterator[None]:
    """Turns a network's complaint about its input into an error that shows the input."""
    try:
        yield
    except (PocketBayesError, torch.OutOfMemoryError):
        raise
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        wide = any(tensor.dtype == torch.float64 for tensor in tensors_of(x))
        advice = ". Convert with .float()" if wide and "dtype" in str(error) else ""
        raise DataError(f"the model cannot run on {_shown(x)}: {error}{advice}") from error


def _shown(x: Inputs) -> str:
    if isinstance(x, Tensor):
        return f"an input of shape {tuple(x.shape)} and dtype {x.dtype}"
    each = (f"{name} of shape {tuple(t.shape)} and dtype {t.dtype}" for name, t in named_tensors(x))
    return ", ".join(each)
