"""Vision transformers: normalisation first, a class token, learned position embeddings."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from pocketbayes.errors import PocketBayesError, require_count
from pocketbayes.models.checks import require_dropout, require_image, require_outputs, scaled
from pocketbayes.models.registry import network

DEPTH, MLP_RATIO = 12, 4
EPS = 1e-6
INITIAL_STD = 0.02


class EncoderBlock(nn.Module):
    """Self-attention and a two-layer network, each normalised before and added to its input."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=EPS)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.norm2 = nn.LayerNorm(width, eps=EPS)
        self.mlp = nn.Sequential(
            nn.Linear(width, MLP_RATIO * width),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(MLP_RATIO * width, width),
            nn.Dropout(dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, width) to the same."""
        y = self.norm1(x)
        attended, _ = self.attention(y, y, y, need_weights=False)
        x = x + self.dropout(attended)
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]


class VisionTransformer(nn.Module):
    """Image patches and a class token through `depth` encoder blocks; the token is classified."""

    def __init__(
        self,
        width: int,
        heads: int,
        input_shape: Sequence[int],
        num_outputs: int,
        patch: int,
        dropout: float,
        depth: int = DEPTH,
    ) -> None:
        super().__init__()
        channels, height, breadth = require_image(input_shape, least_side=1)
        patch = _require_patch(patch, height, breadth)
        outputs, rate = require_outputs(num_outputs), require_dropout(dropout)
        tokens = 1 + (height // patch) * (breadth // patch)
        self.patches = nn.Conv2d(channels, width, patch, patch)
        self.token = nn.Parameter(torch.empty(1, 1, width))
        self.positions = nn.Parameter(torch.empty(1, tokens, width))
        self.dropout = nn.Dropout(rate)
        self.blocks = nn.Sequential(*(EncoderBlock(width, heads, rate) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=EPS)
        self.head = nn.Linear(width, outputs)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all but the patches' convolution from a narrow truncated normal, as DeiT does."""
        weights: list[Tensor] = [self.token, self.positions]
        for module in self.modules():
            if isinstance(module, nn.MultiheadAttention):
                weights.append(module.in_proj_weight)
            if isinstance(module, nn.Linear):
                weights.append(module.weight)
                nn.init.zeros_(module.bias)
        for weight in weights:
            nn.init.trunc_normal_(weight, std=INITIAL_STD)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of images."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1)
        x = self.blocks(self.dropout(x + self.positions))
        return self.head(self.norm(x[:, 0]))  # type: ignore[no-any-return]


def _require_patch(patch: object, height: int, width: int) -> int:
    size = require_count(patch, "patch")
    common = math.gcd(height, width)
    if common % size:
        fitting = [n for n in range(1, common + 1) if common % n == 0]
        best = min(fitting, key=lambda n: abs(n - size))
        raise PocketBayesError(
            f"patch={size} does not divide images of {height} x {width} pixels: "
            f"use patch={best}, or resize them"
        )
    return size


def _factory(
    name: str, units: int, heads: int, parameters: str
) -> Callable[..., VisionTransformer]:
    def build(
        *,
        input_shape: Sequence[int] = (3, 224, 224),
        num_outputs: int = 10,
        patch: int = 16,
        dropout: float = 0.0,
        width: float = 1.0,
    ) -> VisionTransformer:
        """A ViT, {units} wide with {heads} heads: {parameters} parameters on ImageNet.

        Args:
            input_shape: (channels, height, width).
            num_outputs: number of classes or regression targets.
            patch: side of the square patches, in pixels; it must divide both sides of the image.
            dropout: rate of dropout; 0 for none.
            width: factor on the numbers of hidden units, rounded to multiples of the heads.
        """
        (of_a_head,) = scaled((units // heads,), width)
        return VisionTransformer(heads * of_a_head, heads, input_shape, num_outputs, patch, dropout)

    return network(name, units=units, heads=heads, parameters=parameters)(build)


vit_tiny = _factory("vit-tiny", 192, 3, "5.7M")
vit_small = _factory("vit-small", 384, 6, "22.1M")
vit_b16 = _factory("vit-b16", 768, 12, "86.6M")
