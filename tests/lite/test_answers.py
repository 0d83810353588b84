"""pocketbayes-lite tells what `predict` tells."""

import dataclasses
import json
import math
import threading

import numpy as np
import pytest
import torch
from program_models import GOLDEN, KNOWN
from torch import nn

import pocketbayes as pb
from pocketbayes.layers.description import add_noise_parameter, update_description
from pocketbayes.models import build_network

ANSWERS = json.loads((GOLDEN / "answers.json").read_text())
INPUTS = json.loads(KNOWN.read_text())
CASES = [(n, e) for n, file in ANSWERS["files"].items() for e in file["estimators"]]
FIELDS = ("probs", "entropy", "aleatoric", "epistemic", "label", "confidence")


def golden(lite, name):
    return lite.load(GOLDEN / f"program-{name}.pocket"), np.array(INPUTS[name]["input"])


@pytest.mark.parametrize(("name", "estimator"), CASES)
def test_golden_answers(lite, name, estimator):
    model, x = golden(lite, name)
    expected = ANSWERS["files"][name]["estimators"][estimator]
    found = model.predict(x, estimator, ANSWERS["draws"])
    told = {name: getattr(found, name) for name in expected if hasattr(found, name)}
    if "lower" in expected:
        told["lower"], told["upper"] = found.interval(ANSWERS["level"])
    assert set(told) == set(expected)
    for name, values in told.items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-4, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("name", [n for n, file in ANSWERS["files"].items() if "draws" in file])
def test_golden_draws(lite, name):
    """Means of 2,000 draws against the library's 20,000.

    A difference over 5.5 standard errors comes by chance in fewer than 1 of 10^7 numbers, of which
    there are 56; variances of as many draws are within a quarter.
    """
    model, x = golden(lite, name)
    expected, draws = ANSWERS["files"][name]["draws"], 2000
    found = model.predict(x, "weight", draws, seed=1)
    mean = found.probs if "bernoulli" in name else found.mean
    error = np.sqrt(np.array(expected["variance"]) * (1 / draws + 1 / expected["num_samples"]))
    assert (np.abs(mean - np.array(expected["mean"])) < 5.5 * error + 1e-6).all()
    np.testing.assert_allclose(found.epistemic, expected["epistemic"], rtol=0.25, atol=1e-6)
    np.testing.assert_allclose(found.aleatoric, expected["aleatoric"], rtol=0.05)


@pytest.mark.parametrize("name", ANSWERS["files"])
def test_defaults_are_those_of_predict(lite, name):
    """But that draws of whole weights stand where the library draws noise at every output."""
    expected = ANSWERS["files"][name]
    model, x = golden(lite, name)
    default = {"lrt": "weight"}.get(expected["default"], expected["default"])
    assert model.default_estimator == default
    assert model.predict(x, num_samples=2).estimator == default
    assert model.members == expected["members"]


@pytest.mark.parametrize("name", ["mean-field", "sharing", "spike-slab", "mc-dropout"])
def test_draws_in_law(lite, name):
    """Probabilities of 3,000 draws against as many of the library's.

    Both have errors; a difference over 6 of its standard errors comes by chance in fewer than
    1 of 10^8 numbers, of which there are 48.
    """
    model, x = golden(lite, name)
    found = model.predict(x, num_samples=3000, seed=3)
    torch_model, given = pb.load(GOLDEN / f"program-{name}.pocket"), torch.tensor(x).float()
    made = torch.Generator().manual_seed(3)
    told = pb.predict(torch_model, given, 3000, made, "weight")
    error = (2 * told.variance / 3000).sqrt().numpy()
    assert (np.abs(found.probs - told.probs.numpy()) < 6 * error + 1e-5).all()
    np.testing.assert_allclose(found.epistemic, told.epistemic.numpy(), rtol=0.25, atol=1e-5)
    again = model.predict(x, num_samples=3000, seed=3)
    assert (again.probs == found.probs).all()
    assert (model.predict(x, num_samples=3000, seed=4).probs != found.probs).any()


def saved(lite, folder, likelihood, outputs, noises=(), **facts):
    torch.manual_seed(0)
    net = build_network("mlp", input_shape=(6,), num_outputs=outputs, hidden=(12,))
    model = pb.bayesianize_(net, std_init=0.2).eval()
    for name in noises:
        add_noise_parameter(model, (outputs,), name)
        getattr(model, name).data.uniform_(-2, 0.5)
    update_description(model, likelihood=likelihood, **facts)
    x = torch.randn(20, 6)
    pb.save(model, folder / "m.pocket", lossless=True, example=x)
    return pb.load(folder / "m.pocket"), lite.load(folder / "m.pocket"), x


def close(found, expected, rtol=1e-4):
    np.testing.assert_allclose(found, expected.double().numpy(), rtol=rtol, atol=1e-4)


CONFORMAL = {"level": 0.8, "threshold": [1.3], "shape": [1], "examples": 50, "num_samples": 30}
BY_MOMENTS = CONFORMAL | {"estimator": "moments"}


@pytest.mark.parametrize("facts", [{}, {"temperature": 1.4}, {"conformal": BY_MOMENTS}])
def test_one_value_with_gaussian_noise_goes_by_moments(lite, tmp_path, facts):
    theirs, ours, x = saved(lite, tmp_path, "gaussian", 1, ["noise_log_std"], **facts)
    expected, found = pb.predict(theirs, x), ours.predict(x.numpy())
    assert (found.estimator, found.num_samples) == (expected.estimator, expected.num_samples)
    assert found.estimator == "moments"
    for name in ("mean", "std", "aleatoric", "epistemic"):
        close(getattr(found, name), getattr(expected, name))
    for level in (None, 0.5, 0.9):
        for bound, wanted in zip(found.interval(level), expected.interval(level), strict=True):
            close(bound, wanted, 1e-3)


@pytest.mark.parametrize(("likelihood", "noises"), [
    ("heteroscedastic", []), ("student-t", ["noise_log_scale", "noise_log_freedom"]),
    ("poisson", []), ("negative-binomial", ["noise_log_dispersion"])])  # fmt: skip
def test_other_values(lite, tmp_path, likelihood, noises):
    facts = {"conformal": CONFORMAL | {"num_samples": 1, "shape": [1]}}
    theirs, ours, x = saved(lite, tmp_path, likelihood, 4, noises, **facts)
    expected = pb.predict(theirs, x, estimator="mean")
    found = ours.predict(x.numpy(), "mean")
    for name in ("mean", "std", "aleatoric", "epistemic"):
        close(getattr(found, name), getattr(expected, name))
    for bound, wanted in zip(found.interval(), expected.interval(), strict=True):
        close(bound, wanted)
    for estimator, level in (("mean", 0.9), ("moments", 0.5), ("moments", 0.98)):
        expected = pb.predict(theirs, x, estimator=estimator).interval(level)
        found = ours.predict(x.numpy(), estimator).interval(level)
        for bound, wanted in zip(found, expected, strict=True):
            close(bound, wanted, 1e-3)


@pytest.mark.parametrize("dispersion", [-14.0, -3.0, 1.0])
def test_intervals_of_counts_of_all_sizes(lite, tmp_path, dispersion):
    """Rates from 1e-9 to 1e13, whose bounds are told in float32."""
    for likelihood in ("poisson", "negative-binomial"):
        net = nn.Linear(1, 1)
        nn.init.ones_(net.weight)
        nn.init.zeros_(net.bias)
        model = pb.bayesianize_(net, std_init=1e-6).eval()
        add_noise_parameter(model, (1,), "noise_log_dispersion")
        model.noise_log_dispersion.data.fill_(dispersion)
        update_description(model, likelihood=likelihood)
        x = torch.arange(-20.0, 31.0).unsqueeze(1)
        pb.save(model, tmp_path / "m.pocket", lossless=True, example=x)
        expected = pb.predict(pb.load(tmp_path / "m.pocket", nn.Linear(1, 1)), x, estimator="mean")
        found = lite.load(tmp_path / "m.pocket").predict(x.numpy(), "mean")
        for level in (0.5, 0.9):
            pairs = zip(found.interval(level), expected.interval(level), strict=True)
            for bound, wanted in pairs:
                np.testing.assert_allclose(bound, wanted.numpy(), rtol=2e-5)


def test_labels(lite, tmp_path):
    theirs, ours, x = saved(lite, tmp_path, "bernoulli", 3, temperature=1.4)
    expected, found = pb.predict(theirs, x, estimator="mean"), ours.predict(x.numpy(), "mean")
    for name in FIELDS:
        close(getattr(found, name), getattr(expected, name))


def test_prediction_sets_and_names(lite, tmp_path):
    known = CONFORMAL | {"threshold": [0.6], "shape": [], "estimator": "mean", "num_samples": 1}
    names = ("a", "b", "c")
    theirs, ours, x = saved(lite, tmp_path, "categorical", 3, conformal=known, class_names=names)
    expected, found = pb.predict(theirs, x, estimator="mean"), ours.predict(x.numpy(), "mean")
    assert (found.prediction_set == expected.prediction_set.numpy()).all()
    assert found.class_names == names
    one = ours.predict(x[0].numpy(), "mean")
    assert one.prediction_set.shape == (3,)
    with pytest.warns(UserWarning, match='predicted by "weight"'):
        _ = ours.predict(x.numpy(), num_samples=1).prediction_set
    assert found.why_unsure()[0] == "not known: a single network cannot tell"
    told = ours.predict(x.numpy())
    for words, sure in zip(told.why_unsure(), told.confidence >= 0.9, strict=True):
        assert words == "" if sure else words.endswith(("disagree", "it is ambiguous"))


def test_one_example_and_several(lite):
    model, x = golden(lite, "residual")
    whole, one = model.predict(x, "mean"), model.predict(x[1], "mean")
    np.testing.assert_allclose(one.probs, whole.probs[1], atol=1e-6)
    assert one.probs.shape == (3,)
    assert int(one.label) == whole.label[1]


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.last = nn.Embedding(7, 3), nn.Linear(5, 2)

    def forward(self, words, x):
        return self.last(torch.cat([self.words(words).mean(1), x], 1))


def test_two_inputs(lite, tmp_path):
    model = pb.bayesianize_(Two(), std_init=0.1).eval()
    x = torch.randint(7, (4, 3)), torch.randn(4, 2)
    pb.save(model, tmp_path / "m.pocket", lossless=True, example=x)
    ours = lite.load(tmp_path / "m.pocket")
    found = ours.predict(tuple(part.numpy() for part in x), "mean")
    close(found.probs, pb.predict(model, x, estimator="mean").probs)
    with pytest.raises(lite.LiteError, match="pass a tuple"):
        ours.predict(x[0].numpy())
    with pytest.raises(lite.LiteError, match="whole numbers"):
        ours.predict((x[0].numpy() + 0.5, x[1].numpy()))


def test_several_threads_tell_the_same(lite):
    model, x = golden(lite, "mean-field")
    asked = [("weight", 5), ("mean", 1), ("moments", 40), ("weight", 60)] * 4
    alone = [model.predict(x, e, n, seed=i).probs for i, (e, n) in enumerate(asked)]
    found = [None] * len(asked)

    def answer(i):
        estimator, number = asked[i]
        for _ in range(20):
            found[i] = model.predict(x, estimator, number, seed=i).probs

    threads = [threading.Thread(target=answer, args=(i,)) for i in range(len(asked))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((a == b).all() for a, b in zip(alone, found, strict=True))


def test_entropy_is_the_sum_of_its_parts(lite):
    model, x = golden(lite, "mean-field")
    found = model.predict(x, num_samples=50)
    whole = found.aleatoric + found.epistemic * 49 / 50
    np.testing.assert_allclose(found.entropy, whole, atol=1e-5)
    assert (found.entropy <= math.log(3)).all()


@pytest.mark.parametrize("outputs", [2, 10, 20])
def test_classes_in_great_doubt_by_moments(lite, tmp_path, outputs):
    """The same points stand for the Gaussian of outputs, wherever classes are told from it."""
    theirs, ours, x = saved(lite, tmp_path, "categorical", outputs)
    expected = pb.predict(theirs, 3 * x, estimator="moments")
    found = ours.predict(3 * x.numpy(), "moments")
    assert float(expected.epistemic.max()) > 0.1
    for name in FIELDS:
        close(getattr(found, name), getattr(expected, name))


def test_a_place_where_rounding_asks_for_both_sides_of_the_beta_distribution(lite, tmp_path):
    """Each side would ask for the other for ever."""
    net = nn.Linear(1, 1)
    net.weight.data.zero_()
    net.bias.data.fill_(11.8169165)
    model = pb.bayesianize_(net, std_init=1e-6).eval()
    model.bias.data.fill_(11.8169165)
    add_noise_parameter(model, (1,), "noise_log_dispersion")
    model.noise_log_dispersion.data.fill_(1.30349362)
    update_description(model, likelihood="negative-binomial")
    pb.save(model, tmp_path / "m.pocket", lossless=True, example=torch.zeros(1, 1))
    ours = lite.load(tmp_path / "m.pocket").predict(np.zeros((1, 1)), "mean")
    expected = pb.predict(model, torch.zeros(1, 1), estimator="mean").interval()
    for bound, wanted in zip(ours.interval(), expected, strict=True):
        close(bound, wanted)


def test_a_confidence_is_at_most_one_and_what_is_sure_needs_no_words(lite, tmp_path):
    _, ours, x = saved(lite, tmp_path, "categorical", 3)
    found = ours.predict(x[:2].numpy())
    rounded = np.float32([[1.0000004, 0, 0], [0.5, 0.4, 0.1]])
    found = dataclasses.replace(found, probs=rounded)
    assert found.confidence.tolist() == [1.0, 0.5]
    assert [bool(words) for words in found.why_unsure()] == [False, True]


@pytest.mark.parametrize("density", [None, 0.3])
def test_points_stored_in_steps(lite, tmp_path, density):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 3))
    model, x = pb.bayesianize_(plain), torch.randn(6, 12)
    loader = [(x, torch.arange(6) % 3)]
    model = pb.fit(model, loader, pb.Deterministic(), epochs=1, progress=False).model
    model = model if density is None else pb.prune_(model, density, by="magnitude")
    for _, q in pb.named_posteriors(model):
        q.mean.data.copy_((q.mean.data * 32).round() / 32)
    size = pb.save(model, tmp_path / "m.pocket", exact_state=True, example=x[:1])
    assert "steps" in {s.coding for s in size.sections if s.name.endswith("point/mean")}
    found = lite.load(tmp_path / "m.pocket").predict(x.numpy(), "mean")
    close(found.probs, pb.predict(model, x, estimator="mean").probs)
