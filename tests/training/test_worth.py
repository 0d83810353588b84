"""Training that came to nothing says so, and pure noise does not cry wolf."""

import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.likelihoods import LIKELIHOODS
from pocketbayes.training.worth import Targets

OUTPUTS = {"categorical": 3, "heteroscedastic": 2, "bernoulli": 2}


def targets(likelihood, rows, generator):
    if likelihood == "categorical":
        return torch.randint(0, 3, (rows,), generator=generator)
    if likelihood == "bernoulli":
        return (torch.rand(rows, 2, generator=generator) < 0.3).float()
    if likelihood in ("poisson", "negative-binomial"):
        return torch.poisson(torch.full((rows, 1), 3.0), generator=generator)
    return torch.randn(rows, 1, generator=generator)


def said(likelihood, x, y, method, epochs, seed=0, **options):
    """What `fit` warns of."""
    torch.manual_seed(seed)
    outputs = OUTPUTS.get(likelihood, 1)
    net = nn.Sequential(nn.Linear(x.shape[1], 16), nn.ReLU(), nn.Linear(16, outputs))
    loader = DataLoader(TensorDataset(x, y), 20, shuffle=True)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        pb.fit(pb.bayesianize_(net), loader, method, epochs=epochs, likelihood=likelihood,
               seed=seed, progress=False, device="cpu", **options)  # fmt: skip
    return [str(warning.message) for warning in found]


def test_what_has_hardly_begun_and_labels_of_places_are_no_fault():
    x, y = torch.randn(60, 5), torch.arange(60) % 3
    assert said("categorical", 1e3 * x, y, pb.Deterministic(lr=10.0), epochs=10) == []
    net = nn.Sequential(nn.Linear(5, 12), nn.Unflatten(1, (3, 4)))
    batches = [(x, torch.randint(0, 3, (60, 4)))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pb.fit(pb.bayesianize_(net), batches, epochs=60, progress=False, device="cpu")


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_pure_noise_is_no_fault(likelihood):
    """28 sets, 4 for each likelihood: without an alarm the rate is below 10.2% (at 95%)."""
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        x, y = torch.randn(60, 5, generator=generator), targets(likelihood, 60, generator)
        method = pb.MeanField(lr=1e-2, beta=(0.1, 1.0)[seed % 2])
        assert said(likelihood, x, y, method, epochs=50, seed=seed) == []


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_a_learning_rate_that_is_far_too_large_is_told(likelihood):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, 5, generator=generator), targets(likelihood, 60, generator)
    method = pb.Deterministic(lr=3.0, optimizer="sgd", clip_norm=100.0)
    if likelihood in ("gaussian", "student-t", "heteroscedastic"):
        method = pb.Deterministic(lr=30.0, std_lr=0.0, clip_norm=None)
    try:
        found = said(likelihood, 30 * x, y, method, epochs=20)
    except pb.TrainingError:  # not finite any more, which is said in other words
        return
    assert any("training came to nothing" in words for words in found)
    assert any("learning rate" in words for words in found)


class NoNumbers(nn.Linear):
    """Far off while it learns, and nothing at all afterwards."""

    def forward(self, x):
        return super().forward(x) * (1e4 if self.training else torch.nan)


def test_a_network_without_finite_answers_is_told():
    x = torch.randn(60, 5, generator=torch.Generator().manual_seed(0))
    model = pb.bayesianize_(nn.Sequential(nn.Linear(5, 4), NoNumbers(4, 3)), exclude="1")
    batches = [(x, torch.arange(60) % 3)]
    with pytest.warns(UserWarning, match="training came to nothing: .* example is nan"):
        pb.fit(model, batches, pb.Deterministic(lr=1e-6), epochs=60, progress=False, device="cpu")


def test_stds_that_drown_what_the_means_know_are_told():
    x = torch.randn(100, 4, generator=torch.Generator().manual_seed(0))
    method = pb.MeanField(lr=3e-3, std_lr=0.0, beta=0.0)
    y = (x[:, 0] > 0).long()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    with pytest.warns(UserWarning, match="their stds drown what they know. Lower beta"):
        pb.fit(
            pb.bayesianize_(net, std_init=3.0),
            [(x, y)],
            method,
            epochs=100,
            progress=False,
            device="cpu",
        )


def test_inputs_that_are_all_the_same_are_told():
    """A linear network, whose step on such inputs goes far beyond its aim."""
    x, y = torch.full((60, 5), 100.0), torch.arange(60) % 3
    method = pb.Deterministic(lr=1.0, optimizer="sgd", momentum=0.0)
    with pytest.warns(UserWarning, match="All inputs are the same"):
        pb.fit(pb.bayesianize_(nn.Linear(5, 3)), list(zip(x.split(20), y.split(20), strict=True)),
               method, epochs=20, progress=False, device="cpu")  # fmt: skip


def test_a_learning_rate_that_is_too_large_for_good_inputs_is_told():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, 5, generator=generator), torch.randn(60, 1, generator=generator)
    method = pb.Deterministic(lr=300.0, std_lr=0.0, clip_norm=None)
    (words,) = said("gaussian", x, y, method, epochs=20)
    assert "learning rate" in words
    assert "standardise" not in words


@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic", "student-t"])
def test_targets_that_are_not_standardised_are_told(likelihood):
    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    (words,) = said(likelihood, x, 1000 * x[:, :1] + 50000, pb.MeanField(), epochs=20)
    assert "Targets have mean 5e+04 and std 875: standardise the targets" in words
    assert "learning rate" not in words


def test_inputs_that_are_not_standardised_are_told():
    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    (words,) = said("categorical", 1e6 * x, x[:, :3].argmax(1), pb.MeanField(), epochs=20)
    assert "standardise the inputs, or lower the learning rate" in words


def test_classes_that_come_late_in_batches_and_epochs_count():
    """Perfect in the end: 6% of labels, the last ones of the later batches."""
    generator, batches = torch.Generator().manual_seed(0), []
    for number in range(63):
        x, y = torch.randn(128, 4, generator=generator), torch.zeros(128).long()
        if number >= 8:
            y[120:], x[120:, 0] = 1, x[120:, 0] + 8
        batches.append((x, y))
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pb.fit(pb.bayesianize_(net), batches, epochs=40, progress=False, device="cpu")


def test_one_class_that_is_known_well_is_no_fault():
    x, y = torch.randn(200, 4), torch.zeros(200).long()
    assert said("categorical", x, y, pb.MeanField(lr=1e-2), epochs=100) == []
    found = Targets(LIKELIHOODS["categorical"])
    found.add(0, y)
    assert found.by_constant(found.total()) == (0.0, 0.02)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_sums_tell_the_best_constant(likelihood):
    """Of all batches; a simpler one where sums cannot tell, which is nearly as good."""
    kind, found = LIKELIHOODS[likelihood], Targets(LIKELIHOODS[likelihood])
    y = targets(likelihood, 500, torch.Generator().manual_seed(0))
    for batch in y.split(7):
        found.add(0, batch)
    like = torch.zeros(500, OUTPUTS.get(likelihood, 1))
    constant = kind.constant(like, y).expand_as(like)
    expected = float(kind.nll(constant, y, kind.start(constant, y))[0])
    nll, margin = found.by_constant(found.total())
    most = 0.2 if likelihood in ("student-t", "negative-binomial") else 1e-4
    assert abs(nll - expected) < most
    each = found.counted / 500
    assert margin == pytest.approx(0.25 * each)


def test_targets_are_those_of_the_last_epoch_and_take_no_room():
    found = Targets(LIKELIHOODS["gaussian"])
    assert found.total() is None
    for epoch in (0, 1):
        for _ in range(2):
            found.add(epoch, torch.full((1 << 17,), float(epoch)))
    assert found.waiting == []
    assert found.total().tolist() == [2 << 17, 2 << 17, 2 << 17]
    found.add(1, torch.zeros(4, 3))
    assert found.total().isnan().all()
    labels = Targets(LIKELIHOODS["categorical"])
    for batch in (torch.tensor([1, 1, -100]), torch.tensor([[4, 0], [1 << 40, 1]])):
        labels.add(0, batch)
    assert labels.total().tolist() == [1, 3, 0, 0, 1]
