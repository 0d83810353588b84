"""cSG-MCMC: cycles go on from one another, and noise of the stated size samples the posterior."""

import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.methods import StepContext
from pocketbayes.methods.csg_mcmc import LangevinCycle

X = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


def net():
    torch.manual_seed(0)
    return pb.bayesianize_(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))


def fit(model, method, epochs=2, **options):
    loader = DataLoader(TensorDataset(X, Y), 16, shuffle=True)
    options = {"epochs": epochs, "progress": False, "device": "cpu"} | options
    return pb.fit(model, loader, method, **options).model


def values(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_each_cycle_begins_where_the_last_one_ended():
    """With a rate of almost nothing all members are the network that was given."""
    cycles = fit(net(), pb.CyclicalSGMCMC(members=3, lr=1e-12, temperature=0.0))
    fresh = fit(net(), pb.DeepEnsemble(members=3, lr=1e-12))
    first, *others = cycles.members
    assert all(torch.allclose(values(first), values(m)) for m in others)
    assert not torch.allclose(values(fresh.members[0]), values(fresh.members[1]))
    moved = fit(net(), pb.CyclicalSGMCMC(members=3, temperature=0.0)).members
    distances = [float((values(m) - values(first)).norm()) for m in moved]
    assert distances == sorted(distances)
    assert distances[0] > 0


def test_noise_comes_after_the_first_part_and_has_the_stated_size():
    """Of 2,000 numbers: their variance is within 15% of what it should be (4.7 sigma)."""
    method = LangevinCycle(temperature=0.5, noise_from=0.5, momentum=0.5)
    p = nn.Parameter(torch.zeros(2000))
    optimizer = torch.optim.SGD([p], lr=0.1)
    memory = {"noise": torch.tensor(7.0)}

    def after(step, progress):
        with torch.no_grad():
            p.zero_()
        context = StepContext(step, progress, [optimizer], lambda _: {}, memory, 100, 0.0)
        method.after_step(nn.Module(), context)
        return p.detach().clone()

    assert not after(1, 0.49).any()
    one = after(2, 0.5)
    variance = 2 * 0.5 * (0.1 / 0.5) / 100
    assert float(one.var()) == pytest.approx(variance, rel=0.15)
    assert torch.equal(one, after(2, 0.5))  # of this step
    assert abs(float(torch.corrcoef(torch.stack([one, after(3, 0.5)]))[0, 1])) < 0.12


def test_at_a_constant_rate_it_samples_the_posterior_of_a_quadratic_loss():
    """Of N (w - t)^2 / 2: variance 1 / N, within 15%: 2,000 chains, 4.7 sigma."""
    size = 50
    method = LangevinCycle(temperature=1.0, noise_from=0.0, momentum=0.0)
    w = nn.Parameter(torch.zeros(2000))
    optimizer = torch.optim.SGD([w], lr=0.02)
    memory = {"noise": torch.tensor(1.0)}
    for step in range(1, 400):
        optimizer.zero_grad()
        ((w - 1.0).square() / 2).sum().backward()
        optimizer.step()
        context = StepContext(step, 0.5, [optimizer], lambda _: {}, memory, size, 0.0)
        method.after_step(nn.Module(), context)
    assert float(w.detach().mean()) == pytest.approx(1.0, abs=5 / math.sqrt(size * 2000))
    assert float(w.detach().var()) == pytest.approx(1 / size, rel=0.15)


def test_the_same_seed_gives_the_same_samples():
    one, again, other = (
        fit(net(), pb.CyclicalSGMCMC(members=2, noise_from=0.0), seed=seed) for seed in (3, 3, 4)
    )
    assert torch.equal(values(one), values(again))
    assert not torch.equal(values(one), values(other))


@pytest.mark.parametrize(
    "wrong",
    [{"optimizer": "adamw"}, {"temperature": -1.0}, {"noise_from": 2.0}, {"members": 1}],
    ids=str,
)
def test_settings_that_cannot_be(wrong):
    with pytest.raises(pb.PocketBayesError, match=next(iter(wrong))):
        pb.CyclicalSGMCMC(**wrong)
