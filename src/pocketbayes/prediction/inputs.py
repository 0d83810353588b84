"""Inputs as predictions take them: batches of a loader, parts of a tensor, one example."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from pocketbayes.errors import DataError
from pocketbayes.layers import describe, named_posteriors


def input_batches(x: object, size: int) -> Iterator[Tensor]:
    """The inputs of a loader of inputs or pairs, or the parts of one tensor."""
    if isinstance(x, Tensor):
        if x.dim() == 0 or len(x) == 0:
            raise DataError(f"the input has shape {tuple(x.shape)}: there is nothing to predict")
        yield from torch.split(x, size)
    elif isinstance(x, Iterable) and not isinstance(x, dict | str):
        for item in x:
            first = item[0] if isinstance(item, list | tuple) and item else item
            if not isinstance(first, Tensor):
                raise DataError(
                    f"the input yields a {type(item).__name__}; it must yield tensors, or pairs "
                    "whose first is one"
                )
            yield first
    else:
        raise DataError(f"the input is a {type(x).__name__}; pass a tensor or a loader")


def _examples_at_once(model: nn.Module, x: object, device: torch.device) -> int:
    """256, or 1,024 where these take little memory: small inputs, no wide layer.

    On a CPU no convolution either. On a GPU fewer would wait for the launches of small kernels.
    """
    on_gpu = device.type == "cuda"
    is_small = (
        isinstance(x, Tensor)
        and x.is_floating_point()
        and x.numel() <= (4096 if on_gpu else 1024) * (len(x) if x.dim() else 1)
        and all(max(q.shape, default=1) <= 4096 for _, q in named_posteriors(model))
        and (on_gpu or not any(isinstance(m, nn.modules.conv._ConvNd) for m in model.modules()))
    )
    return 1024 if is_small else 256


def _lacks_batch(model: nn.Module, x: Tensor) -> bool:
    """Whether x is one example: an image for a convolution, or features for a linear layer."""
    trained_on = describe(model).input_dims
    if trained_on is not None:
        return x.dim() == trained_on - 1
    if not x.is_floating_point():
        return False
    for module in model.modules():
        if isinstance(module, nn.modules.conv._ConvNd):
            return x.dim() == len(module.kernel_size) + 1
        if isinstance(module, nn.Linear):
            return x.dim() == 1
    return False


Batch = tuple[Tensor, Tensor]


def unpack(batch: object, where: str) -> Batch:
    """The (input, target) of a batch, or an error that says what it is instead."""
    if not isinstance(batch, list | tuple) or len(batch) != 2:
        what = (
            f"a dict with keys {list(batch)}" if isinstance(batch, dict)
            else f"{len(batch)} values" if isinstance(batch, list | tuple)
            else f"a {type(batch).__name__}"
        )  # fmt: skip
        raise DataError(
            f"{where} yields {what}; it must yield pairs (input, target): "
            "give the loader a collate_fn that returns them"
        )
    x, y = batch
    if isinstance(x, Tensor) and isinstance(y, Tensor) and 0 in (x.dim(), y.dim()):
        raise DataError(f"{where} yields single numbers; inputs and targets need a batch dimension")
    if not isinstance(x, Tensor) or not isinstance(y, Tensor):
        raise DataError(
            f"{where} yields ({type(x).__name__}, {type(y).__name__}); both must be tensors"
        )
    if len(x) != len(y) or len(y) == 0:
        raise DataError(f"{where} yields {len(x)} inputs with {len(y)} targets in one batch")
    return x, y
