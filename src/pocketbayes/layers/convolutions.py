"""What torch's convolution layers say, as arguments of the one operation beneath them."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from pocketbayes.layers.estimators import Conv


def as_convolution(
    layer: Any, x: Tensor, batched: bool, output_size: list[int] | None = None
) -> tuple[Tensor, Conv]:
    """The input, padded where `torch.convolution` cannot, and the arguments to go with it."""
    spatial = len(layer.kernel_size)
    padding, output_padding = layer.padding, (0,) * spatial
    if layer.transposed:
        output_padding = tuple(
            layer._output_padding(
                x, output_size, layer.stride, layer.padding, layer.kernel_size, spatial,
                layer.dilation,
            )
        )  # fmt: skip
    x = x if batched else x.unsqueeze(0)
    if not layer.transposed and (layer.padding_mode != "zeros" or isinstance(padding, str)):
        mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        sides = layer._reversed_padding_repeated_twice
        x, padding = (F.pad(x, sides, mode=mode) if any(sides) else x), (0,) * spatial
    return x, Conv(
        layer.stride, padding, layer.dilation, layer.transposed, output_padding, layer.groups
    )
