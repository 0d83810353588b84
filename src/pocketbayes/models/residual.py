"""Parts that residual networks share: blocks, shortcuts, stages and how weights start."""

from collections.abc import Callable
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

Shortcut = Callable[[int, int, int], nn.Module]


class PaddedShortcut(nn.Module):
    """He's option A: every second pixel, and zeros for the channels that are new."""

    def __init__(self, new_channels: int) -> None:
        super().__init__()
        self.before = new_channels // 2
        self.after = new_channels - self.before

    def forward(self, x: Tensor) -> Tensor:
        """Subsamples and pads."""
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.before, self.after))


def padded_shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """An identity, or He's option A where the shape changes: no parameters."""
    if stride == 1 and inputs == outputs:
        return nn.Sequential()
    return PaddedShortcut(outputs - inputs)


def projected_shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """An identity, or a normalised 1x1 convolution where the shape changes (He's option B)."""
    if stride == 1 and inputs == outputs:
        return nn.Sequential()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut; dropout comes before the second."""

    expansion: ClassVar[int] = 1

    def __init__(
        self, inputs: int, width: int, stride: int, shortcut: Shortcut, dropout: float
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut = shortcut(inputs, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """relu(shortcut(x) + f(x))."""
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(self.dropout(y)))
        return F.relu(self.shortcut(x) + y)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions around a shortcut; the stride is on the 3x3.

    Dropout comes before the last.
    """

    expansion: ClassVar[int] = 4

    def __init__(
        self, inputs: int, width: int, stride: int, shortcut: Shortcut, dropout: float
    ) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.dropout = nn.Dropout(dropout)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.shortcut = shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        """relu(shortcut(x) + f(x))."""
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(self.dropout(y)))
        return F.relu(self.shortcut(x) + y)


def stage(
    block: type[BasicBlock] | type[Bottleneck],
    inputs: int,
    width: int,
    count: int,
    stride: int,
    shortcut: Shortcut,
    dropout: float,
) -> nn.Sequential:
    """`count` blocks, of which the first changes width and resolution."""
    blocks: list[nn.Module] = []
    for number in range(count):
        blocks.append(block(inputs, width, stride if number == 0 else 1, shortcut, dropout))
        inputs = width * block.expansion
    return nn.Sequential(*blocks)


def initialise_convolutions_(net: nn.Module) -> None:
    """He's normal initialisation by the fan-out of every convolution."""
    for module in net.modules():
        # On the meta device there is nothing to draw, yet trying makes torch import for 1.5 s.
        if isinstance(module, nn.Conv2d) and not module.weight.is_meta:
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
