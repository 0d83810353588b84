"""Wide residual networks: normalisation and activation come before each convolution."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from pocketbayes.models.checks import require_dropout, require_image, require_outputs, scaled
from pocketbayes.models.registry import network
from pocketbayes.models.residual import initialise_convolutions_


class WideBlock(nn.Module):
    """Two 3x3 convolutions, each behind its own normalisation, around a shortcut.

    Where the shape changes the shortcut is a 1x1 convolution of the activated input.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        changes = stride != 1 or inputs != outputs
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        """shortcut(x) + f(x)."""
        active = F.relu(self.bn1(x))
        y = self.dropout(F.relu(self.bn2(self.conv1(active))))
        skipped = x if self.shortcut is None else self.shortcut(active)
        return skipped + self.conv2(y)  # type: ignore[no-any-return]


class WideResNet(nn.Module):
    """Depth 6n + 4, n blocks in each stage, `widening` times as wide as 16, 32 and 64.

    All of it, its first layer too, is `width` times as wide as that.
    """

    def __init__(
        self,
        blocks: int,
        widening: int,
        input_shape: Sequence[int],
        num_outputs: int,
        dropout: float,
        width: float = 1.0,
    ) -> None:
        super().__init__()
        channels, _, _ = require_image(input_shape, least_side=4)
        outputs, rate = require_outputs(num_outputs), require_dropout(dropout)
        stages = (widening * channels for channels in (16, 32, 64))
        stem, narrow, middle, wide = scaled((16, *stages), width)
        self.conv1 = nn.Conv2d(channels, stem, 3, 1, 1, bias=False)
        self.layer1 = _stage(stem, narrow, blocks, 1, rate)
        self.layer2 = _stage(narrow, middle, blocks, 2, rate)
        self.layer3 = _stage(middle, wide, blocks, 2, rate)
        self.bn = nn.BatchNorm2d(wide)
        self.linear = nn.Linear(wide, outputs)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the convolutions anew; all other layers do as they always do."""
        initialise_convolutions_(self)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of images."""
        x = self.layer3(self.layer2(self.layer1(self.conv1(x))))
        return self.linear(F.relu(self.bn(x)).mean((2, 3)))  # type: ignore[no-any-return]


def _stage(inputs: int, outputs: int, blocks: int, stride: int, dropout: float) -> nn.Sequential:
    first = WideBlock(inputs, outputs, stride, dropout)
    return nn.Sequential(
        first, *(WideBlock(outputs, outputs, 1, dropout) for _ in range(blocks - 1))
    )


@network("wrn-28-10")
def wrn_28_10(
    *,
    input_shape: Sequence[int] = (3, 32, 32),
    num_outputs: int = 10,
    dropout: float = 0.0,
    width: float = 1.0,
) -> WideResNet:
    """Wide ResNet 28-10: 36.5M parameters.

    Args:
        input_shape: (channels, height, width), sides of at least 4.
        num_outputs: number of classes or regression targets.
        dropout: rate of dropout; 0 for none.
        width: factor on the numbers of hidden units and channels, each rounded.
    """
    return WideResNet(4, 10, input_shape, num_outputs, dropout, width)
