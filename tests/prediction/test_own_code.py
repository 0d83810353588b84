"""Networks with code of their own: no draw is lost, nothing dead is left, nobody's mode is taken.

Each of these was wrong when many draws were made at once by what a first trial had seen.
"""

import functools
import random
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

import pocketbayes as pb
from pocketbayes.models import build_network
from pocketbayes.posteriors import Drawing, Gaussian
from pocketbayes.prediction import draws, habits
from pocketbayes.prediction.alone import must_be_alone

OWN = torch.Generator()


class Net(nn.Module):
    """One layer whose weights are as good as certain, so that what differs is its own noise."""

    scale = 0.5
    settings = (1, 2)

    def __init__(self):
        super().__init__()
        self.layer, self.noisy = nn.Linear(4, 3), True

    def forward(self, x):
        y = self.layer(x)
        return y + self.noise(y) if self.noisy else y

    def noise(self, y):
        return 0 * y


class OfTorch(Net):
    def noise(self, y):
        return torch.randn_like(y)


class OfTorchInPlace(Net):
    def noise(self, y):
        return torch.empty(3).uniform_()


class OfFunctional(Net):
    def noise(self, y):
        return F.dropout(y, 0.5, training=True)


class OfDropoutMadeHere(Net):
    def noise(self, y):
        return nn.Dropout(0.5)(y)


class OfNumPy(Net):
    def noise(self, y):
        return float(np.random.randn())


class OfPython(Net):
    def noise(self, y):
        return random.random()


class OfOwnTorch(Net):
    def __init__(self):
        super().__init__()
        self.generator = torch.Generator()

    def noise(self, y):
        return torch.rand(3, generator=self.generator)


class OfGlobalTorch(Net):
    def noise(self, y):
        return torch.rand(3, generator=OWN)


class OfOwnNumPy(Net):
    def __init__(self):
        super().__init__()
        self.tools = {"rng": [np.random.default_rng(0)]}

    def noise(self, y):
        return self.tools["rng"][0].normal()


class OfOwnPython(Net):
    rng = random.Random(0)

    def noise(self, y):
        return getattr(self, "r" + "ng").random()


class OfRareChance(Net):
    def noise(self, y):
        return 1.0 if random.random() < 0.2 else 0.0


class OfClosure(Net):
    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        self.drawn = lambda: rng.normal()

    def noise(self, y):
        return self.drawn()


class OfCount(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def noise(self, y):
        return self.count.add_(1) / 2


class Holder:
    """Something that is no module."""

    def __init__(self):
        self.rng = np.random.default_rng(0)

    def number(self):
        return self.rng.normal()


class OfObject(Net):
    def __init__(self):
        super().__init__()
        self.holder = Holder()

    def noise(self, y):
        return self.holder.number()


OWN_NOISE = [
    OfTorch, OfTorchInPlace, OfFunctional, OfDropoutMadeHere, OfNumPy, OfPython, OfOwnTorch,
    OfGlobalTorch, OfOwnNumPy, OfOwnPython, OfRareChance, OfClosure, OfCount, OfObject,
]  # fmt: skip


def model_of(kind, std=1e-6):
    torch.manual_seed(0)
    return pb.bayesianize_(kind(), std_init=std).eval()


def samples_of(model, x, number=30, estimator="lrt", seed=0):
    given = torch.Generator().manual_seed(seed)
    return pb.predict(model, x, number, given, estimator, keep_samples=True).samples


def spread_of(model, x):
    return samples_of(model, x).std(0).max()


def logits_of(model, x, number=30, seed=0):
    with draws.drawing(model, "lrt", torch.Generator().manual_seed(seed)):
        return draws.draws_of([model] * number, x)


@pytest.mark.parametrize("when", ["at first", "after a prediction without it"])
@pytest.mark.parametrize("kind", OWN_NOISE)
def test_own_noise_is_never_the_same_in_all_draws(kind, when):
    """With a chance of 0.2 it is so in none of 60 draws once in 10^6."""
    model, x = model_of(kind), torch.randn(3, 4)
    if when != "at first":
        model.noisy = False
        assert logits_of(model, x).std(0).max() < 1e-3
        model.noisy = True
    assert logits_of(model, x, 60).std(0).max() > 0.1


@pytest.mark.parametrize("change", ["hook", "submodule", "method", "attribute", "global", "class"])
def test_what_changes_later_is_seen(change, monkeypatch):
    model, x = model_of(Net), torch.randn(3, 4)
    assert logits_of(model, x).std(0).max() < 1e-3

    def noisy(*args):
        return args[-1] + np.random.randn()

    if change == "hook":
        model.layer.register_forward_hook(noisy)
    elif change == "submodule":
        model.layer = nn.Sequential(model.layer, OfNumPyAlone())
    elif change == "method":
        model.noise = lambda y: random.random()
    elif change == "attribute":
        model.noise = functools.partial(noisy, 0)
    elif change == "global":
        model.noise = lambda y: helper(y)
        assert logits_of(model, x).std(0).max() < 1e-3
        monkeypatch.setitem(globals(), "helper", noisy)
    else:
        monkeypatch.setattr(Net, "noise", lambda self, y: noisy(y))
    assert logits_of(model, x).std(0).max() > 0.1


def helper(y):
    return 0 * y


class OfNumPyAlone(nn.Module):
    def forward(self, x):
        return x + np.random.randn()


@pytest.mark.parametrize("kind", [OfTorch, OfFunctional, OfNumPy, OfPython, OfRareChance])
@pytest.mark.parametrize("number", [1, 7])
def test_noise_of_global_generators_repeats_with_the_seed_and_leaves_them(kind, number):
    model, x = model_of(kind), torch.randn(3, 4)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    assert torch.equal(logits_of(model, x, number), logits_of(model, x, number))
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


class Ordinary(nn.Module):
    """What people write, without noise; nobody can know that, so it runs one draw after another."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


class OwnConv(nn.Conv1d):
    def _conv_forward(self, x, weight, bias):
        return super()._conv_forward(x, weight, bias) + np.random.randn()


class OwnGaussian(Gaussian):
    """As one who extends the library may write it."""


def of_own_posterior():
    model = pb.bayesianize_(nn.Sequential(nn.Linear(4, 3)))
    pb.replace_posterior(
        model, "0.weight", OwnGaussian(torch.zeros(3, 4), torch.zeros(3, 4), torch.ones(()))
    )
    return model


def patched():
    model = nn.Sequential(nn.Conv1d(1, 3, 4), nn.Flatten())
    model[0]._conv_forward = lambda x, weight, bias: F.conv1d(x, weight, bias)
    return model


STRANGE = {
    "own class": Ordinary,
    "a method that torch calls": lambda: nn.Sequential(OwnConv(1, 3, 4)),
    "an own posterior": of_own_posterior,
    "a patched layer": patched,
    "an activation": lambda: nn.TransformerEncoderLayer(8, 2, 8, activation=lambda x: x),
    "a layer that draws": lambda: nn.Sequential(nn.Linear(4, 3), nn.FractionalMaxPool2d(2, 1)),
    "scripted": lambda: nn.Sequential(nn.Linear(4, 3), torch.jit.script(nn.ReLU())),
}
KNOWN = {
    "layers": lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)),
    "attention": lambda: nn.TransformerEncoderLayer(8, 2, 8, activation="gelu"),
    "recurrent": lambda: nn.LSTM(4, 3),
    "of the library": lambda: build_network("lenet5", input_shape=(1, 28, 28)),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize("name", [*STRANGE, *KNOWN])
def test_only_what_is_known_runs_many_at_once(name):
    net = (STRANGE | KNOWN)[name]()
    model = net if any(True for _ in pb.named_posteriors(net)) else pb.bayesianize_(net)
    assert must_be_alone(model.eval().modules()) == (name in STRANGE)


def test_layers_run_many_at_once(monkeypatch):
    counts, at_once = [], Drawing.at_once

    def counted(self, count, run):
        counts.append(count)
        return at_once(self, count, run)

    monkeypatch.setattr(Drawing, "at_once", counted)
    model = pb.bayesianize_(KNOWN["layers"](), std_init=0.3).eval()
    assert logits_of(model, torch.randn(3, 4), 30).std(0).min() > 0.01
    assert counts == [30]


@pytest.mark.parametrize("number", [1, 30])
def test_a_layer_that_draws_repeats_with_the_seed(number):
    net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.FractionalMaxPool2d(2, 3), nn.Flatten())
    model, x = pb.bayesianize_(net, std_init=1e-6).eval(), torch.randn(4, 1, 9, 9)
    state = torch.get_rng_state()
    assert torch.equal(logits_of(model, x, number), logits_of(model, x, number))
    assert torch.equal(state, torch.get_rng_state())
    assert not torch.equal(logits_of(model, x, number), logits_of(model, x, number, seed=1))


@pytest.mark.filterwarnings("ignore:nothing says that this model was ever trained")
@pytest.mark.parametrize("estimator", ["moments", "one_pass"])
def test_own_noise_repeats_with_the_seed_by_one_pass_too(estimator):
    model, x = model_of(OfTorch, 0.1), torch.randn(8, 4)
    pb.distill_(model, [x], 1)
    state = torch.get_rng_state()
    first, again = (
        pb.predict(model, x, generator=torch.Generator().manual_seed(1), estimator=estimator).probs
        for _ in range(2)
    )
    assert torch.equal(first, again)
    assert torch.equal(state, torch.get_rng_state())


def test_a_first_prediction_imports_no_compiler():
    code = """
import sys, torch, pocketbayes as pb
pb.predict(pb.bayesianize_(torch.nn.Sequential(torch.nn.Linear(4, 3))), torch.randn(8, 4))
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("number", [1, 30])
def test_draws_are_tried_only_where_there_are_many(number, monkeypatch):
    calls = []
    tried = habits._tried
    monkeypatch.setattr(habits, "_tried", lambda *a: (calls.append(1), tried(*a))[1])
    model = pb.bayesianize_(nn.Sequential(nn.Linear(4, 3)))
    for _ in range(3):
        logits_of(model, torch.randn(2, 4), number)
    assert len(calls) == (number > 1)


class Keeping(nn.Module):
    """Keeps what it saw, in one way or another."""

    def __init__(self, how):
        super().__init__()
        self.layer, self.how = nn.Linear(4, 3), how
        self.list, self.dict, self.last = [], {}, None

    def forward(self, x):
        y = self.layer(x)
        keep(self, self.how, y)
        return y


def keep(module, how, y):
    if how == "attribute":
        module.last = y
    elif how == "setattr":
        setattr(module, "last", y)  # noqa: B010
    elif how == "list":
        module.list.append((y, 0))
    elif how == "dict":
        module.dict["y"] = [y]
    else:
        vars(module)["last"] = y


def kept_by(model):
    return [t for t in (model.last, *(p[0] for p in model.list), *model.dict.get("y", []))
            if t is not None]  # fmt: skip


@pytest.mark.parametrize("how", ["attribute", "setattr", "list", "dict", "vars"])
def test_what_a_network_keeps_is_alive(how):
    model, x = pb.bayesianize_(Keeping(how), std_init=0.3).eval(), torch.randn(5, 4)
    logits_of(model, x)
    assert kept_by(model)
    for tensor in kept_by(model):
        assert tensor.shape == (5, 3)
        assert (tensor + 1).isfinite().all()


class Frozen(nn.Module):
    """Its `train` keeps one part in evaluation mode, its `eval` another one in training."""

    def __init__(self):
        super().__init__()
        self.norm, self.drop, self.layer = nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3)
        self.evaluated = 0

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        self.drop.train()
        self.evaluated += not mode
        return self

    def forward(self, x):
        return self.layer(self.drop(self.norm(x)))


@pytest.mark.parametrize("mode", [True, False])
def test_train_and_eval_of_its_own_are_called(mode):
    model, x = pb.bayesianize_(Frozen(), std_init=1e-6).train(mode), torch.randn(3, 4)
    before = {name: m.training for name, m in model.named_modules()}
    model.evaluated = 0
    assert spread_of(model, x) > 0.01  # the dropout, which is kept on
    assert model.evaluated == 1
    assert {name: m.training for name, m in model.named_modules()} == before
    assert torch.equal(samples_of(model, x), samples_of(model, x))


class Shaken(Dataset):
    """Examples that are augmented at random, by all generators there are."""

    def __len__(self):
        return 12

    def __getitem__(self, i):
        noise = torch.randn(4) + np.random.randn() + random.random()
        return torch.full((4,), float(i)) + noise.float(), i % 3


def predicted(model, seed):
    loader = DataLoader(Shaken(), batch_size=5, shuffle=True)
    return pb.predict(model, loader, 4, torch.Generator().manual_seed(seed)).probs


def test_a_seed_covers_what_a_loader_draws():
    model = pb.bayesianize_(nn.Sequential(nn.Linear(4, 3)), std_init=0.1)
    before = torch.get_rng_state()
    first = predicted(model, 0)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(5)
    assert torch.equal(predicted(model, 0), first)
    assert not torch.equal(predicted(model, 1), first)


class Counting(nn.Module):
    """Calls something that torch cannot do for many draws at once but one after another."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        y = self.layer(x)
        return y + torch.histc(y, 4).sum()


def test_torch_does_not_warn_of_slow_operations():
    model, x = pb.bayesianize_(Counting(), std_init=0.3), torch.randn(2, 4)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        logits_of(model, x)
        assert not seen
        torch.func.vmap(torch.histc)(torch.randn(2, 4))
        assert any("performance drop" in str(w.message) for w in seen)  # others are still warned


@pytest.mark.parametrize("estimator", ["lrt", "weight"])
def test_the_largest_tensor_bounds_what_is_run_at_once(estimator, monkeypatch):
    """Here the output of a layer in the middle, which no Bayesian layer reads."""
    net = nn.Sequential(nn.Linear(4, 4), nn.Upsample(scale_factor=50), nn.AvgPool1d(50),
                        nn.Linear(4, 3))  # fmt: skip
    model, x = pb.bayesianize_(net), torch.randn(2, 1, 4)
    found = habits.habits_of(model.eval(), x, Drawing(estimator), 30)
    assert found.example_bytes == 4 * 50 * 4
    limits = draws._Limits(10 * 2 * found.example_bytes, 256)
    monkeypatch.setattr(draws, "_AT_ONCE", {"cpu": limits})
    assert draws._how_many_at_once(model, 30, found, x) == 10
