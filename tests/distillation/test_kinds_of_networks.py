"""Places are found in networks of every kind, by running them."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.distillation.lessons import budget_of, hidden_units
from pocketbayes.layers import describe, head_of, tensors_at
from pocketbayes.models import build_network
from pocketbayes.models.vit import VisionTransformer

pytestmark = pytest.mark.filterwarnings("ignore:nothing says that this model was ever")


class Recurrent(nn.Module):
    def __init__(self, batch_first):
        super().__init__()
        self.first = batch_first
        self.lstm = nn.LSTM(5, 12, batch_first=batch_first)
        self.out = nn.Linear(12, 3)

    def forward(self, x):
        out, _ = self.lstm(x if self.first else x.transpose(0, 1))
        return self.out(out[:, -1] if self.first else out[-1])


class Tagger(nn.Module):
    """One label for each token: (N, 3, T)."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.out = nn.Linear(8, 3)

    def forward(self, tokens):
        return self.out(self.encoder(self.embed(tokens))).transpose(1, 2)


class Named(nn.Module):
    """Inputs by name, and logits beside other things."""

    def __init__(self):
        super().__init__()
        self.left, self.right, self.out = nn.Linear(4, 8), nn.Linear(3, 8), nn.Linear(8, 3)

    def forward(self, left, right):
        hidden = torch.relu(self.left(left) + self.right(right))
        return SimpleNamespace(logits=self.out(hidden), hidden=hidden)


class Segmenter(nn.Module):
    """One label for each pixel, from features of two resolutions."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 6, 3, padding=1), nn.Conv2d(6, 8, 3, 2, padding=1)
        self.c, self.out = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(14, 3, 1)

    def forward(self, x):
        fine = torch.relu(self.a(x))
        coarse = torch.relu(self.c(torch.relu(self.b(fine))))
        return self.out(torch.cat([fine, nn.functional.interpolate(coarse, scale_factor=2)], 1))


def random(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


TOKENS = torch.randint(20, (9, 7), generator=torch.Generator().manual_seed(0))
MLP = {"input_shape": (5,), "num_outputs": 3, "hidden": (12, 9, 8)}
VIT = (24, 2, (3, 32, 32), 3, 16, 0.0)
KINDS = {
    "mlp": (lambda: build_network("mlp", **MLP), random(9, 5)),
    "lenet5": (lambda: build_network("lenet5"), random(9, 1, 28, 28)),
    "resnet20": (lambda: build_network("resnet20"), random(4, 3, 32, 32)),
    "vit": (lambda: VisionTransformer(*VIT, depth=2), random(4, 3, 32, 32)),
    "lstm": (lambda: Recurrent(True), random(9, 7, 5)),
    "lstm, time first": (lambda: Recurrent(False), random(9, 7, 5)),
    "tokens": (Tagger, TOKENS),
    "by name": (Named, {"left": random(9, 4), "right": random(9, 3)}),
    "several": (Named, (random(9, 4), random(9, 3))),
    "pixels": (Segmenter, random(5, 1, 8, 8)),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_network_of_this_kind_learns_and_predicts(kind):
    make, x = KINDS[kind]
    torch.manual_seed(0)
    model = pb.bayesianize_(make(), std_init=0.01, estimator="weight")
    batch = {**x, "y": TOKENS[:, 0] % 3} if isinstance(x, dict) else (x, TOKENS[: len(x), 0] % 3)
    batch = (*x, TOKENS[:, 0] % 3) if isinstance(x, tuple) else batch
    pb.distill_(model, [batch] * 2, 2)
    places = [place.name for place in head_of(model).places]
    assert 1 <= len(places) <= 4
    drawn = pb.predict(model, x, 60, torch.Generator().manual_seed(0), "weight", single=False)
    taught = pb.predict(model, x, single=False)
    assert taught.probs.shape == drawn.probs.shape
    assert taught.entropy.isfinite().all()
    assert 0.2 < taught.epistemic.mean() / drawn.epistemic.mean() < 5
    assert (taught.probs - drawn.probs).abs().sum(1).mean() < 0.15


def test_stages_of_a_residual_network_are_its_places():
    model = pb.bayesianize_(build_network("resnet18"), estimator="weight")
    pb.distill_(model, [random(2, 3, 32, 32)], 1, num_samples=2)
    places = head_of(model).places
    assert [place.width for place in places] == [64, 128, 256, 512]
    assert [place.name.split(".")[0] for place in places[:-1]] == ["layer2", "layer3", "layer4"]


def test_a_head_keeps_to_its_bytes():
    wide = {"input_shape": (1, 28, 28), "num_outputs": 10}
    for name, options in (("lenet5", {}), ("resnet20", {}), ("mlp", wide)):
        model = pb.bayesianize_(build_network(name, **options), estimator="weight")
        shape = (3, 32, 32) if name == "resnet20" else (1, 28, 28)
        pb.distill_(model, [random(4, *shape)], 1, num_samples=2)
        size = sum(tensor.nbytes for tensor in tensors_at(model).values())
        assert size <= 1.1 * budget_of(model)
        assert len(tensors_at(model)["inner_bias"]) >= 4
    assert hidden_units(10**9, [512], 10) == 64
    assert hidden_units(0, [512], 10) == 4


def test_positions_have_features_of_their_own():
    """With one token changed, a network of single tokens changes there alone; so does its head."""

    class Apart(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.a, self.b = nn.Embedding(20, 8), nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, tokens):
            return self.b(torch.relu(self.a(self.embed(tokens)))).transpose(1, 2)

    torch.manual_seed(0)
    model = pb.distill_(pb.bayesianize_(Apart(), std_init=0.3), [TOKENS] * 3, 2)
    other = TOKENS.clone()
    other[:, 2] = (other[:, 2] + 1) % 20
    before, after = (pb.predict(model, t, single=False).epistemic for t in (TOKENS, other))
    same = torch.isclose(before, after, rtol=1e-4, atol=1e-7)
    assert same[:, [0, 1, 3, 4, 5, 6]].all()
    assert not same[:, 2].any()


def test_a_compiled_network_takes_the_same_pass():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    model = pb.bayesianize_(net, std_init=0.3, estimator="weight")
    x, y = torch.randn(32, 4), torch.randint(3, (32,))
    pb.distill_(model, [(x, y)], epochs=2)
    compiled = torch.compile(model, backend="eager")
    assert pb.predict(compiled, x).estimator == "one_pass"
    torch.testing.assert_close(pb.predict(compiled, x).probs, pb.predict(model, x).probs)


def test_distilling_keeps_the_factor_of_moments():
    model = pb.bayesianize_(nn.Linear(4, 3), std_init=0.3)
    x, y = torch.randn(32, 4), torch.randint(3, (32,))
    pb.calibrate_moments_(model, x)
    factor = describe(model).moments_factor
    pb.distill_(model, [(x, y)], epochs=1)
    assert describe(model).moments_factor == factor is not None
