"""He's residual networks for CIFAR: three slim stages, shortcuts without parameters."""

from collections.abc import Callable, Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from pocketbayes.models.checks import require_dropout, require_image, require_outputs, scaled
from pocketbayes.models.registry import network
from pocketbayes.models.residual import BasicBlock, initialise_convolutions_, padded_shortcut, stage


class CifarResNet(nn.Module):
    """Depth 6n + 2 with n blocks in each stage, of `width` times 16, 32 and 64 channels."""

    def __init__(
        self,
        blocks: int,
        input_shape: Sequence[int],
        num_outputs: int,
        dropout: float,
        width: float = 1.0,
    ) -> None:
        super().__init__()
        channels, _, _ = require_image(input_shape, least_side=4)
        outputs, rate = require_outputs(num_outputs), require_dropout(dropout)
        narrow, middle, wide = scaled((16, 32, 64), width)
        self.conv1 = nn.Conv2d(channels, narrow, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(narrow)
        self.layer1 = stage(BasicBlock, narrow, narrow, blocks, 1, padded_shortcut, rate)
        self.layer2 = stage(BasicBlock, narrow, middle, blocks, 2, padded_shortcut, rate)
        self.layer3 = stage(BasicBlock, middle, wide, blocks, 2, padded_shortcut, rate)
        self.linear = nn.Linear(wide, outputs)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the convolutions anew; all other layers do as they always do."""
        initialise_convolutions_(self)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of images."""
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(x.mean((2, 3)))  # type: ignore[no-any-return]


def _factory(depth: int, parameters: str) -> Callable[..., CifarResNet]:
    def build(
        *,
        input_shape: Sequence[int] = (3, 32, 32),
        num_outputs: int = 10,
        dropout: float = 0.0,
        width: float = 1.0,
    ) -> CifarResNet:
        """ResNet-{depth} for CIFAR: {parameters} parameters.

        Args:
            input_shape: (channels, height, width), sides of at least 4.
            num_outputs: number of classes or regression targets.
            dropout: rate of dropout; 0 for none.
            width: factor on the numbers of hidden units and channels, each rounded.
        """
        return CifarResNet((depth - 2) // 6, input_shape, num_outputs, dropout, width)

    return network(f"resnet{depth}", depth=depth, parameters=parameters)(build)


resnet20 = _factory(20, "0.27M")
resnet32 = _factory(32, "0.46M")
resnet44 = _factory(44, "0.66M")
resnet56 = _factory(56, "0.85M")
resnet110 = _factory(110, "1.7M")
