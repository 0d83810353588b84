"""Every rule of tracing: what the program computes is what torch computes."""

import pytest
import torch
import torch.nn.functional as F
from layer_kinds import CASES
from torch import nn
from traced import assert_same_outputs, traced

import pocketbayes as pb
from pocketbayes.layers import update_description
from pocketbayes.programs.operators import OPERATORS


class Own(nn.Module):
    """A function of the input, some weights of several shapes, and one layer to be Bayesian."""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(6, 6)
        self.vector, self.scalar = (nn.Parameter(torch.rand(n) + 0.5) for n in (6, 1))
        self.matrix = nn.Parameter(torch.randn(6, 4))
        self.table = nn.Parameter(torch.randn(1, 3, 6))
        self.function = function

    def forward(self, x):
        return self.function(self, self.first(x))


def made(function):
    return pb.bayesianize_(Own(function), include="first")


def rows(*shape):
    return torch.randn(4, *shape, generator=torch.Generator().manual_seed(1))


VECTORS = {
    "relu": lambda m, x: F.relu(x),
    "relu in place": lambda m, x: F.relu(x, inplace=True) + x,
    "method in place": lambda m, x: x.add_(1).mul_(2),
    "gelu": lambda m, x: F.gelu(x),
    "gelu tanh": lambda m, x: F.gelu(x, approximate="tanh"),
    "silu": lambda m, x: F.silu(x),
    "mish": lambda m, x: F.mish(x),
    "tanh": lambda m, x: torch.tanh(x),
    "sigmoid": lambda m, x: x.sigmoid(),
    "leaky": lambda m, x: F.leaky_relu(x, 0.2),
    "elu": lambda m, x: F.elu(x, 0.7),
    "selu": lambda m, x: F.selu(x),
    "softplus": lambda m, x: F.softplus(x, 2.0),
    "hardtanh": lambda m, x: F.hardtanh(x, -0.3, 0.4),
    "relu6": lambda m, x: F.relu6(20 * x),
    "hardswish": lambda m, x: F.hardswish(3 * x),
    "hardsigmoid": lambda m, x: F.hardsigmoid(3 * x),
    "clamp": lambda m, x: x.clamp(min=0.1) + x.clamp_min(0.2),
    "exp log sqrt abs": lambda m, x: (x.exp() + 1).log().sqrt() + x.abs(),
    "prelu": lambda m, x: F.prelu(x, m.vector),
    "prelu of one": lambda m, x: F.prelu(x, m.scalar),
    "numbers first": lambda m, x: torch.add(torch.tensor(2.0), x) * torch.mul(torch.tensor(3.0), x),
    "loop": lambda m, x: torch.stack([t * 2 for t in x.view(-1, 2, 3).transpose(0, 1)], 1),
    "operator": lambda m, x: torch.ops.aten.relu(x),
    "view as": lambda m, x: x.view(-1, 2, 3).reshape_as(x),
    "scalars": lambda m, x: 2 - (3 * x + 1) / 4 - x * 0.5 - 1,
    "alpha": lambda m, x: torch.add(x, m.vector, alpha=3) - torch.sub(1, x, alpha=2),
    "divisions": lambda m, x: 1 / (x.abs() + 1) + x / m.vector + (x.square() + 1).rsqrt(),
    "powers": lambda m, x: x**2 + x**3 - (x.abs() + 1) ** -1 + (x.abs() + 1) ** 0.5,
    "extremes": lambda m, x: torch.maximum(x, m.vector) - torch.minimum(x, -m.vector),
    "constants": lambda m, x: x * torch.arange(6.0) + torch.tensor(2.0),
    "softmax": lambda m, x: x.softmax(-1) + F.log_softmax(x, 1),
    "sums": lambda m, x: x.sum(1, keepdim=True) + x.mean(-1, keepdim=True) + x.amax(1)[:, None],
    "scalar output": lambda m, x: x.mean(1),
    "matmul": lambda m, x: x @ m.matrix,
    "matmul by t": lambda m, x: torch.mm(x, m.matrix @ m.matrix.t()),
    "cat": lambda m, x: torch.cat([x, x[:, 1:3], m.vector.expand(x.shape[0], -1)], 1),
    "stack": lambda m, x: torch.stack([x, -x, x], 1),
    "split": lambda m, x: torch.cat(x.split([1, 3, 2], 1)[::-1], 1),
    "chunk": lambda m, x: torch.cat([t * i for i, t in enumerate(x.chunk(3, 1))], -1),
    "unbind": lambda m, x: torch.stack(x.unbind(1)[::2], 1),
    "views": lambda m, x: x.view(-1, 2, 3).transpose(1, 2).flatten(1)[:, ::2].unsqueeze(2),
    "unflatten": lambda m, x: x.unflatten(1, (3, 2)).mT.reshape(x.size(0), -1).squeeze(),
    "moved": lambda m, x: x.view(-1, 1, 2, 3).movedim(3, 1).permute(1, 0, 2, 3)[2],
    "expand": lambda m, x: x[:, None].expand(-1, 3, -1) + m.table,
    "broadcast": lambda m, x: x[:, None] * m.table,
    "expand as": lambda m, x: m.vector.expand_as(x) * torch.arange(6.0).expand_as(x) + x,
    "of no dimension": lambda m, x: x * m.vector[2] + m.scalar.squeeze(),
    "select": lambda m, x: x[:, 2] + x.select(1, 1) + x.narrow(1, 3, 1).squeeze(1) + x[..., -1],
    "pad": lambda m, x: F.pad(x[:, None], (1, 2, 0, 1)),
    "cut": lambda m, x: F.pad(x, (-1, 1)),
    "statistics": lambda m, x: F.instance_norm(
        x[:, :, None], m.vector, m.vector, m.vector, use_input_stats=False
    ),
    "float mask": lambda m, x: F.scaled_dot_product_attention(
        *[x.view(-1, 3, 2)] * 3, attn_mask=torch.tensor([0.0, 1.0, float("-inf")])
    ),
    "norm": lambda m, x: F.normalize(x) + x.norm(dim=1, keepdim=True),
    "rms": lambda m, x: F.rms_norm(x, (6,), m.vector),
    "layer norm": lambda m, x: F.layer_norm(x, (6,), m.vector),
    "group norm": lambda m, x: F.group_norm(x, 2, m.vector, m.vector),
    "dropout": lambda m, x: F.dropout(x, 0.5, m.training),
    "types": lambda m, x: x.double().to(torch.float32).contiguous().clone().detach(),
    "zeros": lambda m, x: x + torch.zeros_like(x) + x.new_ones(x.shape[0], 1),
    "attention": lambda m, x: F.scaled_dot_product_attention(
        x.view(-1, 3, 2), x.view(-1, 3, 2), m.table.view(1, 3, 6).expand(x.shape[0], -1, -1)
    ),
    "causal": lambda m, x: F.scaled_dot_product_attention(
        *[x.view(-1, 1, 3, 2)] * 3, is_causal=True, scale=0.3
    ),
    "masked": lambda m, x: F.scaled_dot_product_attention(
        *[x.view(-1, 3, 2)] * 3, attn_mask=torch.ones(3, 3).tril().bool()
    ),
    "unused": lambda m, x: (x.exp().sum(1), x)[1],
    "output of another": lambda m, x: {"logits": x * 2, "more": 1},
}  # fmt: skip


@pytest.mark.parametrize("name", VECTORS)
def test_functions_of_vectors(name):
    model = made(VECTORS[name])
    if name == "output of another":
        model.function = lambda m, x: x * 2
        expected = traced(model, rows(6))
        model.function = VECTORS[name]
        assert traced(model, rows(6)) == expected
    else:
        assert_same_outputs(model, rows(6))


IMAGES = {
    "max pool": lambda m, x: F.max_pool2d(x, 3, 2, 1),
    "max pool up": lambda m, x: F.max_pool2d(x, (3, 2), 2, (1, 0), ceil_mode=True),
    "max pool up 2": lambda m, x: F.max_pool2d(x, 2, 3, 1, ceil_mode=True),
    "max pool, long steps": lambda m, x: F.max_pool2d(x, 2, 50, 1, ceil_mode=True),
    "max pool dilated": lambda m, x: F.max_pool2d(x, 2, 1, dilation=(3, 2)),
    "avg pool": lambda m, x: F.avg_pool2d(x, 3, 2, 1),
    "avg pool up": lambda m, x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "avg pool up, uncounted": lambda m, x: F.avg_pool2d(x, 2, 3, 1, True, False),
    "adaptive": lambda m, x: F.adaptive_avg_pool2d(x, (3, 4)),
    "adaptive, kept": lambda m, x: F.adaptive_avg_pool2d(x, (None, 1)).flatten(1),
    "adaptive max": lambda m, x: F.adaptive_max_pool2d(x, 1).flatten(1),
    "mean": lambda m, x: x.mean((2, 3)),
    "1-d": lambda m, x: F.max_pool1d(F.avg_pool1d(x.flatten(2), 3, 2), 2),
    "adaptive 1-d": lambda m, x: F.adaptive_avg_pool1d(x.flatten(2), 4),
    "nearest": lambda m, x: F.interpolate(x, scale_factor=2) + F.interpolate(x, size=(14, 12)),
    "group norm": lambda m, x: F.group_norm(x, 2),
    "instance norm": lambda m, x: F.instance_norm(x),
    "layer norm": lambda m, x: F.layer_norm(x, (7, 6)),
    "dropout": lambda m, x: F.dropout2d(x, 0.3, m.training),
    "to tokens": lambda m, x: x.flatten(2).permute(2, 0, 1).transpose(0, 1) + 1,
}


@pytest.mark.parametrize("name", IMAGES)
def test_functions_of_images(name):
    assert_same_outputs(made(IMAGES[name]), rows(4, 7, 6))


# What no program holds (yet): the word of it that the error names.
REFUSED = {
    "transposed": "conv_transpose", "reflect": "padding by other",
    "replicate": "padding by other", "circular": "padding by other", "unbatched": "conv2d",
    "bias-kv": "attention", "own-forward": "computed", "conv3d": "conv3d",
}  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_layers(case):
    model, x = pb.bayesianize_(case.net(torch.float32)), case.input(torch.float32)
    refused = [word for part, word in REFUSED.items() if part in case.name]
    if case.recurrent and not case.name.endswith("True"):
        refused = ["without examples where"]  # times come first
    if refused:
        with pytest.raises(pb.ProgramError, match=refused[0]):
            traced(model, x)
    else:
        assert_same_outputs(model, x)


class TimesFirst(nn.Module):
    """Layers that take times before examples, and the last states of a recurrent one."""

    def __init__(self):
        super().__init__()
        self.lstm, self.gru = nn.LSTM(6, 5, 2, bidirectional=True), nn.GRU(6, 4, bias=False)
        self.attention = nn.MultiheadAttention(10, 2)
        self.last = nn.Linear(14, 3)

    def forward(self, x):
        x = x.transpose(0, 1)
        states, (h, _) = self.lstm(x)
        mixed, weights = self.attention(states, states, states)
        _, g = self.gru(x, torch.zeros(1, x.shape[1], 4))
        read = torch.cat([h[-1], h[-2]], -1) + mixed.mean(0)
        return self.last(torch.cat([read, g[0]], -1)) + weights.sum((1, 2))[:, None]


def test_times_may_come_first():
    torch.manual_seed(0)
    assert_same_outputs(pb.bayesianize_(TimesFirst()), rows(5, 6))


def test_projections_of_recurrent_layers_are_refused():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(6, 5, proj_size=3, batch_first=True)

        def forward(self, x):
            return self.lstm(x)[0]

    with pytest.raises(pb.ProgramError, match="lstm with projections"):
        traced(pb.bayesianize_(Last()), rows(5, 6))


def test_batch_norms_read_their_statistics():
    torch.manual_seed(0)
    layers = nn.BatchNorm2d(4), nn.Conv2d(4, 3, 3), nn.BatchNorm2d(3, affine=False), nn.Flatten()
    net = nn.Sequential(*layers, nn.Linear(60, 5), nn.BatchNorm1d(5))
    net(rows(4, 7, 6) * 3 + 1)  # moves the statistics
    program = assert_same_outputs(pb.bayesianize_(net, bias=True), rows(4, 7, 6))
    assert [step.name for step in program.operations].count("norm") == 3


def test_dropout_is_written_down_only_where_it_stays_on():
    net = nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.3), nn.Dropout1d(0.2), nn.Linear(4, 2))
    model = pb.bayesianize_(net)
    assert [step.name for step in assert_same_outputs(model, rows(6)).operations] == ["linear"] * 2
    update_description(model, keeps_dropout=True)
    steps = assert_same_outputs(model, rows(6)).operations
    assert [step.name for step in steps] == ["linear", "dropout", "dropout", "linear"]
    assert steps[1].fields[1:] == (pytest.approx(0.3), 0)
    assert steps[2].fields[1:] == (pytest.approx(0.2), 1)


def test_every_operation_is_written_by_some_test():
    seen = {"embedding", "lstm", "gru", "conv", "linear", "norm", "dropout"}  # above, by layers
    for cases, shape in ((VECTORS, (6,)), (IMAGES, (4, 7, 6))):
        for name in cases.keys() - {"output of another"}:
            seen |= {step.name for step in traced(made(cases[name]), rows(*shape)).operations}
    assert seen == OPERATORS.keys()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda m, x: torch.linalg.inv(x @ x.T), "matrix product"),
        (lambda m, x: torch.fft.fft(x), "'fft_fft'"),
        (lambda m, x: x.cumsum(1), "'cumsum'"),
        (lambda m, x: x if x.sum() > 0 else -x, "axis of examples|depends on values"),
        (lambda m, x: x if (x > 0).all() else -x, "'__gt__'|'gt'"),
        (lambda m, x: x * float(x[0, 0]), "examples|depends on values"),
        (lambda m, x: x * float(m.scalar), "depends on values"),
        (lambda m, x: x - x.mean(0), "axis of examples"),
        (lambda m, x: x.reshape(-1), "joins examples"),
        (lambda m, x: x.reshape(2, -1), "cannot be traced|joins examples"),
        (lambda m, x: x[:2], "picks some of the examples"),
        (lambda m, x: x[torch.tensor([0, 1])], "index"),
        (lambda m, x: x[:, [0, 2]], "index"),
        (lambda m, x: x[x > 0], "'__gt__'|'gt'"),
        (lambda m, x: x.t(), "first axis"),
        (lambda m, x: torch.cat([x, x]), "axis of examples"),
        (lambda m, x: x * torch.randn(5000, 1, 6), "5,000|30,000"),
        (lambda m, x: x * torch.arange(len(x))[:, None], "differs between examples"),
        (lambda m, x: x * len(x), "size of the batch"),
        (lambda m, x: x ** 1.5, "'pow' with the exponent 1.5"),
        (lambda m, x: F.batch_norm(x, None, None, training=True), "without running statistics"),
        (lambda m, x: F.linear(x, m.matrix.t()), "computed"),
        (lambda m, x: m.vector * 2, "first axis"),
        (lambda m, x: (x, x), "not a tensor|ClassPrediction|returns a tuple"),
        (lambda m, x: F.dropout(x, 0.1, True, False) * F.alpha_dropout(x, 0.1, True), "stays on"),
        (lambda m, x: F.interpolate(x[:, None], scale_factor=1.5), "whole number of times"),
        (lambda m, x: F.pad(x, (1, 1), value=2.0), "padding by other than zeros"),
        (lambda m, x: x.t() + x, "different axes"),
        (lambda m, x: x + m.table[0], "different axes"),
        (lambda m, x: torch.cat([x[:, None], m.table], 1), "different axes"),
        (lambda m, x: x.clamp(min=m.vector), "'clamp' between tensors"),
        (lambda m, x: x.div(2, rounding_mode="floor"), "floor"),
        (lambda m, x: F.softmax(x), "does not say its dim"),
        (lambda m, x: x.norm(1, 1), "p=1"),
        (lambda m, x: F.embedding(x.long(), m.matrix, max_norm=1.0), "max_norm"),
        (lambda m, x: F.layer_norm(x.t(), (x.shape[0],)), "over examples"),
        (lambda m, x: F.max_pool1d(x, 2, return_indices=True)[0], "indices"),
        (lambda m, x: F.avg_pool2d(x[:, None], 1, divisor_override=2), "divisor_override"),
        (lambda m, x: F.adaptive_max_pool1d(x[:, None], 2), "more than one number"),
        (lambda m, x: F.scaled_dot_product_attention(x, x, x), "between examples"),
        (lambda m, x: F.scaled_dot_product_attention(*[x[:, None]] * 3, dropout_p=0.1), "dropout"),
        (lambda m, x: F.group_norm(x.t()[None], 1), "first axis"),
        (lambda m, x: torch.zeros(x.shape).add_(x), "into a plain tensor"),
        (lambda m, x: x.unsqueeze_(1), "changes a shape in place"),
        (lambda m, x: x.view(-1, 2, 3).diagonal(dim1=1, dim2=2), "'diagonal'"),
        (lambda m, x: x.unfold(1, 3, 1), "'unfold'"),
        (lambda m, x: F.upsample_unknown(x), "cannot be traced"),
        (lambda m, x: F.pad(x, (2**26, 0)), "no portable program"),
    ],
)  # fmt: skip
def test_what_no_program_holds_is_refused_by_its_name(function, message):
    with pytest.raises(pb.PocketBayesError, match=message):
        traced(made(function), rows(6))


class Attention(nn.Module):
    """Multi-head attention with what a test says."""

    def __init__(self, say, **options):
        super().__init__()
        torch.manual_seed(0)
        self.attention, self.say = nn.MultiheadAttention(6, 2, batch_first=True, **options), say

    def forward(self, x):
        return self.attention(x, x, x, **self.say(x))[0]


def causal(x):
    mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
    return {"attn_mask": mask, "is_causal": True, "need_weights": False}


@pytest.mark.parametrize(
    "say",
    [
        causal,
        lambda x: {"attn_mask": torch.ones(5, 5).triu(1).bool()},
        lambda x: {"attn_mask": torch.randn(5, 5, generator=torch.Generator().manual_seed(0))},
        lambda x: {"average_attn_weights": False},
    ],
)
def test_masks_of_attention(say):
    assert_same_outputs(pb.bayesianize_(Attention(say)), rows(5, 6))


def test_a_causal_mask_takes_no_room_however_long():
    program = assert_same_outputs(pb.bayesianize_(Attention(causal)), rows(50, 6))
    assert "constant" not in [step.name for step in program.operations]


def test_padding_masks_and_dropout_of_attention_are_refused():
    padded = Attention(lambda x: {"key_padding_mask": x[..., 0].detach()})
    with pytest.raises(pb.ProgramError, match="padding mask"):
        traced(pb.bayesianize_(padded), rows(5, 6))
    model = pb.bayesianize_(Attention(lambda x: {}, dropout=0.1))
    assert_same_outputs(model, rows(5, 6))
    update_description(model, keeps_dropout=True)
    with pytest.raises(pb.ProgramError, match="stays on"):
        traced(model, rows(5, 6))


class Recurrent(nn.Module):
    """A recurrent layer that is given what a test says."""

    def __init__(self, kind, given):
        super().__init__()
        self.layer, self.given = kind(6, 4, batch_first=True), given

    def forward(self, x):
        return self.layer(*self.given(x))[0]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_states_of_recurrent_layers_other_than_zero_are_refused(kind):
    def ones(x):
        h = torch.ones(1, x.shape[0], 4)
        return x, ((h, h) if kind is nn.LSTM else h)

    with pytest.raises(pb.ProgramError, match="starts at other than 0"):
        traced(pb.bayesianize_(Recurrent(kind, ones)), rows(5, 6))


def test_an_error_says_where_and_what_to_do():
    class Block(nn.Module):
        def forward(self, x):
            return x.cumsum(1)

    model = pb.bayesianize_(nn.Sequential(nn.Linear(6, 6), Block()))
    with pytest.raises(pb.ProgramError, match=r"'cumsum', in 1 \(Block\): save without example="):
        traced(model, rows(6))
    model = made(lambda m, x: x if m.scalar > 0 else -x)
    with pytest.raises(pb.ProgramError, match="cannot hold"):
        traced(model, rows(6))
