"""The layers of a network that drop things at random."""

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
