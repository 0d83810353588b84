"""Residual networks: He's slim form for CIFAR, and the wide one with a CIFAR or ImageNet stem."""

import torch.nn.functional as F
from torch import Tensor, nn


class PaddedShortcut(nn.Module):
    """He's option A: every second pixel, and zeros for the channels that are new."""

    def __init__(self, new_channels: int) -> None:
        super().__init__()
        self.before = new_channels // 2
        self.after = new_channels - self.before

    def forward(self, x: Tensor) -> Tensor:
        """Subsamples and pads."""
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.before, self.after))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around an identity; `shortcut` matches shapes where they differ."""

    def __init__(self, inputs: int, outputs: int, stride: int, padded: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = (
                PaddedShortcut(outputs - inputs)
                if padded
                else nn.Sequential(
                    nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
                )
            )

    def forward(self, x: Tensor) -> Tensor:
        """relu(shortcut(x) + f(x))."""
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.shortcut(x) + self.bn2(self.conv2(y)))


def _stage(inputs: int, outputs: int, blocks: int, stride: int, padded: bool) -> nn.Sequential:
    first = BasicBlock(inputs, outputs, stride, padded)
    return nn.Sequential(
        first, *(BasicBlock(outputs, outputs, 1, padded) for _ in range(blocks - 1))
    )


class CifarResNet(nn.Module):
    """He's ResNet for CIFAR: depth 6n + 2, widths 16, 32, 64, shortcuts without parameters."""

    def __init__(self, depth: int, num_classes: int = 10) -> None:
        super().__init__()
        blocks = (depth - 2) // 6
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, blocks, 1, padded=True)
        self.layer2 = _stage(16, 32, blocks, 2, padded=True)
        self.layer3 = _stage(32, 64, blocks, 2, padded=True)
        self.linear = nn.Linear(64, num_classes)
        _initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of (batch, 3, 32, 32) images."""
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(x.mean((2, 3)))  # type: ignore[no-any-return]


class ResNet(nn.Module):
    """The ImageNet ResNet of basic blocks; `stem="cifar"` keeps 32x32 images at full size."""

    def __init__(self, blocks: tuple[int, ...], num_classes: int = 10, stem: str = "cifar") -> None:
        super().__init__()
        kernel, stride = (3, 1) if stem == "cifar" else (7, 2)
        self.conv1 = nn.Conv2d(3, 64, kernel, stride, kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.pool = nn.Identity() if stem == "cifar" else nn.MaxPool2d(3, 2, 1)
        widths, inputs = (64, 128, 256, 512), 64
        for number, (width, count) in enumerate(zip(widths, blocks, strict=True), start=1):
            stage = _stage(inputs, width, count, 1 if number == 1 else 2, padded=False)
            self.add_module(f"layer{number}", stage)
            inputs = width
        self.linear = nn.Linear(inputs, num_classes)
        _initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of images."""
        x = self.pool(F.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))  # type: ignore[operator]
        return self.linear(x.mean((2, 3)))  # type: ignore[no-any-return]


def _initialise(net: nn.Module) -> None:
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def resnet20(num_classes: int = 10) -> CifarResNet:
    """ResNet-20 for CIFAR: 0.27M parameters."""
    return CifarResNet(20, num_classes)


def resnet32(num_classes: int = 10) -> CifarResNet:
    """ResNet-32 for CIFAR: 0.46M parameters."""
    return CifarResNet(32, num_classes)


def resnet44(num_classes: int = 10) -> CifarResNet:
    """ResNet-44 for CIFAR: 0.66M parameters."""
    return CifarResNet(44, num_classes)


def resnet56(num_classes: int = 10) -> CifarResNet:
    """ResNet-56 for CIFAR: 0.85M parameters."""
    return CifarResNet(56, num_classes)


def resnet110(num_classes: int = 10) -> CifarResNet:
    """ResNet-110 for CIFAR: 1.7M parameters."""
    return CifarResNet(110, num_classes)


def resnet18(num_classes: int = 10, stem: str = "cifar") -> ResNet:
    """ResNet-18: 11.17M parameters with the CIFAR stem and 10 classes."""
    return ResNet((2, 2, 2, 2), num_classes, stem)


def resnet34(num_classes: int = 10, stem: str = "cifar") -> ResNet:
    """ResNet-34: 21.28M parameters with the CIFAR stem and 10 classes."""
    return ResNet((3, 4, 6, 3), num_classes, stem)
