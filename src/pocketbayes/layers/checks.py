"""What must hold before and after a network runs, with errors that show the input."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from pocketbayes.errors import DataError, PocketBayesError


def require_module(model: object) -> None:
    """An error unless `model` is a network."""
    if not isinstance(model, nn.Module):
        raise PocketBayesError(f"the model must be a torch.nn.Module, not {type(model).__name__}")


@contextmanager
def explained_failure(x: Tensor) -> Iterator[None]:
    """Turns a network's complaint about its input into an error that shows the input."""
    try:
        yield
    except (PocketBayesError, torch.OutOfMemoryError):
        raise
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise DataError(
            f"the model cannot run on an input of shape {tuple(x.shape)} and dtype {x.dtype}: "
            f"{error}"
        ) from error


def require_tensor(output: object) -> Tensor:
    """A network's output if it is one tensor, else an error."""
    if not isinstance(output, Tensor):
        raise DataError(
            f"the model returns a {type(output).__name__}, not a tensor; wrap it in a module "
            "whose forward returns the logits or the prediction alone"
        )
    return output
