"""Networks that compute their activations again for the gradient: the draws are the same again."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import pocketbayes as pb

WIDTH = 160  # a square of it is drawn by numpy, its row by torch


class Network(nn.Module):
    """Layers of every kind, most of them inside of a checkpoint or not."""

    def __init__(self, computes_again: bool) -> None:
        super().__init__()
        self.computes_again = computes_again
        self.first, self.body = nn.Linear(8, WIDTH), nn.Sequential(nn.Linear(WIDTH, WIDTH))
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.last, self.calls = nn.Linear(WIDTH, 3), 0

    def inside(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        x = self.body(x).relu()[:, None]
        return self.attention(x, x, x)[0][:, 0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if self.computes_again and self.training:
            return self.last(checkpoint(self.inside, x, use_reentrant=False))
        return self.last(self.inside(x))


def trained(computes_again, method, estimator):
    torch.manual_seed(0)
    x = torch.randn(48, 8)
    loader = list(zip(x.split(16), x[:, :3].argmax(1).split(16), strict=True))
    model = pb.bayesianize_(Network(computes_again), estimator=estimator, std_init=0.05)
    pb.fit(model, loader, method, epochs=2, progress=False, device="cpu")
    return model


@pytest.mark.parametrize("estimator", ["lrt", "weight", "flipout"])
@pytest.mark.parametrize(
    "method",
    [pb.MeanField(lr=1e-3), pb.Subspace(density=0.3, update_every=3, lr=1e-3), pb.SpikeSlab()],
    ids=["mean-field", "subspace", "spike-slab"],
)
def test_a_network_that_computes_again_learns_the_same(method, estimator):
    plain, again = (trained(whether, method, estimator) for whether in (False, True))
    assert again.calls > plain.calls
    for a, b in zip(plain.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)
