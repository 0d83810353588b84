"""As many draws as needed: what the rule promises, who is drawn again, what a prediction holds."""

import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.layers.description import add_noise_parameter, noise_log_std, update_description
from pocketbayes.layers.ensembles import Ensemble
from pocketbayes.prediction import predictives
from pocketbayes.prediction.settling import settled_classes, settled_labels, settled_values
from pocketbayes.prediction.summaries import evened


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def classifier(std=0.2):
    torch.manual_seed(0)
    return pb.bayesianize_(nn.Sequential(nn.Linear(4, 3)), std_init=std, estimator="lrt")


def regressor(std=0.2, noise=-1.0):
    torch.manual_seed(0)
    model = pb.bayesianize_(nn.Sequential(nn.Linear(4, 2)), std_init=std)
    update_description(model, likelihood="gaussian")
    add_noise_parameter(model, (2,))
    noise_log_std(model).data.fill_(noise)
    return model


def mixed_inputs(number=12):
    """Rows whose outputs vary a little, and rows whose outputs vary much, in turns."""
    torch.manual_seed(1)
    sizes = torch.tensor([0.05, 6.0]).repeat(number // 2)
    return torch.randn(number, 4) * sizes.unsqueeze(1)


def auto(model, x, seed=0, **options):
    return pb.predict(model, x, "auto", seeded(seed), **options)


def test_the_rule_on_known_draws():
    torch.manual_seed(0)
    sure = torch.tensor([0.7, 0.2, 0.1]).expand(30, 1, 3)
    assert settled_classes(sure).all()
    tie = sure[..., [0, 0, 2]] + 0.02 * torch.randn(30, 1, 1) * torch.tensor([1.0, -1.0, 0.0])
    assert not settled_classes(tie / tie.sum(2, keepdim=True)).any()  # nobody is ahead
    flips = (torch.arange(30) % 2).float().view(30, 1, 1)
    assert not settled_classes(torch.cat([flips, 1 - flips], 2)).any()
    assert not settled_labels(flips).any()
    assert settled_labels(torch.full((30, 1, 1), 0.6)).all()
    assert settled_classes(sure.unsqueeze(3).expand(30, 1, 3, 5)).shape == (1, 5)


@pytest.mark.parametrize(("spread", "number", "expected"), [
    (0.2, 30, True),  # the noise hides it: error 0.2 / sqrt(30) = 0.036 stds
    (1.0, 30, False),  # 0.13 stds
    (1.0, 960, True),
])  # fmt: skip
def test_values_are_settled_by_errors_in_stds(spread, number, expected):
    torch.manual_seed(0)
    likelihood = pb.likelihoods.LIKELIHOODS["gaussian"]
    draws = spread * torch.randn(number, 50, 1)
    parts = likelihood.distribution(draws, {"noise_log_std": torch.zeros(1)}, dim=2)
    assert settled_values(parts).float().mean() == expected


def noted(monkeypatch):
    seen, draws_of = [], predictives.draws_of

    def counted(passes, x):
        seen.append((len(passes), len(x)))
        return draws_of(passes, x)

    monkeypatch.setattr(predictives, "draws_of", counted)
    return seen


@pytest.mark.parametrize("estimator", ["lrt", "weight"])
def test_settled_examples_are_not_run_again(estimator, monkeypatch):
    seen, model, x = noted(monkeypatch), classifier(), mixed_inputs()
    pred = auto(model, x, estimator=estimator)
    used = pred.samples_used
    assert set(used.tolist()) <= {30, 60, 120, 240, 480, 960}
    assert (used[::2] == 30).all()
    assert used[1::2].float().mean() > 60
    assert pred.num_samples == used.max()
    totals, expected = 30, [(30, 12)]
    while (used > totals).any():
        expected.append((totals, int((used > totals).sum())))
        totals *= 2
    assert seen == expected


def test_answers_are_as_good_as_promised_and_in_their_rows():
    """Against 20,000 draws, 24 rows: 4.5 errors of 0.011, false alarms 1 in 2,000; labels agree."""
    model, x = classifier(), mixed_inputs(24)
    truth = pb.predict(model, x, 20_000, seeded(1))
    pred = auto(model, x, 2)
    done = pred.samples_used < 960
    assert done.sum() > 12
    assert ((pred.probs - truth.probs).abs().amax(1)[done] < 0.05).all()
    assert ((pred.entropy - truth.entropy).abs()[done] < 0.1).all()
    assert (pred.label == truth.label)[done].all()
    torch.testing.assert_close(pred.probs.sum(1), torch.ones(24))


def test_the_same_generator_gives_the_same_answer():
    model, x = classifier(), mixed_inputs()
    first = auto(model, x, keep_samples=True)
    again = auto(model, x, keep_samples=True)
    assert torch.equal(first.samples, again.samples)
    assert torch.equal(first.samples_used, again.samples_used)
    assert first.samples.shape == (first.num_samples, 12, 3)
    torch.testing.assert_close(first.samples.mean(0), first.probs)
    assert not torch.equal(first.probs, auto(model, x, 1).probs)


def test_values_have_mixtures_of_equal_numbers():
    model, x = regressor(), mixed_inputs()
    pred = auto(model, x, batch_size=5)
    assert pred.samples_used.min() < pred.samples_used.max() == pred.num_samples
    assert pred.samples.shape == (pred.num_samples, 12, 2)
    torch.testing.assert_close(pred.samples.mean(0), pred.mean)
    low, high = pred.interval(0.9)
    torch.testing.assert_close(pred.cdf(high) - pred.cdf(low), torch.full((12, 2), 0.9))
    few = pb.predict(model, x, 30, seeded())
    more, same = evened([pb.predict(model, x, 60, seeded()), few])
    assert more.num_samples == same.num_samples == 60
    torch.testing.assert_close(same.cdf(few.mean + 0.3), few.cdf(few.mean + 0.3))
    assert torch.equal(same.epistemic, few.epistemic)


def test_single_examples_loaders_labels_and_ensembles():
    model, x = classifier(), mixed_inputs()
    assert auto(model, x[1]).samples_used.dim() == 0
    parts = auto(model, [x[:5], x[5:]])
    assert parts.samples_used.shape == (12,)
    labels = auto(model, x, likelihood="bernoulli")
    assert labels.probs.shape == (12, 3)
    several = auto(Ensemble([classifier(), classifier(), classifier(0.1), classifier()]), x)
    assert set(several.samples_used.tolist()) <= {32, 64, 128, 256, 512}


def test_what_is_not_drawn_stays_as_it_is(monkeypatch):
    seen, model, x = noted(monkeypatch), classifier(), mixed_inputs()
    assert auto(model, x, estimator="mean").samples_used.unique().tolist() == [1]
    assert seen == [(1, 12)]
    by_moments = auto(model, x, estimator="moments")
    assert torch.equal(by_moments.probs, pb.predict(model, x, 30, estimator="moments").probs)


def test_records_tell_the_most_draws():
    model, x = classifier(), mixed_inputs()
    y = torch.arange(12) % 3
    record = pb.evaluate(model, [(x[:1], y[:1]), (x[1:], y[1:])], "auto", generator=seeded())
    assert record.num_samples > 30
    values = pb.evaluate(regressor(), [(x, torch.randn(12, 2))], "auto", generator=seeded())
    assert values.num_samples > 30


@pytest.mark.parametrize("wrong", ["Auto", "30", 0, -1, 2.5, True, None])
def test_other_numbers_of_draws_are_refused(wrong):
    with pytest.raises(pb.PocketBayesError, match="num_samples must be"):
        pb.predict(classifier(), mixed_inputs(), wrong)


def test_calibration_wants_a_number():
    data = [(mixed_inputs(), torch.arange(12) % 3)]
    for calibrate in (pb.temperature_, pb.conformal):
        with pytest.raises(pb.PocketBayesError, match="the same number of draws"):
            calibrate(classifier(), data, num_samples="auto")
