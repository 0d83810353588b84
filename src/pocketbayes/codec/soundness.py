"""What a file never holds: weights that are not numbers."""

from collections.abc import Mapping

from torch import Tensor, nn

from pocketbayes.errors import PocketBayesError
from pocketbayes.layers import PREFIX


def require_finite(arrays: Mapping[str, Tensor]) -> None:
    """An error that names the first array of a model that is NaN or infinite.

    Buffers and frozen parameters may hold anything, as masks and marks do, but for the statistics
    of norms and a one-pass head.
    """
    for path, tensor in arrays.items():
        if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.is_meta:
            continue
        kind, _, name = path.partition("/")
        learns = isinstance(tensor, nn.Parameter) and tensor.requires_grad
        is_plain = kind == "state" and not learns
        is_known = name.startswith(PREFIX) or name.endswith(("running_mean", "running_var"))
        if is_plain and not is_known:
            continue
        wrong = ~tensor.detach().isfinite()
        if wrong.any():
            raise PocketBayesError(
                f"{_called(kind, name)} is not finite in {int(wrong.sum()):,} of {wrong.numel():,} "
                "places, so this model can predict nothing: no file was written. Train it anew, "
                "with a lower learning rate or clip_norm, or go on from an earlier checkpoint"
            )


def _called(kind: str, name: str) -> str:
    """The array as a person knows it."""
    if kind == "state":
        return name
    owner, _, array = name.rpartition("/")
    return f"{array} of {'codebook ' if kind == 'table' else ''}{owner}"
