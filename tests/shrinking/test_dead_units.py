"""Smaller networks: the same mean, the same noise, and layers that are really narrower."""

import copy
import time

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pocketbayes as pb
from pocketbayes.errors import PocketBayesError
from pocketbayes.layers import estimators
from pocketbayes.layers.bayesian import drawing_by
from pocketbayes.layers.conversion import named_posteriors, replace_posterior
from pocketbayes.layers.description import describe, update_description
from pocketbayes.models import build_network
from pocketbayes.models.residual import BasicBlock, padded_shortcut, projected_shortcut
from pocketbayes.models.wide_resnet import WideBlock
from pocketbayes.posteriors import Gaussian, Point, Sparse, SparsePoint, gaussian
from pocketbayes.posteriors.conversions import as_packed, as_point


def conv(inputs, outputs, **options):
    return nn.Conv2d(inputs, outputs, 3, padding=1, **options)


class Concatenation(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.first, self.second = conv(3, 8), conv(8, 6), conv(14, 6)
        self.norm, self.head = nn.BatchNorm2d(20), nn.Linear(20, 4)

    def forward(self, x):
        x = F.gelu(self.stem(x))
        x = torch.cat([x, self.first(x).relu()], dim=1)
        x = torch.cat([x, torch.tanh(self.second(x))], 1)
        x = F.adaptive_avg_pool2d(self.norm(x), 1)
        return self.head(x.view(x.size(0), -1))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.a, self.b, self.c = conv(3, 8), conv(8, 8), conv(8, 8), conv(8, 12)
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(3))
        self.pool, self.drop = nn.AvgPool2d(2, padding=1), nn.Dropout(0.5)
        self.head = nn.Linear(12 * 25, 4)

    def forward(self, x):
        x = F.relu(self.norms[0](self.stem(x)), inplace=True)
        y = self.norms[1](self.a(x))
        y += x
        y = F.leaky_relu(self.norms[2](y + self.b(F.max_pool2d(y, 3, 1, 1))))
        y = self.drop(self.pool(y))
        return self.head(torch.flatten(F.silu(self.c(y)), 1))


class Mobile(nn.Module):
    """Depthwise, with two outputs for each input, gated channels, groups, a transposed layer."""

    def __init__(self):
        super().__init__()
        self.stem, self.depth = conv(3, 8), conv(8, 16, groups=8)
        self.squeeze, self.excite = nn.Linear(16, 6), nn.Linear(6, 16)
        self.point, self.grouped = nn.Conv2d(16, 8, 1), conv(8, 8, groups=2)
        self.up = nn.ConvTranspose2d(8, 6, 2, stride=2)
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        x = F.relu(self.depth(self.stem(x).relu_()))
        b, c, _, _ = x.size()
        gate = self.excite(F.relu(self.squeeze(x.mean((2, 3))))).sigmoid().view(b, c, 1, 1)
        x = self.grouped(F.hardswish(self.point(x * gate)))
        return self.head(self.up(F.relu(x)).amax(dim=(-1, -2)))


class Stages(nn.Module):
    """Both shortcuts of the residual networks, and a block that normalises first."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(conv(3, 8, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.one = BasicBlock(8, 12, 2, padded_shortcut, 0.0)
        self.two = BasicBlock(12, 16, 2, projected_shortcut, 0.0)
        self.three = WideBlock(16, 16, 1, 0.0)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.three(self.two(self.one(self.stem(x)))).mean((2, 3)))


class Strange(nn.Module):
    """Norms over channels, attention, a recurrent layer, a fixed view: all is kept."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = conv(3, 8), nn.GroupNorm(2, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.line, self.layer_norm = nn.Linear(8, 8), nn.LayerNorm(8)
        self.memory, self.head = nn.LSTM(8, 6, batch_first=True), nn.Linear(6, 4)
        self.scale = nn.Parameter(torch.rand(8, 1, 1))

    def forward(self, x):
        x = self.norm(self.stem(x)) * self.scale
        x = x.view(-1, 8, 64).transpose(1, 2)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        x = self.layer_norm(F.relu(self.line(x)))
        return self.head(self.memory(x)[0][:, -1])


def vgg():
    return nn.Sequential(
        conv(3, 8), nn.BatchNorm2d(8), nn.ReLU(inplace=True), conv(8, 12), nn.ReLU(),
        nn.MaxPool2d(3, 2, 1), conv(12, 12, padding_mode="circular"), nn.BatchNorm2d(12), nn.ELU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.3), nn.Linear(48, 16),
        nn.BatchNorm1d(16), nn.Sigmoid(), nn.Linear(16, 4),
    )  # fmt: skip


def signal():
    return nn.Sequential(
        nn.Conv1d(3, 8, 3, padding=2), nn.Softplus(), nn.AvgPool1d(2), nn.ConvTranspose1d(8, 6, 2),
        nn.PReLU(), nn.Upsample(scale_factor=2, mode="linear"), nn.Conv1d(6, 6, 3), nn.Tanh(),
        nn.Flatten(2), nn.AdaptiveMaxPool1d(2), nn.Flatten(), nn.Linear(12, 4),
    )  # fmt: skip


def mlp():
    return build_network("mlp", input_shape=(3, 8, 8), num_outputs=4, hidden=(24, 16, 12))


def resnet20():
    return build_network("resnet20", input_shape=(3, 8, 8), num_outputs=4)


NETS = {
    "mlp": mlp, "vgg": vgg, "concatenation": Concatenation, "residual": Residual, "mobile": Mobile,
    "stages": Stages, "strange": Strange, "resnet20": resnet20, "signal": signal,
    "lenet5": lambda: build_network("lenet5", input_shape=(3, 12, 12), num_outputs=4),
}  # fmt: skip
every_net = pytest.mark.parametrize("name", NETS)


def inputs_of(name, batch=3):
    shape = {"signal": (3, 12), "lenet5": (3, 12, 12)}.get(name, (3, 8, 8))
    return torch.randn(batch, *shape)


def lively(net):
    """Norms and biases as after training, and weights that make up for those that will go."""
    for module in net.modules():
        if isinstance(module, nn.Linear | nn.modules.conv._ConvNd):
            nn.init.normal_(module.weight, 0, 2 * module.weight[0].numel() ** -0.5)
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.normal_(module.weight, 1, 0.3)
            if module.running_mean is not None:
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)
        if getattr(module, "bias", None) is not None and isinstance(module.bias, nn.Parameter):
            nn.init.normal_(module.bias)
    return net


@torch.no_grad()
def settled(model, x):
    """Norms with the statistics of their inputs, or almost: signals arrive at the end."""
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    if norms:
        with drawing_by(model, "mean"):
            model.train()(x)
    for norm in norms:
        norm.running_var.clamp_min_(0.01)
        norm.running_mean.add_(torch.randn_like(norm.running_mean) / 10)
    return model


def bayesian(net, **options):
    model = pb.bayesianize_(lively(net), prior_std=0.3, std_init=0.2, **options)
    for _, posterior in named_posteriors(model):
        posterior.log_std.data.add_(torch.randn(posterior.shape) / 3)
    return model


def drop_(model, share=0.5, sides=("output", "input"), dead=None):
    """Takes whole outputs and inputs, at random, out of every posterior.

    `dead`: by the length of an axis; then these, as if channels of a whole stream had died.
    """
    for name, q in list(named_posteriors(model)):
        there = torch.ones(q.shape, dtype=torch.bool)
        for axis, side in enumerate(("output", "input")[: there.dim()]):
            length = q.shape[axis]
            if side in sides and length > 4:
                gone = torch.rand(length) < share
                gone = gone if dead is None else dead.setdefault(length, gone)
                there.transpose(0, axis)[gone] = False
        if not there.all() and there.any():
            index = there.flatten().nonzero().flatten()
            replace_posterior(model, name, as_packed(q, index, "none"))
    return model


@torch.no_grad()
def means(model, *x):
    with drawing_by(model, "mean"):
        return copy.deepcopy(model).eval()(*x)


@torch.no_grad()
def plus_one_std(model, x, monkeypatch):
    """The output when every noise is 1: what each layer's variances make of it."""
    with monkeypatch.context() as patch:
        patch.setattr(estimators, "normal_like", torch.ones_like)
        patch.setattr(gaussian, "normal_like", torch.ones_like)
        with drawing_by(model, "lrt"):
            return copy.deepcopy(model).eval()(*(x if isinstance(x, tuple) else (x,)))


def width(model):
    return sum(q.shape.numel() for _, q in named_posteriors(model))


def assert_same(small, model, x, monkeypatch, varies=0.0):
    assert means(model, x).std(0).max() >= varies
    torch.testing.assert_close(means(small, x), means(model, x), rtol=1e-5, atol=1e-5)
    noisy = (plus_one_std(m, x, monkeypatch) for m in (small, model))
    torch.testing.assert_close(*noisy, rtol=1e-4, atol=1e-4)


@every_net
@pytest.mark.parametrize(
    ("seed", "sides"), [(1, ("output",)), (2, ("input",)), (3, ("output", "input"))]
)
def test_the_distribution_of_outputs_stays(name, seed, sides, monkeypatch):
    torch.manual_seed(seed)
    model = settled(drop_(bayesian(NETS[name]()), 0.4, sides), inputs_of(name, 16))
    small = pb.shrink(model, inputs_of(name))
    assert_same(small, model, inputs_of(name, 5), monkeypatch)


@every_net
def test_channels_that_died_everywhere_go_everywhere(name, monkeypatch):
    model = bayesian(NETS[name]())
    model = settled(drop_(model, 0.6, dead={}), inputs_of(name, 16))
    small = pb.shrink(model, inputs_of(name))
    assert_same(small, model, inputs_of(name, 5), monkeypatch, varies=0.02)
    assert width(small) < (1.01 if name == "strange" else 0.7) * width(model)


def test_noise_of_biases_and_shifts_is_no_constant(monkeypatch):
    model, x = drop_(bayesian(vgg(), bias=True)), inputs_of("vgg")
    small = pb.shrink(model, x)
    assert_same(small, model, x, monkeypatch)
    assert width(small) < width(model)


def two_layers(bias=(0.0, 2.0, -1.0, 4.0)):
    """Four units, of which only the first reads anything."""
    net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    net[0].bias.data = torch.tensor(bias)
    model = pb.bayesianize_(net, prior_std=0.3, std_init=0.1)
    q = model[0]._posteriors["weight"]
    replace_posterior(model, "0.weight", as_packed(q, torch.tensor([0, 1]), "none"))
    return model


def test_one_constant_stands_for_all():
    """relu(bias) is 2, 0 and 4: the last stays, and takes over half a weight of the first."""
    model = two_layers()
    mean, variance = (t.detach()[0] for t in model[2]._posteriors["weight"].moments())
    small = pb.shrink(model, torch.zeros(1, 2))
    assert (small[0].out_features, small[2].in_features) == (2, 2)
    assert small[0].bias.tolist() == [0.0, 4.0]
    new_mean, new_variance = (t.detach()[0] for t in small[2]._posteriors["weight"].moments())
    torch.testing.assert_close(new_mean, torch.stack([mean[0], mean[3] + mean[1] / 2]))
    torch.testing.assert_close(
        new_variance, torch.stack([variance[0], variance[3] + variance[1] / 4])
    )
    assert float(small[2]._posteriors["weight"].prior_std) == pytest.approx(0.3)


def test_units_that_are_zero_go_without_a_trace():
    small = pb.shrink(two_layers((0.5, 0.0, -1.0, -2.0)), torch.zeros(1, 2))
    assert (small[0].out_features, small[2].in_features) == (1, 1)
    assert type(small[0]._posteriors["weight"]) is Gaussian  # no weight is missing any more


def test_a_unit_with_a_random_bias_stays():
    net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    model = pb.bayesianize_(net, bias=True)
    q = model[0]._posteriors["weight"]
    replace_posterior(model, "0.weight", as_packed(q, torch.tensor([0, 1]), "none"))
    assert pb.shrink(model, torch.zeros(1, 2))[0].out_features == 4
    bias = as_packed(model[0]._posteriors["bias"], torch.tensor([0, 2]), "none")
    replace_posterior(model, "0.bias", bias)
    small = pb.shrink(model, torch.zeros(1, 2))
    assert small[0].out_features == 2
    torch.testing.assert_close(small[0]._posteriors["bias"].mean, bias.mean)


@pytest.mark.parametrize(
    ("between", "left"),
    [
        (nn.Identity(), 2), (nn.MaxPool2d(3, 1, 1), 2), (nn.AvgPool2d(2), 2),
        (nn.AvgPool2d(3, 1, 1, count_include_pad=False), 2), (nn.AvgPool2d(3, 1, 1), 4),
        (nn.ZeroPad2d(1), 4), (nn.ReflectionPad2d(1), 2), (nn.ConstantPad2d(1, 3.0), 5),
        (nn.Upsample(scale_factor=2, mode="bilinear"), 2), (nn.LPPool2d(2, 2), 5),
        (nn.BatchNorm2d(5, track_running_stats=False), 5), (nn.PReLU(5), 2), (nn.PReLU(), 2),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_constants_stay_so_where_borders_are_not_mixed_in(between, left, monkeypatch):
    """Constants 2, 0, 3 and 1 beside one live channel: one stands for all, or they stay."""
    net = nn.Sequential(conv(2, 5), nn.ReLU(), between, conv(5, 2), nn.Flatten())
    model, x = bayesian(net), torch.randn(3, 2, 6, 6)
    model[0].bias.data = torch.tensor([0.1, 2.0, -1.0, 3.0, 1.0])
    kept = as_packed(model[0]._posteriors["weight"], torch.arange(18), "none")
    replace_posterior(model, "0.weight", kept)
    small = pb.shrink(model, x)
    assert_same(small, model, x, monkeypatch, varies=0.02)
    assert (small[0].out_channels, small[3].in_channels) == (left, left)


class Between(nn.Module):
    """A convolution, any function, and a layer that reads what it makes."""

    def __init__(self, function):
        super().__init__()
        self.stem, self.function = conv(3, 8), function
        made = function(F.relu(self.stem(torch.randn(3, 3, 8, 8)))).flatten(1)
        self.head = nn.Linear(made.shape[1], 4)

    def forward(self, x):
        return self.head(self.function(F.relu(self.stem(x))).flatten(1))


@pytest.mark.parametrize(
    ("function", "whole"),
    [
        (lambda x: x[:, :5], True), (lambda x: x[:, 3], True), (lambda x: x[1:, :, ::2], False),
        (lambda x: x.view(-1, 512), True), (lambda x: x.view(x.size(0), 8, 64), True),
        (lambda x: x.view(x.shape[0], x.shape[1], 64), False), (lambda x: x.flatten(0, 1), True),
        (lambda x: x.reshape((x.size(0), -1)), False), (lambda x: x.permute(0, 2, 3, 1), False),
        (lambda x: x.chunk(2, 1)[0], False), (lambda x: F.softmax(x, 1), True),
        (lambda x: x.squeeze(), False), (lambda x: x.mean(3).squeeze(0), False),
        (lambda x: x.sum(1, keepdim=True), True), (lambda x: x.mean(0), True),
        (lambda x: x.amax((2, 3), keepdim=True).squeeze(3).unsqueeze(1), False),
        (lambda x: F.pad(x, (0, 0, 0, 0, 1, 1)), False), (lambda x: F.pad(x, (1, 2)), False),
        (lambda x: torch.stack([x, x], 1), False), (lambda x: x.size(1) * x, True),
        (lambda x: F.glu(x, 1), True), (lambda x: x.repeat(1, 2, 1, 1), False),
        (lambda x: torch.cat([x, 2 - x], 1), False), (lambda x: torch.cat([x, x], 2), False),
        (lambda x: x + x[:, :1], True), (lambda x: x * x.mean((2, 3), keepdim=True), False),
        (lambda x: F.max_pool1d(x.flatten(2).mean(2), 3, 1, 1), True),
    ],
)  # fmt: skip
def test_functions_of_all_kinds_are_followed_or_keep_all(function, whole, monkeypatch):
    model, x = drop_(bayesian(Between(function)), sides=("output",)), torch.randn(3, 3, 8, 8)
    model.stem.bias.data[::2].neg_()
    small = pb.shrink(model, x)
    assert_same(small, model, x, monkeypatch)
    assert (small.stem.out_channels == 8) == whole


def test_what_a_zero_is_multiplied_with_goes_with_it():
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4))
    gate = nn.Linear(3, 8)

    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.gate = net, gate

        def forward(self, x):
            return self.net[2](self.net[1](self.net[0](x)) * self.gate(x).sigmoid())

    model = bayesian(Gated())
    kept = as_packed(model.net[0]._posteriors["weight"], torch.arange(6), "none")
    replace_posterior(model, "net.0.weight", kept)
    model.net[0].bias.data.fill_(-1.0)
    small = pb.shrink(model, torch.randn(2, 3))
    assert small.gate.out_features == small.net[2].in_features == 2


def test_a_channel_with_a_random_shift_stays(monkeypatch):
    net = nn.Sequential(conv(2, 4, bias=False), nn.BatchNorm2d(4), nn.ReLU(), conv(4, 2))
    model, x = bayesian(net, bias=True), torch.randn(3, 2, 6, 6)
    kept = as_packed(model[0]._posteriors["weight"], torch.arange(18), "none")
    replace_posterior(model, "0.weight", kept)
    assert pb.shrink(model, x)[0].out_channels == 4
    shift = as_packed(model[1]._posteriors["bias"], torch.tensor([0, 2]), "none")
    replace_posterior(model, "1.bias", shift)
    model[1].running_mean.fill_(0.0)
    small = pb.shrink(model, x)
    assert small[0].out_channels == 2
    assert_same(small, model, x, monkeypatch)


def test_what_nothing_reads_goes_and_what_only_that_read():
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2))
    model = pb.bayesianize_(net)
    last = as_packed(model[4]._posteriors["weight"], torch.tensor([1, 5]), "none")  # reads unit 1
    replace_posterior(model, "4.weight", last)
    middle = as_packed(model[2]._posteriors["weight"], torch.tensor([3, 7, 9, 14]), "none")
    replace_posterior(model, "2.weight", middle)  # whose unit 1 reads units 2 and 4
    small = pb.shrink(model, torch.zeros(1, 3))
    assert [tuple(q.shape) for _, q in named_posteriors(small)] == [(2, 3), (1, 2), (2, 1)]
    torch.testing.assert_close(small[2]._posteriors["weight"].mean[0], middle.mean[1:3])


def without_half(q, family):
    """A posterior of this family of which every second input, or most outputs, are gone."""
    if family == "gaussian":
        return q
    rows, columns = q.shape
    index = torch.arange(0, columns, 2)  # inputs, or weights or blocks of the first outputs
    if family in ("channel", "block16"):
        return as_packed(q, index, family)
    packed = as_packed(q, torch.arange(columns * max(1, rows // 3)), "none")
    packed = packed if family == "sparse" else as_point(packed)
    return Point(packed.expectation().detach(), q.prior_std) if family == "point" else packed


@pytest.mark.parametrize(
    ("family", "allowed"),
    [
        ("gaussian", {Gaussian}), ("sparse", {Gaussian, Sparse}), ("channel", {Gaussian, Sparse}),
        ("block16", {Gaussian, Sparse}), ("point", {Point}), ("sparse_point", {Point, SparsePoint}),
    ],
)  # fmt: skip
def test_families_stay_what_they_are(family, allowed, monkeypatch):
    model, x = bayesian(mlp()), inputs_of("mlp")
    for name, q in list(named_posteriors(model)):
        replace_posterior(model, name, without_half(q, family))
    small = pb.shrink(model, x)
    assert_same(small, model, x, monkeypatch)
    found = [q for _, q in named_posteriors(small)]
    assert {type(q) for q in found} <= allowed
    assert all(float(q.prior_std) == pytest.approx(0.3) for q in found)
    assert (width(small) < width(model)) == (family != "gaussian")


def test_zeros_of_a_plain_network_go(monkeypatch):
    net, x = lively(mlp()), inputs_of("mlp")
    net.hidden2.weight.data[3:9] = 0
    small = pb.shrink(net, x)
    assert_same(small, net, x, monkeypatch, varies=0.02)
    assert small.hidden2.out_features <= 11
    assert not hasattr(small, "pocketbayes_network")


@every_net
def test_where_everything_is_dead_one_channel_stays(name, monkeypatch):
    model = bayesian(NETS[name]())
    for key, q in list(named_posteriors(model)):
        replace_posterior(model, key, Point(torch.zeros(q.shape), 0.3))
    small = pb.shrink(model, inputs_of(name))
    assert_same(small, model, inputs_of(name), monkeypatch)
    assert all(min(q.shape) > 0 for _, q in named_posteriors(small))
    if name == "mlp":
        assert [tuple(q.shape) for _, q in named_posteriors(small)] == [
            (1, 192),
            (1, 1),
            (1, 1),
            (4, 1),
        ]


@every_net
def test_where_nothing_is_dead_nothing_changes(name):
    model = bayesian(NETS[name]())
    small = pb.shrink(model, inputs_of(name))
    assert state_equal(small, model)


def state_equal(one, other):
    state, others = one.state_dict(), other.state_dict()
    return state.keys() == others.keys() and all(torch.equal(state[k], others[k]) for k in state)


def test_the_given_model_is_left_alone_whatever_its_mode():
    model = drop_(bayesian(vgg())).train()
    model[0].eval()
    before, x = copy.deepcopy(model), inputs_of("vgg")
    noise = torch.get_rng_state()
    small = pb.shrink(model, x)
    assert state_equal(model, before)
    assert torch.equal(torch.get_rng_state(), noise)
    modes = [m.training for m in before]
    assert [m.training for m in model] == modes == [m.training for m in small]
    assert {m._posteriors.estimator for m in (small[0], small[3], model[0])} == {"lrt"}


def test_frozen_parameters_stay_frozen():
    model = drop_(bayesian(mlp()))
    model.hidden2._posteriors["weight"].log_std.requires_grad_(False)
    small = pb.shrink(model, inputs_of("mlp"))
    q = small.hidden2._posteriors["weight"]
    assert q.mean.requires_grad
    assert not q.log_std.requires_grad


class Reused(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.twice, self.tied = nn.Linear(3, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.other, self.head = nn.Linear(8, 6), nn.Linear(6, 4)
        self.tied.weight = self.twice.weight

    def forward(self, x, mask=None, scale=2.0):
        x = x.size(1) * self.stem(x) * scale
        x = x if mask is None else x * mask
        x = F.relu(self.tied(self.twice(F.relu(self.twice(x)))))
        return {"logits": self.head(F.relu(self.other(x))), "features": x}


def test_layers_used_twice_are_left_whole_but_others_not():
    model, x = drop_(bayesian(Reused())), torch.randn(5, 3)
    small = pb.shrink(model, x)
    torch.testing.assert_close(means(small, x), means(model, x), rtol=1e-5, atol=1e-5)
    assert small.twice._posteriors["weight"] is small.tied._posteriors["weight"]
    assert small.stem.out_features == 8
    assert small.other.out_features < 6


class Overwriting(nn.Module):
    """In place, under several names, and read again afterwards."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(8, 8) for _ in range(3))
        self.drop, self.act, self.head = nn.Dropout(0.5), nn.ReLU(inplace=True), nn.Linear(24, 4)

    def forward(self, x, y):
        x = self.first(x.mul_(2))
        alias = self.drop(x)
        self.act(alias)
        y = self.second(y)
        y[:, 2:4].fill_(1.0)
        y += x
        z = self.third(x**2 + F.relu(y, inplace=True))
        z.flatten(1).sub_(1)
        return self.head(torch.cat((torch.tanh(z), y, 1 - x), dim=-1))


@pytest.mark.parametrize("seed", range(5))
def test_what_is_overwritten_in_place_is_seen_by_all_its_names(seed, monkeypatch):
    torch.manual_seed(seed)
    model, x = drop_(bayesian(Overwriting()), dead={}), (torch.randn(4, 8), torch.randn(4, 8))
    given = x[0].clone()
    small = pb.shrink(model, x)
    assert torch.equal(x[0], given)
    one, other = (means(m, x[0].clone(), x[1]) for m in (small, model))
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    noisy = (plus_one_std(m, (given.clone(), x[1]), monkeypatch) for m in (small, model))
    torch.testing.assert_close(*noisy, rtol=1e-4, atol=1e-4)
    assert width(small) < width(model)


class Normalising(nn.Sequential):
    def forward(self, x):
        return super().forward((x - torch.tensor([1.0, 2.0, 3.0])) / 2) + torch.ones(8)


def test_constant_tensors_are_no_obstacle():
    model, x = drop_(bayesian(Normalising(nn.Linear(3, 8), nn.Linear(8, 8)))), torch.randn(4, 3)
    small = pb.shrink(model, x)
    torch.testing.assert_close(means(small, x), means(model, x), rtol=1e-5, atol=1e-5)
    assert small[0].out_features < 8
    assert vars(small).keys() == vars(model).keys()


class Choosing(nn.Sequential):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else x


class OnlyInTraining(nn.Sequential):
    def forward(self, x):
        return super().forward(x.relu() if self.training else x)


class ReadingWeights(nn.Sequential):
    def forward(self, x):
        return F.linear(super().forward(x), self[1].weight.T[:3])


@pytest.mark.parametrize(("net", "left"), [(Choosing, 8), (OnlyInTraining, 4), (ReadingWeights, 8)])
def test_whatever_code_runs_around_layers_is_followed(net, left, monkeypatch):
    model = bayesian(net(nn.Linear(3, 8), nn.Linear(8, 8)))
    kept = as_packed(model[0]._posteriors["weight"], torch.arange(12), "none")
    replace_posterior(model, "0.weight", kept)
    model[0].bias.data[4:] = 0
    x = torch.rand(2, 3)
    small = pb.shrink(model, x)
    assert_same(small, model, x, monkeypatch)
    assert small[0].out_features == left


def test_inclusion_variables_ensembles_and_wrong_examples_are_refused():
    model, x = bayesian(mlp()), inputs_of("mlp")
    with pytest.raises(PocketBayesError, match=r"torch\.nn\.Module"):
        pb.shrink(x, x)
    with pytest.raises(PocketBayesError, match="example"):
        pb.shrink(model, torch.zeros(2, 5))
    ensemble = pb.fit(model, loader(x), pb.DeepEnsemble(members=2), epochs=1).model
    with pytest.raises(PocketBayesError, match="members"):
        pb.shrink(ensemble, x)
    pb.fit(model, loader(x), pb.SpikeSlab(granularity="output"), epochs=1)
    with pytest.raises(PocketBayesError, match="prune_"):
        pb.shrink(model, x)


class Random(nn.Sequential):
    def forward(self, x):
        return super().forward(F.dropout(x, 0.5, True))


def test_what_cannot_be_compared_is_said_to_be_so():
    layers = [nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4)]
    with pytest.raises(PocketBayesError, match="draws random numbers of its own"):
        pb.shrink(drop_(bayesian(Random(*layers))), torch.randn(64, 3))
    model = drop_(bayesian(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4))))
    with pytest.raises(PocketBayesError, match="not numbers, of this example"):
        pb.shrink(model, torch.full((2, 3), torch.nan))


@pytest.mark.parametrize(
    ("example", "said"),
    [
        (torch.zeros(0, 3), "is empty"),
        ((torch.zeros(2, 3), torch.zeros(2)), "without targets"), ((), "does not take the example"),
        (None, "pass a batch"),
    ],
)  # fmt: skip
def test_wrong_examples_are_told_from_right_ones(example, said):
    model = drop_(bayesian(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4))))
    with torch.no_grad():
        model[0].bias.fill_(1.0)
    pb.shrink(model, torch.randn(1, 3))
    with pytest.raises(PocketBayesError, match=said) as caught:
        pb.shrink(model, example)
    assert "tlparse" not in str(caught.value)


def loader(x, classes=4):
    return [(x, torch.arange(len(x)) % classes)] * 2


@pytest.mark.parametrize(
    "method", [pb.SpikeSlab(granularity="output"), pb.SpikeSlab(granularity="input"),
               pb.Subspace(density=0.3, structure="channel"), pb.RigL(density=0.05)],
    ids=["output", "input", "channel", "rigl"],
)  # fmt: skip
def test_after_training_it_predicts_trains_and_stores(method, tmp_path):
    model, x = pb.bayesianize_(mlp()), inputs_of("mlp", 16)
    pb.fit(model, loader(x), method, epochs=1)
    if isinstance(method, pb.SpikeSlab):
        for _, q in named_posteriors(model):  # as if it had been trained for longer
            q.log_odds.data.normal_()
        pb.prune_(model, density=0.3)
    small = pb.shrink(model, x)
    torch.testing.assert_close(means(small, x), means(model, x), rtol=1e-5, atol=1e-5)
    assert width(small) < width(model)
    assert pb.predict(small, x, num_samples=3).probs.shape == (16, 4)
    assert 0 <= pb.evaluate(small, loader(x), num_samples=2).accuracy <= 1
    pb.fit(small, loader(x), pb.MeanField(), epochs=1)
    pb.save(small, tmp_path / "small.pocket", lossless=True)
    hidden = [small.get_submodule(f"hidden{i}").out_features for i in (1, 2, 3)]
    net = build_network("mlp", input_shape=(3, 8, 8), num_outputs=4, hidden=hidden)
    assert state_equal(pb.load(tmp_path / "small.pocket", net), small)
    assert state_equal(pb.load(tmp_path / "small.pocket", mlp()), small)


def test_a_file_names_no_network_and_fills_a_plain_one_of_its_form(tmp_path):
    model = settled(drop_(bayesian(resnet20()), dead={}), inputs_of("resnet20", 16))
    update_description(model, class_names=tuple("abcd"), likelihood="categorical")
    twin, state = resnet20(), model.state_dict()
    for name, parameter in [*twin.named_parameters(), *twin.named_buffers()]:
        known = dict(named_posteriors(model)).get(name)
        parameter.data = state[name].clone() if known is None else known.expectation().detach()
    small, net = (pb.shrink(m, inputs_of("resnet20")) for m in (model, twin))
    pb.save(small, tmp_path / "small.pocket", lossless=True)
    with pytest.raises(pb.FormatError, match=r"load\(path, net\)"):
        pb.load(tmp_path / "small.pocket")
    assert state_equal(pb.load(tmp_path / "small.pocket", resnet20()), small)
    again = pb.load(tmp_path / "small.pocket", net)
    assert state_equal(again, small)
    assert describe(again).class_names == tuple("abcd")
    assert describe(again).network is None
    assert describe(model).network["name"] == "resnet20"
    assert torch.equal(means(again, inputs_of("resnet20")[:0]), torch.zeros(0, 4))


def test_layers_of_shared_weights_stay_whole():
    model, x = pb.bayesianize_(mlp()), inputs_of("mlp", 16)
    pb.fit(model, loader(x), pb.Sharing(components=8, least_members=1), epochs=1)
    model.hidden2.bias.data.fill_(-1e9)
    assert state_equal(pb.shrink(model, x), model)


def test_constants_do_not_pass_dropout_that_stays_on(monkeypatch):
    net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 1))
    model, x = pb.bayesianize_(net), torch.randn(4, 2)
    pb.fit(model, [(x, torch.randn(4, 1))], pb.MCDropout(), likelihood="gaussian", epochs=1)
    model[0].bias.data = torch.tensor([0.0, 2.0, -1.0, 4.0])
    model[0]._posteriors["weight"].mean.data[1:] = 0
    small = pb.shrink(model, x)
    assert small[0].out_features == 3  # that of -1 is 0, dropped or not
    assert pb.predict(small, x, num_samples=3).mean.shape == (4, 1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_types_and_memory_formats_stay(dtype):
    model = drop_(bayesian(vgg())).to(dtype).to(memory_format=torch.channels_last)
    x = inputs_of("vgg").to(dtype).to(memory_format=torch.channels_last)
    plain = lively(vgg()).to(memory_format=torch.channels_last)
    plain[3].weight.data[3:] = 0
    small = pb.shrink(plain, inputs_of("vgg"))
    assert small[6].weight.is_contiguous(memory_format=torch.channels_last)
    assert small[6].weight.shape[1] < 12
    small = pb.shrink(model, x)
    assert small[0]._posteriors["weight"].mean.dtype == dtype
    rough = 1e-9 if dtype == torch.float64 else 0.1
    torch.testing.assert_close(means(small, x), means(model, x), rtol=rough, atol=rough)


def test_residual_networks_lose_channels_of_their_streams(monkeypatch):
    """Those of the first stage are the middle of the second's, and so on."""
    last = torch.arange(64) % 4 != 1
    model = bayesian(resnet20())
    drop_(model, dead={64: last, 32: last[16:48], 16: last[24:40]})
    settled(model, inputs_of("resnet20", 16))
    small = pb.shrink(model, inputs_of("resnet20"))
    assert_same(small, model, inputs_of("resnet20"), monkeypatch, varies=0.02)
    assert small.conv1.out_channels <= 6  # 4 live, and at most 2 that stand for constants
    assert small.layer3[0].shortcut.before <= 6
    assert small.linear.in_features <= 20
    assert width(small) < width(model) / 8


def test_a_network_with_few_channels_left_is_faster():
    """About 1/8 of the channels: some 30 times fewer products; 1.5 times faster is asked for."""
    net = nn.Sequential(
        conv(3, 128), nn.ReLU(), *(m for _ in range(3) for m in (conv(128, 128), nn.ReLU()))
    )
    model = drop_(
        bayesian(nn.Sequential(net, nn.Flatten(), nn.Linear(128 * 64, 4))), 0.87, ("output",)
    )
    x = inputs_of("vgg", 16)
    small = pb.shrink(model, x)
    assert fastest(small, x) * 1.5 < fastest(model, x)


@torch.no_grad()
def fastest(model, x):
    times = []
    for _ in range(5):
        start = time.perf_counter()
        model(x)
        times.append(time.perf_counter() - start)
    return min(times)


def test_a_sum_over_positions_is_no_constant_at_other_sizes():
    class Summing(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = nn.Conv2d(1, 4, 1), nn.Linear(4, 2)

        def forward(self, x):
            return self.head(torch.sigmoid(0.1 * self.conv(x).sum((2, 3))))

    torch.manual_seed(0)
    model = Summing()
    with torch.no_grad():
        model.conv.weight[:3] = 0
    small = pb.shrink(model, torch.randn(2, 1, 4, 4))
    x = torch.randn(2, 1, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(small(x), model(x))


class Pooled(nn.Module):
    """Three channels of constants, an average over windows, and layers of any size after it."""

    def __init__(self, pool):
        super().__init__()
        self.stem, self.pool, self.head = conv(1, 4), pool, nn.Conv2d(4, 3, 1)
        with torch.no_grad():
            self.stem.weight[1:] = 0
            self.stem.bias.copy_(torch.tensor([0.1, 1.0, 2.0, 6.0]))

    def forward(self, x):
        return self.head(torch.sigmoid(self.pool(self.stem(x)))).mean((2, 3))


@pytest.mark.parametrize(
    ("pool", "left"),
    [
        (nn.AvgPool2d(3, 2, 1), 4), (lambda x: F.avg_pool2d(x, 3, 2, 1), 4),
        (lambda x: F.avg_pool2d(x, 3, 2, padding=(1, 1)), 4),
        (nn.AvgPool2d(2, 2, (0, 1)), 4), (nn.AvgPool2d(3, 2, 1, divisor_override=2), 4),
        (nn.AvgPool2d(3, 2, 1, False, False, 2), 4),
        (nn.AvgPool2d(2, 2, ceil_mode=True, divisor_override=2), 4),
        (nn.AvgPool2d(3, 2, 1, count_include_pad=False), 2),
        (lambda x: F.avg_pool2d(x, 3, 2, 1, False, False), 2), (nn.AvgPool2d(2, 1), 2),
        (nn.AvgPool2d(2, 2, ceil_mode=True), 2), (nn.AvgPool2d(2, 1, divisor_override=3), 2),
    ],
)  # fmt: skip
def test_an_average_that_counts_padding_is_no_constant_at_other_sizes(pool, left):
    torch.manual_seed(0)
    model = Pooled(pool)
    for example in (2, 3, 8):
        small = pb.shrink(model, torch.randn(2, 1, example, example))
        assert small.stem.out_channels == left, example
        for size in (2, 3, 7, 8):
            x = torch.randn(2, 1, size, size)
            with torch.no_grad():
                torch.testing.assert_close(small(x), model(x))


class Zeros(Pooled):
    def __init__(self):
        super().__init__(nn.AvgPool2d(3, 2, 1))
        with torch.no_grad():
            self.stem.bias[1:] = 0

    def forward(self, x):
        return self.head(self.pool(self.stem(x)))


def test_a_padded_average_of_zeros_is_zero_at_every_size():
    assert pb.shrink(Zeros(), torch.randn(2, 1, 4, 4)).stem.out_channels == 1


def test_a_constant_among_live_channels_stays_exactly_so():
    """Its row of zeros makes the layer sparse, however few they are."""
    net = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 3))
    model = bayesian(net)
    with torch.no_grad():
        model[0].bias.fill_(1.0)
    kept = as_packed(model[0]._posteriors["weight"], torch.arange(6 * 15), "none")
    replace_posterior(model, "0.weight", kept)
    small = pb.shrink(model, torch.randn(4, 6))
    q = small[0]._posteriors["weight"]
    assert (type(q), tuple(q.shape), q.num_active) == (Sparse, (16, 6), 90)
    assert (q.moments()[1][-1] == 0).all()


def test_a_single_layer_stays_as_it_is():
    layer = pb.bayesianize_(nn.Linear(3, 2))
    small = pb.shrink(layer, torch.randn(4, 3))
    assert small is not layer
    assert small.weight.shape == (2, 3)
