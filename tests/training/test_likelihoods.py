"""Every likelihood from `fit` to a file and back: what is learned, stored and measured."""

import math
from functools import cache

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.layers.description import NOISES, describe, noise_parameters
from pocketbayes.likelihoods import LIKELIHOODS

LEARNED = {
    "noise_log_std": -1.0,
    "noise_log_scale": -1.5,
    "noise_log_freedom": 0.0,
    "noise_log_dispersion": -1.0,
}
# Standard errors of the estimates from 600 examples, measured over 60 seeds.
ERRORS = {
    "noise_log_std": 0.03,
    "noise_log_scale": 0.06,
    "noise_log_freedom": 0.5,
    "noise_log_dispersion": 0.26,
}
ALL = tuple(LIKELIHOODS)
LEARNING = tuple(name for name in ALL if LIKELIHOODS[name].learned)


def seeded(number=0):
    return torch.Generator().manual_seed(number)


def data(name, count=600, seed=0):
    """Targets whose means are linear in three inputs, spread as this likelihood says."""
    torch.manual_seed(seed)
    x = torch.randn(count, 3)
    signal = x @ torch.tensor([[1.0], [-0.5], [0.3]]) * 0.6
    likelihood = LIKELIHOODS[name]
    if name == "categorical":
        return x, torch.bernoulli((2 * signal).sigmoid()).long().squeeze(1)
    if name == "bernoulli":
        return x, torch.bernoulli((2 * torch.cat([signal, -signal], 1)).sigmoid())
    if name == "heteroscedastic":
        signal = torch.cat([signal, x[:, :1] - 2], 1)
    learned = {n: torch.full((1,), LEARNED[n]) for n in likelihood.learned}
    return x, likelihood.distribution(signal, learned).sample()


@cache
def reference(name):
    return trained(name)


def trained(name, epochs=20, method=None, x_y=None):
    x, y = data(name) if x_y is None else x_y
    torch.manual_seed(0)
    outputs = 2 if name in ("categorical", "bernoulli", "heteroscedastic") else 1
    model = pb.bayesianize_(nn.Sequential(nn.Linear(3, outputs)), prior_std=0.5, std_init=0.02)
    loader = DataLoader(TensorDataset(x, y), 60, shuffle=True)
    method = method or pb.MeanField(lr=0.03, std_lr=0.03, beta=1.0)
    known = {"epochs": epochs, "progress": False, "device": "cpu"}
    return pb.fit(model, loader, method, likelihood=name, **known)


@pytest.fixture(scope="module", params=ALL)
def fitted(request):
    return request.param, reference(request.param)


def test_what_was_learned_is_what_the_data_were_made_with(fitted):
    """Within 5 standard errors: one false alarm in a million, were they Gaussian."""
    name, result = fitted
    found = noise_parameters(result.model)
    assert tuple(found) == LIKELIHOODS[name].learned
    for learned, value in found.items():
        assert abs(value.item() - LEARNED[learned]) < 5 * ERRORS[learned]
    score = LIKELIHOODS[name].score
    assert result.history[-1]["nll"] < result.history[0]["nll"]
    assert score in result.history[-1]


def test_fresh_data_are_as_likely_as_the_model_says(fitted):
    """Coverage on 1,000 fresh examples: 5 standard errors and 0.03 for what is not yet known."""
    name, result = fitted
    x, y = data(name, 1000, seed=9)
    record = pb.evaluate(result.model, [(x, y)], 20, generator=seeded())
    assert record.likelihood == name
    assert math.isfinite(record.nll)
    if LIKELIHOODS[name].kind == "values":
        for share in (50, 90):
            p, got = share / 100, getattr(record, f"coverage_{share}")
            slack = 5 * math.sqrt(p * (1 - p) / 1000) + 0.03
            assert got > p - slack
            assert "oisson" in name or "binomial" in name or got < p + slack
        assert 0 < record.crps < record.rmse
    else:
        assert record.accuracy > 0.6
        assert record.ece < 0.1


def test_files_and_state_dicts_bring_it_back(fitted, tmp_path):
    name, result = fitted
    model, (x, _) = result.model, data(name, 20)
    pb.save(model, tmp_path / "m.pocket", lossless=True)
    net = nn.Sequential(nn.Linear(3, 2 if name in ("categorical", "bernoulli") else 1))
    if name == "heteroscedastic":
        net = nn.Sequential(nn.Linear(3, 2))
    fresh = pb.bayesianize_(nn.Sequential(nn.Linear(3, net[0].out_features)))
    fresh.load_state_dict(model.state_dict())
    loaded = pb.load(tmp_path / "m.pocket", net)
    first = pb.predict(model, x, 5, generator=seeded())
    for other in (loaded, fresh):
        assert describe(other).likelihood == name
        again = pb.predict(other, x, 5, generator=seeded())
        assert type(again) is type(first)
        for field in ("aleatoric", "epistemic"):
            assert torch.equal(getattr(first, field), getattr(again, field))
    assert name in str(pb.inspect(tmp_path / "m.pocket"))


@pytest.mark.parametrize("name", ["student-t", "negative-binomial", "heteroscedastic", "bernoulli"])
def test_an_ensemble_predicts_it(name, tmp_path):
    ensemble = trained(name, 2, pb.DeepEnsemble(members=2)).model
    for learned in LIKELIHOODS[name].learned:
        mean = torch.stack([noise_parameters(m)[learned].detach() for m in ensemble.members])
        wanted = mean.mul(2).exp().mean(0).log() / 2
        torch.testing.assert_close(noise_parameters(ensemble)[learned].detach(), wanted)
    x, y = data(name, 30)
    record = pb.evaluate(ensemble, [(x, y)])
    assert record.num_samples == 2
    pb.save(ensemble, tmp_path / "m.pocket", lossless=True)
    outputs = ensemble.members[0][0].out_features
    loaded = pb.load(tmp_path / "m.pocket", nn.Sequential(nn.Linear(3, outputs)))
    assert pb.evaluate(loaded, [(x, y)]).nll == record.nll


@pytest.mark.parametrize("name", LEARNING)
def test_a_noise_that_was_never_learned_is_made(name):
    """As from `fit`: both maximise the same likelihood of the same network."""
    usual, (x, y) = reference(name).model, data(name)
    model = pb.bayesianize_(nn.Sequential(nn.Linear(3, 1)))
    own = {k: v for k, v in usual.state_dict().items() if k in model.state_dict()}
    model.load_state_dict({k: v for k, v in own.items() if "description" not in k}, strict=False)
    assert not noise_parameters(model)
    pb.refresh_noise_(model, [(x, y)], likelihood=name, generator=seeded())
    assert describe(model).likelihood == name
    for learned in LIKELIHOODS[name].learned:
        error = noise_parameters(model)[learned].item() - LEARNED[learned]
        assert abs(error) < 5 * ERRORS[learned]
    before = {n: p.clone() for n, p in noise_parameters(model).items()}
    with pytest.raises(pb.DataError):
        pb.refresh_noise_(model, [(x, torch.full_like(y, math.nan))])
    assert all(torch.equal(before[n], p) for n, p in noise_parameters(model).items())


@pytest.mark.parametrize("name", ["categorical", "poisson", "bernoulli", "heteroscedastic"])
def test_where_nothing_is_learned_nothing_is_estimated(name):
    model = trained(name, 0).model
    pb.refresh_noise_(model, (pytest.fail("was read") for _ in range(1)))
    assert not noise_parameters(model)


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("poisson", -1.0, "is no count"),
        ("negative-binomial", 0.5, "is no count"),
        ("bernoulli", 3.0, "neither 0 nor 1"),
    ],
)
def test_training_says_which_target_is_impossible(name, wrong, message):
    x, y = data(name, 60)
    y[7] = wrong
    with pytest.raises(pb.PocketBayesError, match=message):
        trained(name, 1, x_y=(x, y))


def test_masked_positions_do_not_train():
    x, y = data("categorical")
    y[::2] = -100
    half = trained("categorical", 3, x_y=(x, y)).history[-1]
    assert 0.5 < half["accuracy"] <= 1
    nothing = trained("categorical", 1, x_y=(x, torch.full_like(y, -100))).history[-1]
    assert nothing["nll"] == 0


@pytest.mark.parametrize("name", ["student-t", "negative-binomial", "heteroscedastic"])
def test_compiled_and_half_precision_training_take_it(name):
    x, y = data(name, 60)
    model = pb.bayesianize_(nn.Sequential(nn.Linear(3, LIKELIHOODS[name].outputs_per_target)))
    options = {"progress": False, "device": "cpu", "precision": "bf16", "compile": "eager"}
    result = pb.fit(model, [(x, y)], epochs=2, likelihood=name, **options)
    assert math.isfinite(result.history[-1]["nll"])


def test_every_name_of_a_learned_parameter_is_known_to_files():
    assert {n for one in LIKELIHOODS.values() for n in one.learned} == set(NOISES)


def test_outliers_move_a_gaussian_but_not_a_student_t():
    """One target in twenty is off by 30: the t's fit of the rest is several times nearer."""
    x, _ = data("gaussian")
    clean = x @ torch.tensor([[1.0], [-0.5], [0.3]])
    y = clean + 0.1 * torch.randn(clean.shape, generator=seeded())
    y[::20] += 30
    errors = {
        name: float(
            (pb.predict(trained(name, 12, x_y=(x, y)).model, x).mean - clean).abs().median()
        )
        for name in ("gaussian", "student-t")
    }
    assert errors["student-t"] < 0.2 < errors["gaussian"]
