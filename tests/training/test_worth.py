"""Training that came to nothing says so, and pure noise does not cry wolf."""

import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.likelihoods import LIKELIHOODS
from pocketbayes.training.worth import Targets, best_constant

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


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_the_constant_is_the_best_one(likelihood):
    kind = LIKELIHOODS[likelihood]
    y = targets(likelihood, 500, torch.Generator().manual_seed(0))
    constant, learned = best_constant(kind, y)

    def nll(shift):
        return float(
            kind.nll((constant + shift).expand(len(y), *constant.shape[1:]), y, learned)[0]
        )

    for place in range(constant.shape[1]):
        shift = torch.zeros_like(constant)
        shift[0, place] = 0.1
        assert nll(0.0) < min(nll(shift), nll(-shift))


def test_targets_are_those_of_the_last_epoch_and_not_too_many():
    found = Targets(batches=2)
    assert found.together() is None
    for epoch in (0, 1):
        for _ in range(2):
            found.add(epoch, torch.full((5000,), float(epoch)))
    assert found.together().tolist() == [1.0] * 4096
    found.add(2, torch.zeros(1, 1 << 21))
    assert found.together() is None
