"""What the engine tells, against `predict` of the same model."""

import json
import math
import threading

import numpy as np
import pytest
import torch
from built import EngineError, engine_of, program_in
from program_models import GOLDEN, KNOWN, Attentive, Residual, Sequential1d, example, network
from small_models import classifier, regressor
from torch import nn
from traced import traced

import pocketbayes as pb
from pocketbayes.layers import members_of, set_estimator
from pocketbayes.layers.description import add_noise_parameter, update_description
from pocketbayes.models import build_network
from pocketbayes.prediction.gaussian_outputs import spread_normals
from pocketbayes.programs import encoded

ENTROPIES = ("entropy", "aleatoric", "epistemic")
DRAWS = 30


def opened(library, model, x, likelihood=None, **options):
    return engine_of(
        library, model, encoded(traced(members_of(model)[0], x)), likelihood, **options
    )


def close(found, expected, atol=1e-4):
    expected = expected.detach().double().numpy()
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-4, atol=atol)


def told(engine, x, estimator, outputs, draws=DRAWS, **options):
    normals = spread_normals(draws, outputs).numpy()
    return engine.predict(
        x.float().numpy(), estimator=estimator, draws=draws, normals=normals, **options
    )


def assert_same_classes(found, pred, with_probs=True):
    close(found["probs"], pred.probs)
    rows = found["entropy"].reshape(-1)[: pred.entropy.numel()]
    for name in ENTROPIES:
        close(found[name].reshape(-1)[: rows.size], getattr(pred, name).flatten())
    assert (found["label"].reshape(-1)[: rows.size] == pred.label.flatten().numpy()).all()


def mlp():
    return build_network("mlp", input_shape=(6,), num_outputs=3, hidden=(12, 8))


@pytest.mark.parametrize("temperature", [None, 1.7])
@pytest.mark.parametrize(
    ("net", "name"),
    [
        (mlp, "plain"),
        (Residual, "residual"),
        (Attentive, "attentive"),
        (Sequential1d, "sequential"),
    ],
)
def test_classes_by_mean_and_moments(library, net, name, temperature):
    torch.manual_seed(0)
    model, x = pb.bayesianize_(net(), std_init=0.1).eval(), example(name)
    update_description(model, likelihood="categorical", temperature=temperature, moments_factor=1.3)
    engine = opened(library, model, x)
    assert_same_classes(engine.predict(x.float().numpy()), pb.predict(model, x, estimator="mean"))
    pred = pb.predict(model, x, DRAWS, estimator="moments")
    assert_same_classes(told(engine, x, "moments", 3), pred)


@pytest.mark.parametrize("method", [
    pb.Subspace(density=0.3), pb.SpikeSlab(), pb.SpikeSlab(granularity="output"),
    pb.SpikeSlab(granularity="input")],
                         ids=["sparse", "weight", "output", "input"])  # fmt: skip
def test_sparse_and_spike_slab(library, method):
    torch.manual_seed(0)
    x, y = torch.randn(40, 2, 8, 8), torch.randint(3, (40,))
    quiet = {"epochs": 2, "progress": False, "likelihood": "categorical", "device": "cpu"}
    loader = [(x[:20], y[:20]), (x[20:], y[20:])]
    net = nn.Sequential(
        nn.Conv2d(2, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 3)
    )
    model = pb.fit(pb.bayesianize_(net), loader, method, **quiet).model.eval()
    engine = opened(library, model, x)
    assert_same_classes(engine.predict(x.numpy()), pb.predict(model, x, estimator="mean"))
    assert_same_classes(
        told(engine, x, "moments", 3), pb.predict(model, x, DRAWS, estimator="moments")
    )


def test_one_pass_of_the_golden_head(library):
    model = pb.load(GOLDEN / "program-head.pocket", network("head"))
    x = torch.tensor(json.loads(KNOWN.read_text())["head"]["input"])
    engine = engine_of(library, model, program_in(GOLDEN / "program-head.pocket"))
    assert_same_classes(
        told(engine, x, "one_pass", 3), pb.predict(model, x, DRAWS, estimator="one_pass")
    )
    with pytest.raises(EngineError, match="as many draws"):
        engine.predict(x.numpy(), estimator="one_pass", draws=101)


def test_one_pass_of_a_convolutional_network(library):
    torch.manual_seed(0)
    x, y = torch.randn(32, 2, 8, 8), torch.randint(3, (32,))
    quiet = {"epochs": 1, "progress": False, "likelihood": "categorical", "device": "cpu"}
    model = pb.fit(
        pb.bayesianize_(Residual(), std_init=0.05), [(x, y)], pb.MeanField(), **quiet
    ).model
    pb.distill_(model, [(x, y)], epochs=2)
    model.eval()
    engine = opened(library, model, x)
    assert_same_classes(
        told(engine, x, "one_pass", 3), pb.predict(model, x, DRAWS, estimator="one_pass")
    )


@pytest.mark.parametrize(
    "likelihood", ["gaussian", "heteroscedastic", "student-t", "poisson", "negative-binomial"]
)
@pytest.mark.parametrize("estimator", ["mean", "moments"])
def test_values(library, likelihood, estimator):
    torch.manual_seed(0)
    model = pb.bayesianize_(
        build_network("mlp", input_shape=(6,), num_outputs=4, hidden=(12,)), std_init=0.2
    ).eval()
    for name in ("noise_log_std", "noise_log_scale", "noise_log_freedom", "noise_log_dispersion"):
        add_noise_parameter(model, (4,), name)
        getattr(model, name).data.uniform_(-2, 0.5)
    whole = likelihood in ("poisson", "negative-binomial")
    update_description(model, likelihood=likelihood, temperature=None if whole else 1.4)
    x, targets = torch.randn(20, 6), 2 if likelihood == "heteroscedastic" else 4
    wanted = ["mean", "std", "aleatoric", "epistemic", "lower", "upper"]
    found = told(opened(library, model, x), x, estimator, 4, wanted=wanted)
    pred = pb.predict(model, x, DRAWS, estimator=estimator)
    low, high = pred.interval(0.9)
    expected = {n: getattr(pred, n) for n in wanted[:4]} | {"lower": low, "upper": high}
    for name in wanted:
        close(found[name].reshape(-1)[: 20 * targets], expected[name].flatten(), 2e-4)


def test_labels_and_positions(library):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 5, 3, padding=1), nn.ReLU(), nn.Conv2d(5, 3, 1))
    model, x = pb.bayesianize_(net, std_init=0.2).eval(), torch.randn(4, 2, 6, 5)
    for likelihood in ("bernoulli", "categorical"):
        update_description(model, likelihood=likelihood)
        engine = opened(library, model, x)
        for estimator in ("mean", "moments"):
            pred = pb.predict(model, x, DRAWS, estimator=estimator)
            found = told(engine, x, estimator, 3)
            close(found["probs"], pred.probs)
            for name in ENTROPIES:
                wide = getattr(pred, name).flatten()
                close(found[name].reshape(-1)[: len(wide)], wide)


def test_members_of_an_ensemble(library):
    known, path = (
        json.loads(KNOWN.read_text())["deep-ensemble"],
        GOLDEN / "program-deep-ensemble.pocket",
    )
    model, x = pb.load(path, network("deep-ensemble")), torch.tensor(known["input"])
    engine = engine_of(library, model, program_in(path))
    assert_same_classes(engine.predict(x.numpy()), pb.predict(model, x, estimator="mean"))


def test_an_engine_without_normals_has_its_own(library):
    model, x = classifier(0.5).eval(), torch.randn(5, 4)
    found = opened(library, model, x).predict(x.numpy(), estimator="moments", draws=100)
    pred = pb.predict(model, x, 3000, estimator="moments", likelihood="categorical")
    np.testing.assert_allclose(found["probs"], pred.probs, atol=0.02)
    exact = told(opened(library, model, x), x, "moments", 3)
    np.testing.assert_allclose(found["outputs"], exact["outputs"], atol=1e-5)
    np.testing.assert_allclose(found["variances"], exact["variances"], rtol=1e-4)


def law(found, mean, variance, draws, false_alarms=1e-6):
    """Every mean of draws within its bound, all together wrong once in a million runs."""
    bound = torch.special.ndtri(
        torch.tensor(1 - false_alarms / (2 * mean.numel()), dtype=torch.float64)
    )
    apart = np.abs(found["outputs"].reshape(mean.shape) - mean.numpy()) / np.sqrt(
        variance.numpy() / draws
    )
    assert apart.max() < float(bound) * 1.05 + 1e-3


def test_draws_of_weights_are_those_of_the_law(library):
    """A linear layer is exact: moments of 4,000 draws; false alarms once in a million."""
    draws, x = 4000, torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    model = regressor(outputs=3).eval()
    set_estimator(model, "weight")
    engine = opened(library, model, x, draws=draws)
    found = engine.predict(x.numpy(), estimator="weight", draws=draws, seed=5)
    q, b = (
        model._posteriors["weight"],
        model._posteriors.by_name().get("bias"),
    )
    mean, variance = (t.detach() for t in q.moments())
    bias, own = (t.detach() for t in b.moments()) if b else (model.bias.detach(), torch.zeros(3))
    exact, spread = x @ mean.T + bias, x.square() @ variance.T + own
    law(found, exact.double(), spread.double(), draws)
    # (S - 1) s^2 / sigma^2 is chi-squared: its std is sqrt(2 / (S - 1)) of the variance
    apart = np.abs(found["variances"] / spread.numpy() - 1) / math.sqrt(2 / (draws - 1))
    assert apart.max() < 5.6
    again = engine.predict(x.numpy(), estimator="weight", draws=draws, seed=5)
    other = engine.predict(x.numpy(), estimator="weight", draws=draws, seed=6)
    assert (again["outputs"] == found["outputs"]).all()
    assert (other["outputs"] != found["outputs"]).all()


@pytest.mark.parametrize("name", ["spike-slab", "sharing", "subspace", "mc-dropout"])
def test_draws_of_other_families(library, name):
    """Mean probabilities of 2,000 draws here and there: 12 within 5.5 stds of a difference."""
    known, path = json.loads(KNOWN.read_text())[name], GOLDEN / f"program-{name}.pocket"
    model, x, draws = pb.load(path, network(name)), torch.tensor(known["input"]), 2000
    engine = engine_of(library, model, program_in(path), draws=draws)
    found = engine.predict(x.numpy(), estimator="weight", draws=draws, seed=1)
    pred = pb.predict(model, x, draws, torch.Generator().manual_seed(0), estimator="weight")
    std = pred.variance.clamp_min(1e-8).sqrt().numpy() * math.sqrt(2 / draws)
    assert (np.abs(found["probs"] - pred.probs.numpy()) < 5.5 * std + 1e-6).all()


def test_draws_are_the_same_for_all_rows_and_any_number_of_them(library):
    model, x = classifier().eval(), torch.randn(1, 4)
    engine = opened(library, model, x)
    one = engine.predict(x.numpy(), estimator="weight", draws=7)["probs"]
    many = engine.predict(x.repeat(37, 1).numpy(), estimator="weight", draws=7)["probs"]
    np.testing.assert_allclose(many, np.repeat(one, 37, 0), atol=1e-6)


def test_two_threads_have_a_handle_each(library):
    model, x = classifier().eval(), torch.randn(20, 4)
    engines = [opened(library, model, x) for _ in range(2)]
    alone = [
        e.predict(x.numpy(), estimator="weight", draws=9, seed=i)["probs"]
        for i, e in enumerate(engines)
    ]
    found = [None, None]

    def work(i):
        for _ in range(20):
            found[i] = engines[i].predict(x.numpy(), estimator="weight", draws=9, seed=i)["probs"]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert all((a == b).all() for a, b in zip(alone, found, strict=True))


@pytest.mark.parametrize("net", [nn.ReLU, nn.ReLU6, nn.GELU, nn.LeakyReLU, nn.Hardswish])
def test_answers_that_are_not_finite_are_errors(library, net):
    """No function and no bound on a variance hides what overflowed before it."""
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(4, 8), net(), nn.Linear(8, 3))
    model, x = pb.bayesianize_(made, std_init=0.1).eval(), torch.zeros(3, 4)
    x[2] = torch.tensor([1e38, -1e38, 1e38, 1e38])
    engine = opened(library, model, x)
    with pytest.raises(EngineError, match="answer to row 2 is not finite"):
        engine.predict(x.numpy(), estimator="moments", draws=5)
    x[2] = 1e30
    model = pb.bayesianize_(nn.Linear(4, 1), std_init=0.1).eval()
    engine = opened(library, model, x, "gaussian")
    with pytest.raises(EngineError, match="answer to row 2 is not finite"):
        engine.predict(x.numpy(), estimator="weight", draws=5, wanted=["mean"])


def test_a_class_that_cannot_be_has_no_probability(library):
    """An output of minus infinity overflows nothing."""
    model, x = pb.bayesianize_(nn.Linear(4, 3)).eval(), torch.randn(2, 4)
    with torch.no_grad():
        model.bias[1] = -torch.inf
    assert_same_classes(
        opened(library, model, x).predict(x.numpy()), pb.predict(model, x, estimator="mean")
    )


def test_what_cannot_be_told_is_refused(library):
    model, x = classifier().eval(), torch.randn(2, 4)
    engine = opened(library, model, x, moments=False)
    with pytest.raises(EngineError, match="moments"):
        engine.predict(x.numpy(), estimator="moments", draws=2)
    with pytest.raises(EngineError, match="head"):
        engine.predict(x.numpy(), estimator="one_pass", draws=2)
    with pytest.raises(EngineError, match="NaN"):
        engine.predict(np.full((2, 4), np.nan))
    with pytest.raises(EngineError, match="likelihood"):
        opened(library, model, x, "unheard-of")
