"""Models with a temperature or a promise of coverage: predictions, files, and when it ends."""

import copy
import json
import math

import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.codec.header import model_in
from pocketbayes.layers import describe, noise_log_std, update_description
from pocketbayes.layers.ensembles import Ensemble
from pocketbayes.likelihoods import LIKELIHOODS
from pocketbayes.prediction.calibration import Conformal
from pocketbayes.prediction.predictives import PREDICTIVES

OPTIONS = {"epochs": 0, "progress": False, "device": "cpu"}


def seeded(number=0):
    return torch.Generator().manual_seed(number)


def labelled(number, seed=0):
    """Batches of labels that are less certain than the logits 8 x of the network below say."""
    x = torch.randn(number, 3, generator=seeded(seed))
    y = torch.multinomial((2 * x).softmax(1), 1, generator=seeded(seed + 1)).flatten()
    return list(zip(x.split(100), y.split(100), strict=True))


def measured(number, seed=0):
    """Batches of two values around (x, -x) with noise of stds 1 and 3."""
    x = torch.randn(number, 1, generator=seeded(seed))
    noise = torch.randn(number, 2, generator=seeded(seed + 1)) * torch.tensor([1.0, 3.0])
    y = x * torch.tensor([1.0, -1.0]) + noise
    return list(zip(x.split(100), y.split(100), strict=True))


def classifier(std=0.05):
    net = nn.Linear(3, 3, bias=False)
    net.weight.data.copy_(8 * torch.eye(3))
    model = pb.bayesianize_(net, std_init=std, prior_std=1.0)
    pb.fit(model, labelled(100), pb.MeanField(), **OPTIONS)
    return model


def regressor(noise=0.1, std=0.01):
    net = nn.Linear(1, 2, bias=False)
    net.weight.data.copy_(torch.tensor([[1.0], [-1.0]]))
    model = pb.bayesianize_(net, std_init=std, prior_std=1.0)
    pb.fit(model, measured(100), pb.MeanField(), likelihood="gaussian", **OPTIONS)
    noise_log_std(model).data.fill_(math.log(noise))
    return model


X = torch.randn(50, 3, generator=seeded(5))
V = torch.randn(50, 1, generator=seeded(5))


def predicted(model, x=X, **options):
    return pb.predict(model, x, generator=seeded(7), **options)


def test_a_sharp_classifier_is_softened():
    """Labels come from logits a quarter as large; 5 standard errors are below 15%."""
    model, data = classifier(), labelled(4000)
    before = pb.evaluate(model, data, generator=seeded())
    assert pb.temperature_(model, data, generator=seeded()) is model
    assert describe(model).temperature == pytest.approx(4.0, rel=0.15)
    after = pb.evaluate(model, data, generator=seeded())
    assert after.nll < before.nll - 0.5
    assert after.ece < before.ece / 3


def test_the_temperature_divides_the_logits_of_every_draw():
    model = classifier(0.5)
    plain = predicted(model, keep_samples=True)
    update_description(model, temperature=2.0)
    tempered = predicted(model, keep_samples=True)
    expected = (plain.samples.log() / 2).softmax(2)
    torch.testing.assert_close(tempered.samples, expected)
    torch.testing.assert_close(tempered.probs, expected.mean(0))
    epistemic = (1 - 1 / 30) * tempered.epistemic
    torch.testing.assert_close(tempered.entropy, tempered.aleatoric + epistemic)
    assert torch.equal(predicted(model, estimator="mean").label, X.argmax(1))


def test_a_model_without_calibration_is_unchanged_bit_for_bit():
    model = classifier()
    before = predicted(model)
    update_description(model, temperature=1.0)
    assert torch.equal(predicted(model).probs, before.probs)
    update_description(model, temperature=None)
    (text,) = (v for k, v in model.state_dict().items() if "description" in k)
    assert not {"temperature", "conformal"} & json.loads(bytes(text.tolist())).keys()


def test_all_of_the_spread_of_values_is_widened():
    model = regressor(noise=0.1, std=0.05)
    data = measured(3000)
    plain = predicted(model, V)
    pb.temperature_(model, data, generator=seeded())
    factor = describe(model).temperature
    wide = predicted(model, V)
    torch.testing.assert_close(wide.mean, plain.mean)
    torch.testing.assert_close(wide.std, factor * plain.std)
    torch.testing.assert_close(wide.variance, wide.aleatoric + wide.epistemic)
    torch.testing.assert_close(wide.samples.var(0), wide.epistemic)


def test_the_factor_of_one_output_is_the_error_of_its_std():
    """Noise said 0.25, is 1: the factor is 4 within 5 standard errors."""
    model, data = regressor(noise=0.25, std=1e-4), measured(2000)
    noise_log_std(model).data[1] = math.log(0.75)
    pb.temperature_(model, data)
    assert abs(math.log(describe(model).temperature / 4)) < 5 / math.sqrt(2 * 4000)
    assert pb.evaluate(model, measured(2000, 9)).coverage_90 == pytest.approx(0.9, abs=0.04)


def test_sets_cover_labels_and_survive_a_file(tmp_path):
    """Of 4,000 new labels, given 399 to calibrate: 5 standard errors are 0.08."""
    model, test = classifier(), labelled(4000, 20)
    assert pb.conformal(model, labelled(399, 10), 0.9, generator=seeded()) is model
    x, y = (torch.cat(parts) for parts in zip(*test, strict=True))
    inside = predicted(model, x).prediction_set
    assert inside.shape == (4000, 3)
    assert inside.dtype == torch.bool
    assert inside[torch.arange(4000), y].double().mean() > 0.9 - 0.08
    assert inside.double().sum(1).mean() < 2.5  # labels are 64% predictable: sets are no lottery
    size = pb.save(model, tmp_path / "m.pocket", lossless=True)
    again = pb.load(tmp_path / "m.pocket", nn.Linear(3, 3, bias=False))
    assert torch.equal(predicted(again, x).prediction_set, inside)
    told = pb.inspect(tmp_path / "m.pocket")
    assert told.conformal == size.conformal == describe(model).conformal
    assert "coverage 0.9, from 399 examples" in str(told)


def test_no_set_is_empty_and_one_example_has_one():
    model = classifier()
    pb.conformal(model, labelled(400, 10), level=0.05)
    pred = predicted(model, X)
    assert (pred.prediction_set.sum(1) >= 1).all()
    assert pred.prediction_set.gather(1, pred.label.unsqueeze(1)).all()
    single = pb.predict(model, X[0])
    assert single.prediction_set.shape == (3,)
    assert single.prediction_set.any()


def test_intervals_cover_each_output_and_survive_a_file(tmp_path):
    """Of 4,000 new values each, given 399: 5 standard errors are 0.08."""
    model, test = regressor(), measured(4000, 20)
    x, y = (torch.cat(parts) for parts in zip(*test, strict=True))
    own = predicted(model, x).interval()
    pb.conformal(model, measured(399, 10), level=0.8, generator=seeded())
    pred = predicted(model, x)
    low, high = pred.interval()
    covered = ((low <= y) & (y <= high)).double().mean(0)
    assert (covered > 0.8 - 0.08).all()
    assert (covered < 0.8 + 0.08).all()
    assert all(map(torch.equal, pred.interval(0.9), own))
    pb.save(model, tmp_path / "m.pocket", lossless=True)
    again = pb.load(tmp_path / "m.pocket", nn.Linear(1, 2, bias=False))
    assert all(map(torch.equal, predicted(again, x).interval(), (low, high)))
    one = pb.predict(model, V[0], single=True).interval()
    assert one[0].shape == (2,)


def test_the_temperature_is_in_the_file_and_in_the_state_dict(tmp_path):
    model = classifier()
    update_description(model, temperature=1.7)
    pb.save(model, tmp_path / "m.pocket", lossless=True)
    again = pb.load(tmp_path / "m.pocket", nn.Linear(3, 3, bias=False))
    other = classifier()
    other.load_state_dict(model.state_dict())
    for copied in (again, other):
        assert describe(copied).temperature == 1.7
        assert torch.equal(predicted(copied).probs, predicted(model).probs)
    summary = pb.inspect(tmp_path / "m.pocket")
    assert (summary.temperature, summary.conformal) == (1.7, None)
    assert "temperature      1.7" in str(summary)


def test_an_ensemble_is_calibrated_as_one(tmp_path):
    model = Ensemble([classifier(), classifier(0.3)])
    data = labelled(500)
    pb.conformal(pb.temperature_(model, data), labelled(300, 10))
    assert 2 < describe(model).temperature < 8
    pb.save(model, tmp_path / "m.pocket", lossless=True)
    again = pb.load(tmp_path / "m.pocket", nn.Linear(3, 3, bias=False))
    assert torch.equal(predicted(again).prediction_set, predicted(model).prediction_set)


def fitted(model):
    pb.fit(model, labelled(100), **OPTIONS)


def refreshed(model):
    pb.refresh_noise_(model, measured(100))


CHANGES = {
    "fit": (classifier, fitted),
    "prune_": (classifier, lambda model: pb.prune_(model, 0.5)),
    "quantize_": (classifier, pb.quantize_),
    "refresh_noise_": (regressor, refreshed),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_changes_forgets_its_calibration(change):
    make, act = CHANGES[change]
    model = make()
    update_description(model, temperature=2.0, conformal={"level": 0.9})
    with pytest.warns(UserWarning, match="temperature and conformal calibration was dropped"):
        act(model)
    assert (describe(model).temperature, describe(model).conformal) == (None, None)


def test_a_new_temperature_ends_the_old_promise():
    model, data = classifier(), labelled(300)
    pb.temperature_(model, data, generator=seeded())
    found = describe(model).temperature
    pb.conformal(model, data)
    pb.temperature_(model, data, generator=seeded())
    assert describe(model).temperature == found  # from the draws as they are, not tempered twice
    assert describe(model).conformal is None


def test_other_draws_than_calibrated_are_pointed_out():
    model = classifier()
    pb.conformal(model, labelled(300), num_samples=20)
    with pytest.warns(UserWarning, match="calibrated with 20 draws, predicted with 5"):
        _ = pb.predict(model, X, num_samples=5).prediction_set
    _ = pb.predict(model, X, num_samples=20).prediction_set


@pytest.mark.filterwarnings("ignore:the one-pass head did not learn")  # in three steps
@pytest.mark.parametrize("make", [classifier, regressor])
@pytest.mark.parametrize("stored", [False, True])
def test_another_estimator_than_calibrated_is_pointed_out(make, stored, tmp_path):
    """By itself a distilled model takes one pass; draws then have another coverage."""
    model, data = make(), (labelled if make is classifier else measured)(300)
    pb.distill_(model, data, 1)
    pb.conformal(model, data)
    assert describe(model).conformal["estimator"] == "one_pass"
    if stored:
        pb.save(model, tmp_path / "m.pocket", lossless=True)
        model = pb.load(
            tmp_path / "m.pocket", nn.Linear(*(3, 3) if make is classifier else (1, 2), bias=False)
        )

    def promised(**options):
        pred = pb.predict(model, data[0][0], **options)
        return pred.prediction_set if make is classifier else pred.interval()

    promised()
    with pytest.warns(UserWarning, match='by estimator="one_pass", predicted by "weight"'):
        promised(estimator="weight")


def test_a_promise_from_before_estimators_were_kept_is_silent():
    model = classifier()
    pb.conformal(model, labelled(300))
    known = dict(describe(model).conformal)
    assert known.pop("estimator") == "lrt"
    update_description(model, conformal=known)
    assert Conformal.from_facts(known).to_facts() == known
    _ = pb.predict(model, X, estimator="weight").prediction_set


@pytest.mark.parametrize("calibrate", [pb.temperature_, pb.conformal])
def test_calibration_takes_no_number_of_draws_that_differs_by_example(calibrate):
    with pytest.raises(pb.PocketBayesError, match=rf"{calibrate.__name__} needs the same number"):
        calibrate(classifier(), labelled(100), num_samples="auto")


def test_calibration_needs_data_it_can_use():
    model = classifier()
    with pytest.raises(pb.PocketBayesError, match=r"call pb\.conformal"):
        _ = predicted(model).prediction_set
    with pytest.raises(pb.DataError, match="8 examples cannot promise"):
        pb.conformal(model, [(X[:8], torch.zeros(8, dtype=torch.long))])
    for act in (pb.temperature_, pb.conformal):
        with pytest.raises(pb.DataError, match="empty"):
            act(model, [])
        with pytest.raises(pb.DataError, match="pass a DataLoader"):
            act(model, 3)
        with pytest.raises(pb.DataError, match="label 3 is out of range"):
            act(model, [(X, torch.full((50,), 3))])
        with pytest.raises(pb.DataError, match="it holds nan"):
            act(model, [(X * math.nan, torch.zeros(50, dtype=torch.long))])
    plain = pb.bayesianize_(nn.Linear(1, 2))
    pb.fit(plain, measured(100), pb.Deterministic(), **OPTIONS)
    for act in (pb.temperature_, pb.conformal):
        with pytest.raises(pb.PocketBayesError, match='likelihood="gaussian"'):
            act(copy.deepcopy(plain), measured(100), likelihood="gaussian")
    image = pb.bayesianize_(nn.Conv2d(1, 3, 1))
    with pytest.raises(pb.DataError, match="not exchangeable"):
        pb.conformal(image, [(torch.randn(30, 1, 2, 2), torch.zeros(30, 2, 2, dtype=torch.long))])
    assert describe(model).temperature is None
    assert describe(model).conformal is None


GOOD = {"level": 0.9, "threshold": [0.5], "shape": [], "examples": 9, "num_samples": 1}


@pytest.mark.parametrize("wrong", [
    {"temperature": 0}, {"temperature": -1.0}, {"temperature": "2"}, {"temperature": True},
    {"temperature": math.inf}, {"temperature": [1.0]}, {"conformal": []}, {"conformal": {}},
    {"conformal": GOOD | {"level": 1.0}}, {"conformal": GOOD | {"threshold": [0.5, 0.5]}},
    {"conformal": GOOD | {"threshold": ["a"]}}, {"conformal": GOOD | {"shape": [10**12]}},
    {"conformal": GOOD | {"shape": [1.5]}}, {"conformal": GOOD | {"examples": 0}},
    {"conformal": GOOD | {"estimator": "guess"}}, {"conformal": GOOD | {"estimator": ["lrt"]}},
    {"conformal": GOOD | {"estimator": None}}, {"conformal": GOOD | {"estimator": {}}},
    {"conformal": GOOD | {"more": 1}}, {"conformal": GOOD | {"threshold": [-1.0]}},
])  # fmt: skip
def test_a_hostile_file_is_refused(wrong):
    for told in ({}, *({"estimator": name} for name in (*PREDICTIVES, "none"))):
        good = {"temperature": 2, "conformal": GOOD | told}
        assert model_in({"model": good}).conformal == GOOD | told
    with pytest.raises(pb.FormatError, match=rf"model\.{next(iter(wrong))}"):
        model_in({"model": wrong})


def of_kind(likelihood, number, seed):
    """Batches of targets for the network that says 0.5 x, or (0.5 x, 0)."""
    x = torch.randn(number, 1, generator=seeded(seed))
    noise = torch.randn(number, 1, generator=seeded(seed + 1))
    if likelihood == "bernoulli":
        y = (torch.rand(x.shape, generator=seeded(seed + 2)) < (4 * x).sigmoid()).float()
    elif likelihood in ("poisson", "negative-binomial"):
        y = torch.poisson((0.5 * x + noise).exp(), generator=seeded(seed + 2))
    else:
        y = 0.5 * x + 3 * noise
    return list(zip(x.split(100), y.split(100), strict=True))


def model_of(likelihood):
    outputs = 2 if likelihood == "heteroscedastic" else 1
    net = nn.Linear(1, outputs, bias=False)
    net.weight.data.copy_(torch.tensor([[0.5], [0.0]])[:outputs])
    model = pb.bayesianize_(net, std_init=0.01, prior_std=1.0)
    data = of_kind(likelihood, 500, 3)
    if LIKELIHOODS[likelihood].is_standardised:
        data = [(x, 0.5 * x + (y - 0.5 * x) / 3) for x, y in data]
    pb.fit(model, data, pb.MeanField(), likelihood=likelihood, **OPTIONS)
    return pb.refresh_noise_(model, data)


@pytest.mark.parametrize("likelihood", ["heteroscedastic", "student-t"])
def test_spreads_of_other_values_are_widened(likelihood):
    """The noise is 3 times what the model says: 5 standard errors are 8%, and 8% of its own."""
    model = model_of(likelihood)
    plain = predicted(model, V)
    pb.temperature_(model, of_kind(likelihood, 2000, 30), generator=seeded())
    factor = describe(model).temperature
    assert factor == pytest.approx(3.0, rel=0.16)
    wide = predicted(model, V)
    torch.testing.assert_close(wide.mean, plain.mean)
    torch.testing.assert_close(wide.std, factor * plain.std)
    for found, bound in zip(wide.interval(0.9), plain.interval(0.9), strict=True):
        expected = plain.mean + factor * (bound - plain.mean)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_labels_have_a_temperature_and_counts_have_none():
    """Labels come from logits 8 times as large: 5 standard errors of T are below 30%."""
    model, data = model_of("bernoulli"), of_kind("bernoulli", 4000, 30)
    before = pb.evaluate(model, data, generator=seeded())
    pb.temperature_(model, data, generator=seeded())
    assert describe(model).temperature == pytest.approx(1 / 8, rel=0.3)
    assert pb.evaluate(model, data, generator=seeded()).nll < before.nll - 0.1
    with pytest.raises(pb.PocketBayesError, match="several labels"):
        pb.conformal(model, data)
    for counts in ("poisson", "negative-binomial"):
        with pytest.raises(pb.PocketBayesError, match="no temperature"):
            pb.temperature_(model_of(counts), of_kind(counts, 100, 30))


@pytest.mark.parametrize(
    "likelihood", ["heteroscedastic", "student-t", "poisson", "negative-binomial"]
)
def test_intervals_of_every_likelihood_cover_as_promised(likelihood, tmp_path):
    """Of 4,000 new values, given 399: 5 standard errors are 0.11; counts, with ties, cover more."""
    model = model_of(likelihood)
    pb.conformal(model, of_kind(likelihood, 399, 10), level=0.8, generator=seeded())
    x, y = (torch.cat(parts) for parts in zip(*of_kind(likelihood, 4000, 20), strict=True))
    pred = predicted(model, x)
    low, high = pred.interval()
    covered = float(((low <= y) & (y <= high)).double().mean())
    assert 0.8 - 0.11 < covered < (0.95 if pred.parts.is_whole else 0.8 + 0.11)
    if pred.parts.is_whole:
        assert all(torch.equal(bound, bound.round()) for bound in (low, high))
        assert ((low >= 0) & (low <= high)).all()
    pb.save(model, tmp_path / "m.pocket", lossless=True)
    again = pb.load(
        tmp_path / "m.pocket", nn.Linear(1, 2 if "het" in likelihood else 1, bias=False)
    )
    assert all(map(torch.equal, predicted(again, x).interval(), (low, high)))


def test_counts_that_meet_the_bound_are_inside():
    """All have one mean: nearly every count ties with the score of a calibration example."""
    model = model_of("poisson")
    counts = torch.arange(10).repeat(10).float().unsqueeze(1)
    for level in (0.2, 0.5, 0.7, 0.9):
        pb.conformal(model, [(torch.ones(100, 1), counts)], level=level, estimator="mean")
        low, high = pb.predict(model, torch.ones(100, 1), estimator="mean").interval()
        assert float(((low <= counts) & (counts <= high)).double().mean()) >= level


def test_masked_labels_do_not_count():
    model, data = classifier(), labelled(399)
    masked = [(torch.cat([x, x]), torch.cat([y, torch.full_like(y, -100)])) for x, y in data]
    for act in (pb.temperature_, pb.conformal):
        act(model, data, estimator="mean")
        exact = describe(model)
        act(model, masked, estimator="mean")
        assert describe(model).temperature == pytest.approx(exact.temperature)
        assert describe(model).conformal == exact.conformal


def test_calibration_takes_batches_as_fit_does():
    model, named = classifier(), [{"input": x, "labels": y.numpy()} for x, y in labelled(399)]
    for act in (pb.temperature_, pb.conformal):
        act(model, named, estimator="mean")
        found = describe(model)
        act(model, labelled(399), estimator="mean")
        assert describe(model) == found
