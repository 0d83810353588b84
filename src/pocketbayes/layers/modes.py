"""Training and evaluation mode, and the layers that drop things at random."""

import contextlib
from collections.abc import Iterator

from torch import nn
from torch.nn.modules.dropout import _DropoutNd

# Beside these, attention and recurrent layers drop inside their own forward.
_WITH_DROPOUT = (nn.MultiheadAttention, nn.RNNBase)


def dropout_modules(model: nn.Module) -> Iterator[nn.Module]:
    """Every module whose training mode switches some dropout on."""
    for module in model.modules():
        if (isinstance(module, _DropoutNd) and module.p > 0) or (
            isinstance(module, _WITH_DROPOUT) and module.dropout > 0
        ):
            yield module


@contextlib.contextmanager
def restored_mode(model: nn.Module) -> Iterator[None]:
    """Afterwards every module is in training or evaluation mode as it was."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
