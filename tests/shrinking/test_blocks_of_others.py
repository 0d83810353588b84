"""Blocks in the manner of other libraries, and code that reads widths in odd ways."""

import dataclasses
import warnings

import pytest
import torch
import torch.nn.functional as F
from followed_nets import NormAct, ResidualNet, Scaled, Temporal, UNet
from torch import nn
from torch.nn.utils import weight_norm
from torch.nn.utils.parametrizations import weight_norm as parametrised

import pocketbayes as pb
from pocketbayes.layers import drawing_by, named_posteriors, replace_posterior
from pocketbayes.posteriors import as_packed

NETS = {
    "norm with activation": (ResidualNet, (3, 8, 8), 0.55),
    "scaled block": (Scaled, (3, 8, 8), 0.35),
    "temporal": (lambda: Temporal(nn.Sequential), (3, 20), 0.55),
    "temporal, parametrised": (lambda: Temporal(parametrised), (3, 20), 0.4),
    "instance norms": (UNet, (1, 8, 8), 0.5),
}  # fmt: skip
every_net = pytest.mark.parametrize("name", NETS)
LAYERS = (nn.Linear, nn.modules.conv._ConvNd)


def inputs_of(name, batch=3):
    return torch.randn(batch, *NETS[name][1])


@torch.no_grad()
def half_off_(net):
    """Every second output of layers has no weights, where nothing but another layer reads it."""
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_()
            module.bias.normal_()
        if isinstance(module, LAYERS) and module.weight.shape[0] > 3:
            axis = int(isinstance(module, nn.ConvTranspose2d))
            if hasattr(module, "parametrizations"):
                module.parametrizations.weight.original0[::2] = 0
            else:
                module.weight.transpose(0, axis)[::2] = 0
    return net.eval()


def size(net):
    return sum(p.numel() for p in net.parameters())


def assert_same(small, net, *x):
    with torch.no_grad():
        one, other = small(*x), net(*x)
    assert (one - other).abs().max() <= 1e-5 * other.abs().max()


@every_net
def test_half_of_all_units_go(name):
    torch.manual_seed(0)
    net = half_off_(NETS[name][0]())
    small = pb.shrink(net, inputs_of(name))
    assert_same(small, net, inputs_of(name, 2))
    assert size(small) < (1 - NETS[name][2]) * size(net)
    for module in small.modules():  # what layers say of themselves is so
        if isinstance(module, nn.Conv2d) and module.groups == 1:
            assert module.weight.shape[:2] == (module.out_channels, module.in_channels)
        if isinstance(module, NormAct):
            assert module.num_features == len(module.weight) == len(module.running_mean)


@every_net
def test_where_nothing_is_off_nothing_changes(name):
    torch.manual_seed(0)
    net = NETS[name][0]().eval()
    small = pb.shrink(net, inputs_of(name))
    state, others = small.state_dict(), net.state_dict()
    assert all(torch.equal(state[key], others[key]) for key in others)


@every_net
def test_they_train_on_and_shrink_again(name):
    torch.manual_seed(0)
    small = pb.shrink(half_off_(NETS[name][0]()), inputs_of(name))
    small.train()(inputs_of(name)).square().mean().backward()
    again = pb.shrink(small, inputs_of(name))
    assert size(again) == size(small)


def test_weights_normalised_by_hooks_lose_columns_and_keep_their_norms():
    torch.manual_seed(1)
    with pytest.warns(FutureWarning, match="weight_norm"):
        net = Temporal(weight_norm).eval()
    net.first.weight_g.data[::2] = 0
    net(torch.randn(2, 3, 20))
    small = pb.shrink(net, torch.randn(2, 3, 20))
    assert_same(small, net, torch.randn(2, 3, 20))
    assert small.second.in_channels == small.second.weight_v.shape[1] == 7  # one is a carrier


def test_random_directions_lose_only_what_they_do_not_read():
    torch.manual_seed(2)
    net = Temporal(parametrised)
    net.first.parametrizations.weight.original0.data[:4] = 0
    model, x = pb.bayesianize_(net, prior_std=0.3, std_init=0.1).eval(), torch.randn(2, 3, 20)
    assert pb.shrink(model, x).first.out_channels == 12
    key = "second.parametrizations.weight.original1"
    q = dict(named_posteriors(model))[key]
    there = torch.ones(q.shape, dtype=torch.bool)
    there[:, :3] = False
    replace_posterior(model, key, as_packed(q, there.flatten().nonzero().flatten(), "none"))
    small = pb.shrink(model, x)
    assert small.first.out_channels == 9
    with drawing_by(model, "mean"), drawing_by(small, "mean"):
        assert_same(small, model, x)


class Odd(nn.Module):
    """Two layers, of which the first has eight dead outputs of sixteen, and code between them."""

    def __init__(self, between, bias=0.0):
        super().__init__()
        self.first, self.between, self.shift = (
            nn.Linear(6, 16),
            between,
            nn.Parameter(torch.rand(16)),
        )
        self.last = nn.Linear(between(self, torch.zeros(3, 16)).shape[-1], 4)
        with torch.no_grad():
            self.first.weight[:8], self.first.bias[:8] = 0, bias

    def forward(self, x):
        return self.last(self.between(self, self.first(x)))


def written(_, x):
    made = torch.zeros(len(x), 16)
    made[:, :] = x
    return made


def written_in_part(_, x):
    x[:, 3] = 1.0
    return x


def counted(self, x):
    for _ in range(self.first.weight.shape[0] // 8):
        x = x + 1
    return x


def read_as_numbers(_, x):
    return torch.tensor(x.tolist())


def branched(_, x):
    return x * 2 if float(x.sum()) > -1e9 else x + 1


def scaled_by_a_number(_, x):
    return x.relu() + float(x[0, 12])


@pytest.mark.parametrize(
    ("between", "left"),
    [
        (lambda _, x: x.view(-1, 2, 8).transpose(1, 2).reshape(-1, 16), 16),
        (lambda _, x: x.view(len(x), 4, 4)[:, [3, 2, 1, 0]].flatten(1), 16),
        (lambda _, x: x.unflatten(1, (4, 4)).roll(1, 1).flatten(1), 16),
        (lambda _, x: torch.cat(x.chunk(2, 1)[::-1], 1), 16),
        (lambda _, x: torch.cat(x.split([4, 12], 1), 1), 16),
        (lambda _, x: x[:, torch.arange(15, -1, -1)], 16), (lambda _, x: x.flip(1), 8),
        (lambda _, x: x.sort(1).values, 16), (lambda _, x: F.layer_norm(x, (16,)), 16),
        (lambda _, x: F.group_norm(x, 4), 16), (lambda _, x: x.cumsum(1), 16),
        (lambda _, x: x @ torch.ones(16, 5), 16), (lambda _, x: x * x.shape[1], 16),
        (lambda _, x: x + torch.arange(x.shape[1]), 16),
        (lambda _, x: x.clone().mul_(2).add_(x), 8),
        (lambda self, x: x * self.shift, 8), (lambda self, x: x * self.shift[:8].repeat(2), 16),
        (lambda self, x: x * F.softmax(self.shift, 0), 16),
        (lambda self, x: F.linear(x, self.first.weight.T), 8),
        (lambda self, x: self.first(x[:, 8:14]), 16),
        (lambda _, x: torch.einsum("nc,nc->nc", x, x), 8),
        (lambda _, x: torch.einsum("nc,nd->ncd", x, x).flatten(1), 16),
        (lambda _, x: torch.vmap(lambda row: row * 2)(x), 16),
        (lambda _, x: x.data.double().float(), 8),
        (written, 16), (written_in_part, 16), (counted, 16), (read_as_numbers, 16), (branched, 16),
        (scaled_by_a_number, 16),
    ],
)  # fmt: skip
def test_whatever_is_done_between_layers_the_answers_stay(between, left):
    torch.manual_seed(3)
    net = Odd(between).eval()
    small = pb.shrink(net, torch.randn(3, 6))
    assert_same(small, net, torch.randn(3, 6))
    assert_same(small, net, torch.randn(2, 6))
    assert small.first.out_features == left


@dataclasses.dataclass
class Answer:
    logits: torch.Tensor


class Outside(nn.Module):
    """Hands its output over in an object, or takes its input by name."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 16), nn.Linear(16, 8)
        with torch.no_grad():
            for layer in (self.first, self.last):
                layer.weight[:4], layer.bias[:4] = 0, 0

    def forward(self, *, given):
        return Answer(self.last(self.first(given).relu()))


def test_outputs_in_objects_of_any_class_stay_and_examples_may_have_names():
    net = Outside().eval()
    small = pb.shrink(net, {"given": torch.randn(2, 6)})
    assert (small.first.out_features, small.last.out_features) == (12, 8)
    x = torch.randn(3, 6)
    torch.testing.assert_close(small(given=x).logits, net(given=x).logits)
    with pytest.raises(pb.PocketBayesError, match="does not take the example"):
        pb.shrink(net, {"taken": x})


class Quick(Odd):
    def forward(self, x):
        with torch.inference_mode():
            return super().forward(x)


def test_networks_in_inference_mode_and_compiled_ones_are_no_obstacle():
    torch.manual_seed(4)
    x = torch.randn(3, 6)
    net = Quick(lambda _, x: F.relu(x.add_(1), inplace=True)).eval()
    small = pb.shrink(net, x)
    assert_same(small, net, x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some releases of torch deprecate it
        script = torch.jit.script(nn.ReLU())
    net = Odd(lambda _, x: script(x)).eval()
    assert_same(pb.shrink(net, x), net, x)
    compiled = pb.shrink(torch.compile(Odd(lambda _, x: x.relu()).eval(), backend="eager"), x)
    assert compiled._orig_mod.first.out_features == 8
