"""Many threads predict with one model: each gets, bit for bit, what it would get alone."""

import random
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.layers.description import update_description
from pocketbayes.layers.ensembles import Ensemble
from pocketbayes.posteriors import Blends, Codebook, Outliers, Shared, SpikeSlab

ESTIMATORS = (None, "lrt", "weight", "flipout", "mean")


class Recurrent(nn.Module):
    """The last state of an LSTM."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.LSTM(3, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.body(x)[0][:, -1])


class Attentive(nn.Module):
    """Attention over five places."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.body(x, x, x)[0].mean(1))


class Restless(nn.Module):
    """Draws by itself, from torch's default generator."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x + torch.randn_like(x))


def mlp(dropout=0.0):
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 3))


def convolutional():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 3, 3), nn.Flatten(),
        nn.Linear(12, 3),
    )  # fmt: skip


def sharing(draw):
    model = pb.bayesianize_(mlp())
    made = Codebook(torch.randn(5) / 2, torch.full((5,), -1.5), draw)
    for name, q in list(pb.named_posteriors(model)):
        outliers = Outliers(torch.tensor([2, 5]), torch.ones(2), torch.zeros(2) - 1)
        blends = Blends(torch.tensor([1, 7]), torch.tensor([[0, 1], [2, 4]]), torch.rand(2))
        label = torch.randint(5, (q.shape.numel(),))
        pb.replace_posterior(model, name, Shared(made, label, q.shape, 0.05, outliers, blends))
    return model


def gated(granularity):
    model = pb.bayesianize_(mlp())
    for name, q in list(pb.named_posteriors(model)):
        odds = torch.zeros(q.shape if granularity == "weight" else q.shape[1])
        parts = (q.mean.detach(), q.log_std.detach(), odds, 1.0, torch.tensor(0.0))
        pb.replace_posterior(model, name, SpikeSlab(*parts, granularity, 1))
    return model


def kept_dropout():
    model = pb.bayesianize_(mlp(0.5), std_init=0.2)
    update_description(model, keeps_dropout=True)
    return model


def hooked():
    model = pb.bayesianize_(mlp(), std_init=0.2)
    model[0].register_forward_hook(lambda *_: None)
    return model


MODELS = {
    "lrt": (lambda: pb.bayesianize_(mlp(), std_init=0.2), (4,)),
    "weight": (lambda: pb.bayesianize_(convolutional(), std_init=0.2, estimator="weight"),
               (1, 6, 6)),
    "shared draws": (lambda: sharing("shared"), (4,)),
    "independent draws": (lambda: sharing("independent"), (4,)),
    "gates of weights": (lambda: gated("weight"), (4,)),
    "gates of inputs": (lambda: gated("input"), (4,)),
    "lstm": (lambda: pb.bayesianize_(Recurrent(), std_init=0.2), (4, 3)),
    "attention": (lambda: pb.bayesianize_(Attentive(), std_init=0.2), (5, 4)),
    "dropout": (kept_dropout, (4,)),
    "own noise": (lambda: pb.bayesianize_(Restless(), std_init=0.2), (4,)),
    "hooks": (hooked, (4,)),
    "ensemble": (lambda: Ensemble(pb.bayesianize_(mlp(), std_init=0.2) for _ in range(2)), (4,)),
}  # fmt: skip


def made(name):
    torch.manual_seed(0)
    make, shape = MODELS[name]
    return make(), torch.randn(3, *shape)


def asked(model, x, question, generator=True):
    estimator, seed, rows = question
    given = torch.Generator().manual_seed(seed) if generator else None
    options = {"likelihood": "categorical", "single": False, "keep_samples": True}
    return pb.predict(model, x[:rows], 4, given, estimator, **options)


def state_of(model):
    layers = [m._posteriors.estimator for m in model.modules() if hasattr(m, "_posteriors")]
    codebooks = [m._drawn for m in model.modules() if isinstance(m, Codebook)]
    held = [m._posteriors._held for m in model.modules() if hasattr(m, "_posteriors")]
    return layers, codebooks, held, [m.training for m in model.modules()]


@pytest.fixture(autouse=True)
def hasty():
    """Threads take turns ten times as often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(before / 10)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("name", MODELS)
def test_each_thread_gets_what_it_would_get_alone(name, mode):
    model, x = made(name)
    model.train(mode == "train")
    before, values = state_of(model), {k: v.clone() for k, v in model.state_dict().items()}
    default = torch.get_rng_state()
    questions = [(e, seed, 1 + seed % 3) for e in ESTIMATORS for seed in range(4)]
    alone = {question: asked(model, x, question) for question in questions}
    calls = random.Random(0).choices(questions, k=1000 if (name, mode) == ("lrt", "eval") else 48)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda question: asked(model, x, question), calls))
    different = [
        question for question, pred in zip(calls, found, strict=True)
        if not torch.equal(pred.samples, alone[question].samples)
        or not torch.equal(pred.epistemic, alone[question].epistemic)
    ]  # fmt: skip
    assert not different
    assert state_of(model) == before
    assert all(torch.equal(v, values[k]) for k, v in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), default)


@pytest.mark.parametrize("name", MODELS)
def test_without_a_generator_draws_are_finite_differ_and_are_by_the_estimator(name):
    model, x = made(name)
    before = state_of(model)
    calls = [(estimator, 0, 3) for estimator in ("mean", "lrt", "weight")] * 8
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda q: asked(model, x, q, generator=False), calls))
    assert all(pred.probs.isfinite().all() for pred in found)
    own_noise = name in ("own noise", "ensemble")
    for (estimator, *_), pred in zip(calls, found, strict=True):
        if estimator != "mean":
            assert pred.epistemic.max() > 1e-6
        elif not own_noise:
            assert pred.epistemic.max() < 1e-6
    drawn = [p.probs for (e, *_), p in zip(calls, found, strict=True) if e == "weight"]
    assert len({tuple(probs.flatten().tolist()) for probs in drawn}) == len(drawn)
    assert state_of(model) == before


def test_different_models_are_evaluated_in_different_threads():
    """All without convolutions: on ARM others have oneDNN, which torch switches for all threads."""
    pairs = [made(name) for name in ("lrt", "dropout", "shared draws", "gates of inputs")]
    y = torch.tensor([0, 1, 2])

    def measured(i):
        model, x = pairs[i % len(pairs)]
        given = torch.Generator().manual_seed(i)
        return pb.evaluate(model, [(x, y)], 3, generator=given, likelihood="categorical").nll

    alone = [measured(i) for i in range(40)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(measured, range(40))) == alone


def test_possible_targets_repeat_in_threads():
    model, x = made("lrt")
    pred = asked(model, x, (None, 0, 3))

    def drawn(seed):
        return pred.draw(5, torch.Generator().manual_seed(seed)).tolist()

    alone = [drawn(seed) for seed in range(40)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(drawn, range(40))) == alone


def test_a_thread_that_fails_leaves_the_mode_to_the_others():
    model, x = made("lrt")
    wrong = torch.randn(3, 7)

    def run(i):
        if i % 2:
            return asked(model, x, (None, 0, 3)).samples
        with pytest.raises(pb.DataError, match="cannot run on"):
            pb.predict(model, wrong, 4, single=False)
        return None

    expected = run(1)
    with ThreadPoolExecutor(8) as pool:
        found = [samples for samples in pool.map(run, range(100)) if samples is not None]
    assert all(torch.equal(samples, expected) for samples in found)
    assert all(module.training for module in model.modules())


def test_one_model_trains_while_another_predicts():
    other, x = made("shared draws")
    y = torch.tensor([0, 1, 2])

    def trained():
        twin = made("shared draws")[0]
        pb.fit(twin, [(x, y)], epochs=5, progress=False, device="cpu", seed=0)
        return [p.detach().clone() for p in twin.parameters()]

    expected, alone = trained(), asked(other, x, ("weight", 1, 3)).samples
    with ThreadPoolExecutor(2) as pool:
        training = pool.submit(trained)
        while not training.done():
            assert torch.equal(asked(other, x, ("weight", 1, 3)).samples, alone)
    assert all(map(torch.equal, training.result(), expected))
