"""Multiplications by weights: known answers, torch's own counter, and what files say."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import pocketbayes as pb
from pocketbayes.layers import Ensemble
from pocketbayes.models import build_network

OPTIONS = {"progress": False, "device": "cpu", "epochs": 0}


def torchs_count(net, x):
    """FLOPs of torch are two a multiplication, for the whole batch."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        net.eval()(x)
    return counter.get_total_flops() / 2 / len(x)


def sparsely(net, x, density=0.2):
    """The net with so many of its weights, elsewhere in every tensor."""
    torch.manual_seed(0)
    data = [(x, torch.zeros(len(x), dtype=torch.long))]
    return pb.fit(pb.bayesianize_(net), data, pb.Subspace(density=density), **OPTIONS).model


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("resnet18", (3, 32, 32), 555_422_720),
        ("resnet50", (3, 32, 32), 1_297_829_888),
        ("resnet20", (3, 32, 32), 40_551_040),
        ("lenet5", (1, 28, 28), 416_520),
        ("mlp", (784,), 784 * 128 + 128 * 128 + 1280),
    ],
)
def test_known_networks(name, shape, expected):
    with torch.device("meta"):
        net, x = build_network(name, input_shape=shape), torch.empty(2, *shape)
    counted = pb.multiplications(net, x)
    assert counted == pb.Multiplications(expected, expected)
    assert str(counted) == f"{expected:,} dense, {expected:,} without zeros (100.0%)"


@pytest.mark.parametrize(
    ("net", "shape"),
    [
        (nn.Linear(7, 3), (4, 5, 7)),
        (nn.Conv1d(4, 6, 3, stride=2, groups=2), (2, 4, 11)),
        (nn.Conv2d(3, 8, (3, 1), padding="same", dilation=2), (2, 3, 6, 5)),
        (nn.Conv3d(1, 2, 2), (3, 1, 4, 4, 3)),
        (nn.ConvTranspose1d(2, 5, 4, stride=3), (2, 2, 6)),
        (nn.ConvTranspose2d(4, 6, 3, 2, 1, groups=2), (2, 4, 5, 5)),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_torch_counts_the_same(net, shape):
    x = torch.randn(shape)
    expected = torchs_count(net, x)
    assert pb.multiplications(net, x).dense == expected
    assert pb.multiplications(pb.bayesianize_(net), x) == pb.Multiplications(expected, expected)


class Translator(nn.Module):
    """Attention to itself and to other tokens, and recurrence both ways."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.decoder = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
        self.other = nn.MultiheadAttention(8, 2, kdim=5, vdim=6, batch_first=True)
        self.reader = nn.LSTM(8, 4, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, known, told, keys):
        y = self.decoder(told, self.encoder(known))
        y = y + self.other(query=y, key=keys[..., :5], value=keys)[0]
        return self.reader(y)[0]


def test_attention_and_recurrence_count_the_tokens_that_meet_each_weight():
    x = torch.randn(3, 7, 8), torch.randn(3, 4, 8), torch.randn(3, 9, 6)
    encoder = 7 * (4 * 64 + 2 * 8 * 16)
    decoder = 4 * (4 * 64) + (4 + 7 + 7 + 4) * 64 + 4 * (2 * 8 * 16)
    other = 4 * 64 + 9 * 8 * 5 + 9 * 8 * 6 + 4 * 64
    reader = 4 * 2 * (16 * 8 + 16 * 4 + 16 * 8 + 16 * 4)
    expected = encoder + decoder + other + reader
    model = Translator().train()
    state = torch.get_rng_state()
    assert pb.multiplications(model, x).dense == expected
    assert pb.multiplications(pb.bayesianize_(model), x).dense == expected
    assert model.training
    assert (
        pb.multiplications(model, dict(zip(("known", "told", "keys"), x, strict=True))).dense
        == expected
    )
    assert not any(module._forward_hooks for module in model.modules())
    assert torch.equal(torch.get_rng_state(), state)


def test_without_zeros_each_weight_counts_where_it_is_used():
    x = torch.randn(2, 1, 28, 28)
    model = sparsely(build_network("lenet5"), x, density=0.05)
    uses = {"conv1": 784, "conv2": 100, "linear1": 1, "linear2": 1, "linear3": 1}
    kept = {name.split(".")[0]: q.num_active for name, q in pb.named_posteriors(model)}
    counted = pb.multiplications(model, x)
    assert counted.sparse == sum(uses[name] * kept[name] for name in uses)
    assert counted.dense == 416_520
    assert counted.ratio == counted.sparse / 416_520
    assert pb.multiplications(nn.ReLU(), x).ratio == 1


def test_a_tied_weight_counts_at_each_use_and_an_ensemble_in_each_member():
    x, layer = torch.randn(4, 6), nn.Linear(6, 6)
    assert pb.multiplications(nn.Sequential(layer, nn.ReLU(), layer), x).dense == 72
    members = [pb.bayesianize_(nn.Linear(6, 6)) for _ in range(3)]
    assert pb.multiplications(Ensemble(members), x).dense == 108


class Sentences(nn.Module):
    """Words, recurrence and attention: a table of which no number is multiplied."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.recurrent = nn.GRU(8, 6, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, words):
        x = self.table(words)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.head(self.recurrent(x)[0][:, -1])


IMAGES = torch.randn(2, 3, 32, 32)
STORED = {
    "pictures": lambda: (sparsely(build_network("resnet20", width=0.5), IMAGES), IMAGES),
    "patches": lambda: (
        pb.bayesianize_(build_network("vit-tiny", input_shape=(3, 32, 32), width=0.1)), IMAGES
    ),
    "words": lambda: (pb.bayesianize_(Sentences()), torch.randint(9, (2, 5))),
    "excluded": lambda: (
        pb.bayesianize_(build_network("lenet5", input_shape=(3, 32, 32)), exclude=["conv1"]), IMAGES
    ),
    "ensemble": lambda: (
        Ensemble([sparsely(build_network("lenet5", input_shape=(3, 32, 32)), IMAGES, density)
                  for density in (0.1, 0.3)]), IMAGES
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", STORED)
def test_a_file_that_has_its_program_says_the_same(kind, tmp_path):
    model, x = STORED[kind]()
    counted = pb.multiplications(model, x)
    assert counted.dense > 0
    said = pb.save(model, tmp_path / "a.pocket", example=x).program["multiplications"]
    assert said == {"dense": counted.dense, "sparse": counted.sparse}
    told = pb.inspect(tmp_path / "a.pocket")
    assert told.program["multiplications"] == said
    row = f"multiplications  {counted.sparse:,} of {counted.dense:,} by weights, in one pass"
    assert row in str(told)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (3, "must be a batch"), ((), "must be a batch"), ([torch.ones(1, 7)], "must be a batch"),
        (torch.ones(()), "must be a batch"), (torch.empty(0, 7), "must be a batch"),
        (torch.ones(2, 6), "cannot run on an input of shape"),
    ],
)  # fmt: skip
def test_what_is_no_example_is_an_error(x, message):
    with pytest.raises(pb.DataError, match=message):
        pb.multiplications(nn.Linear(7, 3), x)
    with pytest.raises(pb.PocketBayesError, match="must be a torch"):
        pb.multiplications(3, x)
