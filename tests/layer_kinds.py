"""Every kind of layer that can become Bayesian, once per way of being set up.

A case makes a network that takes one tensor and returns one tensor, and an input for it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Case:
    name: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    vocabulary: int = 0
    recurrent: bool = False

    def net(self, dtype: torch.dtype = torch.float64) -> nn.Module:
        torch.manual_seed(1)
        return self.make().to(dtype)

    def input(self, dtype: torch.dtype = torch.float64) -> Tensor:
        generator = torch.Generator().manual_seed(2)
        if self.vocabulary:
            return torch.randint(self.vocabulary, self.shape, generator=generator)
        return torch.randn(self.shape, generator=generator, dtype=torch.float64).to(dtype)


class First(nn.Module):
    """The first output of a module that returns several."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)[0]


class SelfAttention(nn.Module):
    def __init__(self, **options: object) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, **options)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x)[0]


class CrossAttention(nn.Module):
    """Separate projections: key and value have other widths than the query."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, kdim=5, vdim=6, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x[..., :5], x[..., :6])[0]


class Bags(nn.Module):
    """Bags of tokens, of which the first of each row is padding."""

    def __init__(self, size: int, **options: object) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(size, 6, padding_idx=0, **options)

    def forward(self, x: Tensor) -> Tensor:
        return self.bag(torch.cat([torch.zeros_like(x[:, :1]), x], 1))


class Steps(nn.Module):
    """A cell that goes through time."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Tensor:
        state = None
        for step in x.unbind(1):
            state = self.cell(step, state)
        return state[0] if isinstance(state, tuple) else state


class Products(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.product = nn.Bilinear(5, 5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x, x.flip(-1))


class WeightStandardised(nn.Linear):
    """A user's own layer that is not linear in its weight, and reads it twice."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight - self.weight.mean(), self.bias)


def encoder_layer(**options: object) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options)


def convolutions() -> list[Case]:
    found = []
    for dims in (1, 2, 3):
        conv = getattr(nn, f"Conv{dims}d")
        side = (2, 4, *(7, 8, 6)[:dims])
        settings = [
            {"stride": 2, "padding": 1, "dilation": 2, "groups": 2},
            {"padding": "same", "dilation": 2},
            {"padding": "same", "bias": False},
            {"padding": "valid"},
            *(
                {"padding": 1, "padding_mode": mode, "stride": 2}
                for mode in ("reflect", "replicate")
            ),
            {"padding": "same", "padding_mode": "circular", "groups": 4},
        ]
        kinds = [(3, o) for o in settings] + [(2, o) for o in settings if o["padding"] == "same"]
        if dims == 3:  # one of each kind of padding, and the even kernel
            kinds = [kinds[i] for i in (0, 1, 4, 9)]
        for kernel, options in kinds:
            found.append(
                Case(
                    f"conv{dims}d-k{kernel}-{'-'.join(map(str, options.values()))}",
                    lambda c=conv, k=kernel, o=options: c(4, 8, k, **o),
                    side,
                )
            )
        transposed = getattr(nn, f"ConvTranspose{dims}d")
        for options in (
            {},
            {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2},
            {"stride": 3, "dilation": 2, "output_padding": 1, "bias": False},
        ):
            found.append(
                Case(
                    f"transposed{dims}d-{'-'.join(map(str, options.values()))}",
                    lambda c=transposed, o=options: c(4, 6, 3, **o),
                    side,
                )
            )
    return found


def recurrent() -> list[Case]:
    found = []
    for kind, layers, both in product((nn.LSTM, nn.GRU), (1, 2), (False, True)):
        first = (layers == 2) != both
        options = {"num_layers": layers, "bidirectional": both, "batch_first": first}
        found.append(
            Case(
                f"{kind.__name__.lower()}-{layers}-{'both' if both else 'one'}-{first}",
                lambda k=kind, o=options: First(k(4, 5, **o)),
                (3, 6, 4),
                recurrent=True,
            )
        )
    found.append(
        Case(
            "lstm-projected",
            lambda: First(nn.LSTM(4, 6, proj_size=3, bias=False)),
            (3, 6, 4),
            recurrent=True,
        )
    )
    return found


CASES = [
    Case("linear", lambda: nn.Linear(5, 4), (3, 5)),
    Case("linear-nobias-3d", lambda: nn.Linear(5, 4, bias=False), (3, 6, 5)),
    *convolutions(),
    Case("conv2d-unbatched", lambda: nn.Conv2d(4, 8, 3, padding=1), (4, 7, 8)),
    Case("embedding", lambda: nn.Embedding(11, 6), (3, 5), vocabulary=11),
    Case(
        "embedding-padding",
        lambda: nn.Sequential(nn.Embedding(11, 6, padding_idx=0), nn.Linear(6, 3)),
        (3, 5),
        vocabulary=11,
    ),
    Case("attention", lambda: SelfAttention(batch_first=True), (3, 5, 8)),
    Case("attention-bias-kv", lambda: SelfAttention(add_bias_kv=True, bias=False), (5, 3, 8)),
    Case("attention-cross", CrossAttention, (3, 5, 8)),
    Case("encoder-layer", lambda: encoder_layer(dropout=0.0), (3, 5, 8)),
    Case("encoder-norm-first", lambda: encoder_layer(norm_first=True, dropout=0.0), (3, 5, 8)),
    Case(
        "encoder",
        lambda: nn.TransformerEncoder(encoder_layer(dropout=0.0), 2),
        (3, 5, 8),
    ),
    *recurrent(),
    Case("own-forward", lambda: WeightStandardised(5, 4), (3, 5)),
]
# Without a portable program or moments; draws, training and files are as of any other.
DRAWN_ONLY = [
    Case("embedding-large", lambda: nn.Embedding(300, 6, padding_idx=0), (3, 5), vocabulary=300),
    Case("bag", lambda: Bags(11), (3, 5), vocabulary=11),
    Case("bag-large", lambda: Bags(300, mode="sum"), (3, 5), vocabulary=300),
    Case("bilinear", Products, (3, 5)),
    Case("rnn", lambda: First(nn.RNN(4, 5, 2, batch_first=True)), (3, 6, 4), recurrent=True),
    Case("rnn-cell", lambda: Steps(nn.RNNCell(4, 5)), (3, 6, 4)),
    Case("lstm-cell", lambda: Steps(nn.LSTMCell(4, 5)), (3, 6, 4), recurrent=True),
    Case("gru-cell", lambda: Steps(nn.GRUCell(4, 5)), (3, 6, 4)),
]
