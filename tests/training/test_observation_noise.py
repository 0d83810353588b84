"""The noise of a regression, estimated anew: known answers, what stays, and what is refused."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.layers.description import add_noise_parameter, noise_log_std, update_description
from pocketbayes.layers.ensembles import Ensemble
from pocketbayes.likelihoods import LIKELIHOODS
from pocketbayes.training.observation_noise import average_noise_


def regression(outputs=2, seed=0, std=1e-3, estimator="lrt"):
    """A linear network with a noise of its own, that was never trained."""
    torch.manual_seed(seed)
    model = pb.bayesianize_(
        nn.Sequential(nn.Linear(3, outputs)), std_init=std, estimator=estimator, bias=False
    )
    add_noise_parameter(model, (outputs,))
    update_description(model, likelihood="gaussian")
    return model


def data(count=100, outputs=2, seed=3):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 3, generator=generator)
    return x, torch.randn(count, outputs, generator=generator) * (1 + torch.arange(outputs))


def in_parts(x, y, cut=60):
    return [(x[:cut], y[:cut]), (x[cut:], y[cut:])]


def variance(model):
    return (2 * noise_log_std(model).detach().float()).exp()


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_every_example_counts_once_and_every_output_for_itself():
    model, (x, y) = regression(estimator="mean"), data()
    assert pb.refresh_noise_(model, in_parts(x, y)) is model
    error = (y - pb.predict(model, x, estimator="mean").mean).square()
    torch.testing.assert_close(variance(model), error.mean(0))
    assert variance(model)[1] > 2 * variance(model)[0]


def test_it_is_where_the_likelihood_is_greatest():
    model, (x, y) = regression(estimator="mean"), data()
    pb.refresh_noise_(model, in_parts(x, y))
    noise = noise_log_std(model)
    LIKELIHOODS["gaussian"].nll(model.eval()(x), y, {"noise_log_std": noise})[0].backward()
    torch.testing.assert_close(noise.grad, torch.zeros(2), atol=1e-5, rtol=0)


def test_draws_of_the_weights_are_part_of_it():
    """E (y - w x)^2 = (y - m x)^2 + s^2 x^2; five standard errors: 1 false alarm in a million."""
    count, std = 20_000, 0.7
    model, (x, y) = regression(1, std=std), data(count, 1)
    around_mean = pb.refresh_noise_(copy.deepcopy(model), [(x, y)], estimator="mean")
    expected = variance(around_mean) + std**2 * x.square().sum(1).mean()
    generator = torch.Generator().manual_seed(1)
    pb.refresh_noise_(model, [(x, y)], generator=generator)
    assert abs(variance(model) / expected - 1) < 5 * math.sqrt(2 / count) * 1.5


def test_members_of_an_ensemble_count_alike():
    members, (x, y) = [regression(seed=seed) for seed in (0, 1)], data()
    alone = [
        variance(pb.refresh_noise_(copy.deepcopy(m), [(x, y)], estimator="mean")) for m in members
    ]
    both = pb.refresh_noise_(Ensemble(members), [(x, y)], estimator="mean")
    torch.testing.assert_close(variance(both), (alone[0] + alone[1]) / 2)


def test_only_the_noise_changes_and_the_generator_determines_it():
    model, (x, y) = regression(std=0.5).train(), data()
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    found = []
    for seed in (1, 1, 2):
        pb.refresh_noise_(model, [(x, y)], generator=torch.Generator().manual_seed(seed))
        found.append(variance(model))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    after = model.state_dict()
    after["noise_log_std"] = before["noise_log_std"]
    assert same(before, after)
    assert torch.equal(state, torch.get_rng_state())
    assert model.training
    assert noise_log_std(model).requires_grad


def test_no_more_batches_are_read_than_asked_for():
    model, (x, y) = regression(estimator="mean"), data()
    other = copy.deepcopy(model)
    pb.refresh_noise_(model, iter(in_parts(x, y)), batches=1)
    pb.refresh_noise_(other, [(x[:60], y[:60])])
    assert torch.equal(variance(model), variance(other))


def test_a_classifier_is_left_as_it_is():
    model = pb.bayesianize_(nn.Linear(3, 2))
    before = copy.deepcopy(model.state_dict())
    pb.refresh_noise_(model, (pytest.fail("was read") for _ in range(1)))
    average_noise_(model)
    assert same(before, model.state_dict())


def test_a_regression_that_became_a_classifier_is_left_as_it_is():
    model, (x, _) = regression(outputs=3), data(64)
    known = {"epochs": 0, "progress": False, "device": "cpu", "likelihood": "categorical"}
    labels = DataLoader(TensorDataset(x, x.argmax(1)), 32)
    pb.fit(model, labels, pb.Sharing(components=4, least_members=1), **known)
    assert torch.equal(noise_log_std(model), torch.zeros(3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_perfect_fit_has_a_finite_noise(dtype):
    model, (x, _) = regression(estimator="mean").to(dtype), data()
    x = x.to(dtype)
    pb.refresh_noise_(model, [(x, pb.predict(model, x, estimator="mean").mean)])
    average_noise_(model)
    assert noise_log_std(model).isfinite().all()
    assert variance(model).max() < 1e-10


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_many_examples_add_up_in_half_precision(dtype):
    model, (x, y) = regression(estimator="mean").to(dtype), data(20_000)
    exact = pb.refresh_noise_(regression(estimator="mean"), [(x, 10 * y)])
    pb.refresh_noise_(model, DataLoader(TensorDataset(x.to(dtype), 10 * y), 100))
    torch.testing.assert_close(
        noise_log_std(model).float(), noise_log_std(exact), atol=0.02, rtol=0
    )


def test_whole_weights_are_drawn_more_than_once_for_a_batch():
    """The mean of 8 draws: its std over seeds is below half of a single draw's."""
    model, (x, y) = regression(1, std=0.7, estimator="weight"), data(64, 1)
    y = torch.zeros_like(y)

    def found(seed):
        generator = torch.Generator().manual_seed(seed)
        return variance(pb.refresh_noise_(model, [(x, y)], generator=generator))

    def single(seed):
        torch.manual_seed(seed)
        return pb.predict(model, x, 1, estimator="weight").mean.square().mean()

    spread = [torch.stack([f(s).reshape(()) for s in range(60)]).std() for f in (found, single)]
    assert spread[0] < spread[1] / 2


def test_truths_are_numbers():
    model, (x, y) = regression(estimator="mean"), data()
    other = pb.refresh_noise_(copy.deepcopy(model), [(x, (y > 0).float())])
    assert torch.equal(variance(pb.refresh_noise_(model, [(x, y > 0)])), variance(other))


X, Y = data(8)


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "is empty"),
        ([(X, Y), (X * math.nan, Y)], "NaN"),
        ([(X, Y), (X, Y * math.inf)], "NaN or infinite"),
        ([(X, Y), (X[:, :2], Y)], "shape"),
        ([(X, Y[:, :1])], "target"),
        ([(X[:, :1].expand(8, 3)[:, None], Y[:, None])], "its noise"),
        ([X], "pairs"),
        ([{"x": X}], "dict"),
        (7, "int"),
    ],
)
def test_what_cannot_be_used_is_refused_and_changes_nothing(batches, message):
    model = regression()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(pb.DataError, match=message):
        pb.refresh_noise_(model, batches)
    assert same(before, model.state_dict())


@pytest.mark.parametrize(
    "options", [{"batches": 0}, {"batches": 1.5}, {"estimator": "guess"}, {"generator": 3}]
)
def test_wrong_arguments(options):
    with pytest.raises(pb.PocketBayesError, match=next(iter(options))):
        pb.refresh_noise_(regression(), [(X, Y)], **options)
    with pytest.raises(pb.PocketBayesError):
        pb.refresh_noise_("model", [(X, Y)])


def curve(count=512):
    """A function with so little noise that a coarse table is far from it."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(count, 4, generator=generator)
    y = (x[:, :1] * x[:, 1:2]).tanh() + x[:, 2:3]
    return DataLoader(TensorDataset(x, y), 64, shuffle=True)


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    model = pb.bayesianize_(net, prior_std=0.3)
    known = {"likelihood": "gaussian", "epochs": 60, "progress": False, "device": "cpu"}
    return pb.fit(model, curve(), pb.MeanField(lr=1e-2, beta=0.01), **known).model


def shared(model, **options):
    method = pb.Sharing(objective="rate_distortion", rate=100.0, components=4, **options)
    known = {"likelihood": "gaussian", "epochs": 0, "progress": False, "device": "cpu"}
    return pb.fit(copy.deepcopy(model), curve(), method, **known).model


def trained_on(model, **rates):
    """The noise and the first log-stds after an epoch."""
    model = copy.deepcopy(model)
    known = {"likelihood": "gaussian", "epochs": 1, "progress": False, "device": "cpu"}
    pb.fit(model, curve(), pb.MeanField(**rates), **known)
    return noise_log_std(model).detach(), next(q for _, q in pb.named_posteriors(model)).log_std


def test_it_learns_at_a_rate_of_its_own(trained):
    noise, stds = trained_on(trained, noise_lr=0.0)
    assert torch.equal(noise, noise_log_std(trained))
    assert not torch.equal(stds, next(q for _, q in pb.named_posteriors(trained)).log_std)
    usual, same_rate, faster = (
        trained_on(trained, std_lr=0.003, noise_lr=rate)[0] for rate in (None, 0.003, 0.03)
    )
    assert torch.equal(usual, same_rate)
    assert not torch.equal(usual, faster)
    method = pb.Sharing(pretrain_epochs=1)
    assert method.stages()[0].noise_rate == method.pretrain_std_lr  # sharing's is for tables


def test_intervals_of_a_shared_network_still_cover(trained):
    generator = torch.Generator().manual_seed(0)
    stale, fresh = (
        pb.evaluate(shared(trained, refresh_norms=refresh), curve(), 20, generator=generator)
        for refresh in (False, True)
    )
    assert stale.coverage_90 < 0.7 < 0.85 < fresh.coverage_90
    assert fresh.nll < stale.nll - 0.5


def test_a_frozen_noise_is_kept(trained):
    model = copy.deepcopy(trained)
    noise_log_std(model).requires_grad_(False)
    assert torch.equal(noise_log_std(shared(model)), noise_log_std(trained))
