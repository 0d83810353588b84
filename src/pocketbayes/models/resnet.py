"""He's residual networks for ImageNet, which a smaller stem adapts to CIFAR."""

from collections.abc import Callable, Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from pocketbayes.errors import require_choice
from pocketbayes.models.checks import require_dropout, require_image, require_outputs, scaled
from pocketbayes.models.registry import network
from pocketbayes.models.residual import (
    BasicBlock,
    Bottleneck,
    initialise_convolutions_,
    projected_shortcut,
    stage,
)


class ResNet(nn.Module):
    """Four stages of `width` times 64 to 512; `stem="cifar"` keeps small images at full size."""

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        blocks: tuple[int, int, int, int],
        input_shape: Sequence[int],
        num_outputs: int,
        stem: str,
        dropout: float,
        width: float = 1.0,
    ) -> None:
        super().__init__()
        small = require_choice(stem, "stem", ("cifar", "imagenet")) == "cifar"
        channels, _, _ = require_image(input_shape, least_side=8 if small else 32)
        outputs, rate = require_outputs(num_outputs), require_dropout(dropout)
        kernel, stride = (3, 1) if small else (7, 2)
        first, second, third, fourth = scaled((64, 128, 256, 512), width)
        self.conv1 = nn.Conv2d(channels, first, kernel, stride, kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(first)
        self.pool = nn.Identity() if small else nn.MaxPool2d(3, 2, 1)
        wide = block.expansion
        self.layer1 = stage(block, first, first, blocks[0], 1, projected_shortcut, rate)
        self.layer2 = stage(block, first * wide, second, blocks[1], 2, projected_shortcut, rate)
        self.layer3 = stage(block, second * wide, third, blocks[2], 2, projected_shortcut, rate)
        self.layer4 = stage(block, third * wide, fourth, blocks[3], 2, projected_shortcut, rate)
        self.linear = nn.Linear(fourth * wide, outputs)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the convolutions anew; all other layers do as they always do."""
        initialise_convolutions_(self)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of images."""
        x = self.pool(F.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.linear(x.mean((2, 3)))  # type: ignore[no-any-return]


def _factory(
    depth: int,
    parameters: str,
    block: type[BasicBlock] | type[Bottleneck],
    blocks: tuple[int, int, int, int],
) -> Callable[..., ResNet]:
    def build(
        *,
        input_shape: Sequence[int] = (3, 32, 32),
        num_outputs: int = 10,
        stem: str = "cifar",
        dropout: float = 0.0,
        width: float = 1.0,
    ) -> ResNet:
        """ResNet-{depth}: {parameters} parameters with the CIFAR stem and 10 classes.

        Args:
            input_shape: (channels, height, width), sides of at least 8 (stem "imagenet": 32).
            num_outputs: number of classes or regression targets.
            stem: "cifar" (3x3 convolution) or "imagenet" (7x7 convolution, pooling; sides by 4).
            dropout: rate of dropout; 0 for none.
            width: factor on the numbers of hidden units and channels, each rounded.
        """
        return ResNet(block, blocks, input_shape, num_outputs, stem, dropout, width)

    return network(f"resnet{depth}", depth=depth, parameters=parameters)(build)


resnet18 = _factory(18, "11.2M", BasicBlock, (2, 2, 2, 2))
resnet34 = _factory(34, "21.3M", BasicBlock, (3, 4, 6, 3))
resnet50 = _factory(50, "23.5M", Bottleneck, (3, 4, 6, 3))
resnet101 = _factory(101, "42.5M", Bottleneck, (3, 4, 23, 3))
