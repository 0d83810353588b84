"""What a file never holds: weights that are not numbers."""

from collections.abc import Mapping

from torch import Tensor, nn

from pocketbayes.errors import PocketBayesError


def require_finite(arrays: Mapping[str, Tensor]) -> None:
    """An error that names the first array of a model that is NaN or infinite.

    Buffers may be infinite, as masks are, but for the statistics of batch norms.
    """
    for path, tensor in arrays.items():
        if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.is_meta:
            continue
        kind, _, name = path.partition("/")
        is_mask = kind == "state" and not isinstance(tensor, nn.Parameter)
        is_mask = is_mask and not name.endswith(("running_mean", "running_var"))
        values = tensor.detach()
        wrong = values.isnan() if is_mask else ~values.isfinite()
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
