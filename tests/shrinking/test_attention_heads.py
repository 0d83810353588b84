"""Heads that are off go as a whole, whoever wrote the attention."""

import copy

import pytest
import torch
import torch.nn.functional as F
from followed_nets import (
    HEADS,
    WIDTH,
    Biased,
    Fused,
    Mlp,
    Rotary,
    Separate,
    Split,
    Torch,
    Transformer,
)
from torch import nn

import pocketbayes as pb
from pocketbayes.layers import (
    FewerHeads,
    describe,
    drawing_by,
    named_posteriors,
    narrow_to_,
    replace_posterior,
)
from pocketbayes.posteriors import Point

EACH = WIDTH // HEADS
OFF = slice(EACH, 2 * EACH)  # the second head
ATTENTIONS = {
    "fused": Fused, "slow": lambda: Fused(fast=False), "separate": Separate, "split": Split,
    "rotary": Rotary, "biased": Biased, "torch": Torch,
    "torch without bias": lambda: Torch(bias=False),
    "tokens first": lambda: Torch(batch_first=False),
}  # fmt: skip
every_attention = pytest.mark.parametrize("kind", ATTENTIONS)


def output_of(attention):
    """The layer that reads what the heads give."""
    if isinstance(attention, Torch):
        return attention.attention.out_proj
    names = ("proj", "output", "o_proj", "out")
    return next(getattr(attention, name) for name in names if hasattr(attention, name))


def values_of(attention, off=OFF):
    """Views of the rows of a head's values, and of their biases."""
    if isinstance(attention, Torch):
        inner = attention.attention
        return _last(inner.in_proj_weight, inner.in_proj_bias, off)
    if isinstance(attention, Split):
        return _last(attention.weight.T, attention.bias, off)
    if isinstance(attention, Fused | Biased):
        return _last(attention.qkv.weight, attention.qkv.bias, off)
    layer = attention.v_proj if isinstance(attention, Rotary) else attention.value
    return layer.weight[off], layer.bias if layer.bias is None else layer.bias[off]


def _last(weight, bias, off):
    rows = slice(2 * WIDTH + off.start, 2 * WIDTH + off.stop)
    return weight[rows], bias if bias is None else bias[rows]


@torch.no_grad()
def a_head_off_(attention, with_bias=True, off=OFF):
    weight, bias = values_of(attention, off)
    weight.zero_()
    if bias is not None and with_bias:
        bias.zero_()
    elif bias is not None:
        bias.normal_()


def transformer(kind, with_bias=True):
    net = Transformer(ATTENTIONS[kind])
    for parameter in net.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, 0.5, 0.5)
    a_head_off_(net.attention, with_bias)
    return net.eval()


def size(net):
    return sum(p.numel() for p in net.parameters())


def assert_same(small, net, *x):
    with torch.no_grad():
        one, other = small(*x), net(*x)
    assert (one - other).abs().max() <= 1e-5 * other.abs().max()


@every_attention
def test_a_head_without_values_goes(kind):
    torch.manual_seed(0)
    net = transformer(kind)
    small = pb.shrink(net, torch.randn(2, 5, 6))
    assert_same(small, net, torch.randn(3, 5, 6))
    lost = size(net) - size(small)
    parts = 6 if kind == "rotary" else 4  # with two heads of queries for one of keys and values
    assert parts * EACH * WIDTH <= lost < (parts + 1) * EACH * WIDTH


@every_attention
def test_heads_that_nothing_reads_go(kind):
    torch.manual_seed(1)
    net = Transformer(ATTENTIONS[kind]).eval()
    output_of(net.attention).weight.data[:, : 2 * EACH] = 0
    small = pb.shrink(net, torch.randn(2, 5, 6))
    assert_same(small, net, torch.randn(3, 5, 6))
    lost = 6 if kind == "rotary" else 8  # parts of weights, a head each
    assert size(net) - size(small) >= lost * EACH * WIDTH


@pytest.mark.parametrize("kind", ["fused", "separate", "torch"])
def test_constant_values_are_carried_by_those_of_one_head(kind):
    """Weights of attention sum to 1, so that a head whose values are its bias gives just that."""
    torch.manual_seed(2)
    net = transformer(kind, with_bias=False)
    small = pb.shrink(net, torch.randn(2, 5, 6))
    assert_same(small, net, torch.randn(3, 5, 6))
    assert size(small) == size(net)  # no other constant can stand for this head's
    a_head_off_(net.attention, with_bias=False, off=slice(2 * EACH, 3 * EACH))
    small = pb.shrink(net, torch.randn(2, 5, 6))
    assert_same(small, net, torch.randn(3, 5, 6))
    assert size(net) - size(small) >= 4 * EACH * WIDTH


@every_attention
def test_a_single_number_of_a_head_keeps_it(kind):
    torch.manual_seed(3)
    net = transformer(kind)
    values_of(net.attention)[0].data[-1, -1] = 1.0
    small = pb.shrink(net, torch.randn(2, 5, 6))
    assert_same(small, net, torch.randn(3, 5, 6))
    assert size(small) == size(net)


@pytest.mark.parametrize("kind", ["fused", "separate", "torch"])
def test_random_heads_stay_and_keep_their_noise(kind):
    torch.manual_seed(4)
    net = transformer(kind)
    model = pb.bayesianize_(net, prior_std=0.3, std_init=0.2)
    x = torch.randn(2, 5, 6)
    assert size(pb.shrink(model, x)) == size(model)
    for name, q in list(named_posteriors(model)):
        if name.startswith("attention") and q.expectation()[-1].numel() == WIDTH:
            mean = q.expectation().detach().clone()
            if mean.shape[0] == 3 * WIDTH:
                mean[2 * WIDTH :][OFF] = 0
            replace_posterior(model, name, Point(mean, 0.3))
    if kind == "separate":
        mean = torch.randn(WIDTH, WIDTH)
        mean[OFF] = 0
        replace_posterior(model, "attention.value.weight", Point(mean, 0.3))
    small = pb.shrink(model, x)
    assert size(small) < size(model) - 3 * EACH * WIDTH
    with drawing_by(model, "mean"), drawing_by(small, "mean"):
        assert_same(small, model, x)
    small.train()(x).sum().backward()
    assert pb.predict(small, x, num_samples=2).probs.shape == (2, 3)


@pytest.mark.parametrize("bayesian_first", [False, True])
@pytest.mark.parametrize("kind", ["fused", "rotary", "torch"])
def test_a_file_of_fewer_heads_fills_a_whole_network_or_one_of_its_form(
    kind, bayesian_first, tmp_path
):
    torch.manual_seed(5)
    net, x = transformer(kind), torch.randn(2, 5, 6)
    form = pb.shrink(net, x)
    if bayesian_first:
        model = pb.bayesianize_(copy.deepcopy(net), prior_std=0.3, std_init=0.1)
        for name, q in list(named_posteriors(model)):
            replace_posterior(model, name, Point(q.expectation().detach(), 0.3))
        model = pb.shrink(model, x)
    else:
        model = pb.bayesianize_(copy.deepcopy(form), prior_std=0.3, std_init=0.1)
    path = tmp_path / "small.pocket"
    pb.save(model, path, lossless=True)
    for filled in (form, Transformer(ATTENTIONS[kind])):
        again = pb.load(path, filled)
        with drawing_by(model.eval(), "mean"), drawing_by(again, "mean"):
            assert_same(again, model, x)
    twice = pb.shrink(again, x)
    assert describe(twice).shrunk == describe(model).shrunk
    net.attention = nn.Linear(WIDTH, WIDTH)
    with pytest.raises(pb.FormatError):
        pb.load(path, net)


def test_sizes_in_a_file_make_nothing_larger():
    net = Transformer(Torch)
    before = copy.deepcopy(net.state_dict())
    shapes = {"attention.attention.in_proj_weight": (3 * 99, 16), "mlp.fc1.weight": (32, 16, 1)}
    sizes = {"attention.attention": {"num_heads": 99, "embed_dim": -1, "batch_first": 0}, "x": {}}
    narrow_to_(net, shapes, sizes | {"mlp.fc1": {"in_features": 10**9, "weight": 2, "other": 1}})
    assert net.attention.attention.num_heads == HEADS
    assert (net.attention.attention.embed_dim, net.attention.attention.batch_first) == (WIDTH, True)
    assert net.mlp.fc1.in_features == WIDTH
    assert all(torch.equal(net.state_dict()[key], before[key]) for key in before)


def test_fewer_heads_have_moments_and_a_portable_program(tmp_path):
    torch.manual_seed(11)
    x = torch.randn(2, 5, 6)
    model = pb.bayesianize_(pb.shrink(transformer("torch"), x), prior_std=0.3, std_init=0.01)
    found = pb.predict(model, x, estimator="moments").probs
    drawn = pb.predict(model, x, num_samples=200, generator=torch.Generator().manual_seed(0)).probs
    torch.testing.assert_close(found, drawn, atol=0.05, rtol=0)
    pb.save(model, tmp_path / "small.pocket", example=x)  # which runs the program
    assert pb.inspect(tmp_path / "small.pocket").program is not None


class WithWeights(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.attention, self.options = (
            nn.MultiheadAttention(WIDTH, HEADS, batch_first=True),
            options,
        )

    def forward(self, x):
        y, weights = self.attention(x, x, x, **self.options)
        return y, weights.mean((1, 2))


@pytest.mark.parametrize("average", [True, False])
def test_heads_whose_weights_are_returned_stay(average):
    net = WithWeights(average_attn_weights=average).eval()
    a_head_off_(_around(net.attention))
    small = pb.shrink(net, torch.randn(2, 5, WIDTH))
    assert size(small) == size(net)


def _around(attention):
    made = Torch()
    made.attention = attention
    return made


class Between(nn.Module):
    """Queries of one sequence, keys and values of another, masks of all kinds."""

    def __init__(self, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, **options)
        self.key, self.value = nn.Linear(6, self.attention.kdim), nn.Linear(6, self.attention.vdim)

    def forward(self, x, y, padding=None, mask=None):
        return self.attention(
            x, self.key(y), self.value(y), key_padding_mask=padding, attn_mask=mask,
            need_weights=False,
        )[0]  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"kdim": 8, "vdim": 8}])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_between_sequences_loses_heads(options, masked):
    torch.manual_seed(6)
    net = Between(**options).eval()
    if options:
        net.attention.v_proj_weight.data[OFF] = 0
        net.attention.in_proj_bias.data[2 * WIDTH :][OFF] = 0
    else:
        a_head_off_(_around(net.attention))
    x = [torch.randn(2, 4, WIDTH), torch.randn(2, 7, 6)]
    if masked:
        padding = torch.zeros(2, 7, dtype=torch.bool)
        padding[0, 5:] = True
        x += [padding, torch.ones(4, 7, dtype=torch.bool).triu(5)]
    small = pb.shrink(net, tuple(x))
    assert small.attention.num_heads == 3
    assert_same(small, net, *x)
    x[0], x[1] = torch.randn(2, 4, WIDTH), torch.randn(2, 7, 6)
    assert_same(small, net, *x)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("average", [True, False])
def test_fewer_heads_are_torchs_attention_but_for_their_number(batch_first, average):
    """With a width of its own: the same as torch's when no head is gone."""
    torch.manual_seed(7)
    whole = nn.MultiheadAttention(WIDTH, HEADS, batch_first=batch_first).eval()
    same = nn.MultiheadAttention(WIDTH, HEADS, batch_first=batch_first).eval()
    same.load_state_dict(whole.state_dict())
    same.__class__ = FewerHeads
    x = torch.randn(5, 5, WIDTH)
    masks = [
        {}, {"attn_mask": torch.ones(5, 5).triu(1).bool()},
        {"attn_mask": torch.randn(5 * HEADS, 5, 5)},
        {"key_padding_mask": torch.ones(5, 5).triu(3).bool()},
        {"attn_mask": torch.ones(5, 5).triu(1).bool(), "is_causal": True},
    ]  # fmt: skip
    for options in masks:
        for wanted in (True, False):
            settings = {"need_weights": wanted, "average_attn_weights": average} | options
            torch.testing.assert_close(same(x, x, x, **settings), whole(x, x, x, **settings))
    torch.testing.assert_close(same(x[0], x[0], x[0]), whole(x[0], x[0], x[0]))


def test_an_encoder_of_torchs_keeps_out_of_its_fused_kernels():
    torch.manual_seed(8)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=True)
    net = nn.TransformerEncoder(layer, 2).eval()
    for block in net.layers:
        a_head_off_(_around(block.self_attn))
        block.linear1.weight.data[:16], block.linear1.bias.data[:16] = 0, -1.0
    x, padding = torch.randn(2, 5, WIDTH), torch.zeros(2, 5, dtype=torch.bool)
    small = pb.shrink(net, x)
    assert small.layers[0].linear1.out_features == 16
    assert small.layers[1].self_attn.num_heads == 3
    assert_same(small, net, x)
    padding[0, 3:] = True
    net.use_nested_tensor = False  # torch warns of them
    with torch.no_grad():
        one, other = (m(x, src_key_padding_mask=padding) for m in (small, net))
    torch.testing.assert_close(one[~padding], other[~padding], rtol=1e-5, atol=1e-5)


class OwnWidths(Fused):
    """Reads the width of what it is given where that of its heads is meant."""

    def forward(self, x):
        batch, tokens, width = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, 3, self.num_heads, width // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape))


class Single(nn.Module):
    """One head, of which each number may go by itself."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        scores = torch.einsum("bqd,bkd->bqk", self.q(x), self.k(x)) / 4
        return self.out(torch.bmm(scores.softmax(-1), self.v(x)))


def test_heads_whose_number_is_no_attribute_stay_whole_and_all_else_goes():
    torch.manual_seed(9)
    net = Transformer(OwnWidths).eval()
    a_head_off_(net.attention)
    net.mlp.fc1.weight.data[:16], net.mlp.fc1.bias.data[:16] = 0, 0
    small = pb.shrink(net, torch.randn(2, 5, 6))
    assert_same(small, net, torch.randn(3, 5, 6))
    assert small.attention.qkv.out_features == 3 * WIDTH
    assert small.mlp.fc1.out_features == 16


def test_numbers_of_a_single_head_go_one_by_one():
    torch.manual_seed(10)
    net = Transformer(Single).eval()
    with torch.no_grad():
        for layer, off in (
            (net.attention.q, [0, 3]),
            (net.attention.k, [3, 5]),
            (net.attention.v, [2]),
        ):
            layer.weight[off], layer.bias[off] = 0, 0
    small = pb.shrink(net, torch.randn(2, 5, 6))
    assert_same(small, net, torch.randn(3, 5, 6))
    assert small.attention.q.out_features == small.attention.k.out_features == WIDTH - 3
    assert small.attention.v.out_features == WIDTH - 1


def test_a_network_of_two_layers_in_a_transformer_loses_its_units():
    net = Transformer(Fused).eval()
    net.mlp = Mlp()
    net.mlp.fc1.weight.data[::2], net.mlp.fc1.bias.data[::2] = 0, 0
    small = pb.shrink(net, torch.randn(2, 5, 6))
    assert_same(small, net, torch.randn(3, 5, 6))
    assert (small.mlp.fc1.out_features, small.mlp.fc2.in_features) == (16, 16)
