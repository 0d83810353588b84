"""What must hold before a network runs."""

from torch import nn

from pocketbayes.errors import PocketBayesError


def require_module(model: object) -> None:
    """An error unless `model` is a network."""
    if not isinstance(model, nn.Module):
        raise PocketBayesError(f"the model must be a torch.nn.Module, not {type(model).__name__}")
