"""SWAG: the Gaussian is that of the snapshots, which lie where they should."""

import itertools
import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.layers.description import noise_log_std
from pocketbayes.posteriors import Gaussian, Point, Sparse

X = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] + 0.5 * torch.randn(64, generator=torch.Generator().manual_seed(1)) > 0).long()


def loader(batch=8):
    return DataLoader(TensorDataset(X, Y), batch, shuffle=True)


def plain():
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))


def net():
    torch.manual_seed(0)
    return pb.bayesianize_(plain())


def fit(model, method, data=None, epochs=4, **options):
    options = {"progress": False, "device": "cpu"} | options
    return pb.fit(model, data or loader(), method, epochs=epochs, **options).model


class Watched(pb.SWAG):
    """Keeps all that it sees."""

    def after_step(self, model, context):
        before = int(context.memory.get("snapshots", 0))
        super().after_step(model, context)
        if int(context.memory.get("snapshots", 0)) > before:
            seen.append(
                (context.progress, {n: p.detach().clone() for n, p in model.named_parameters()})
            )
        return False


seen = []


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_mean_and_variance_are_those_of_the_snapshots(scale):
    seen.clear()
    model = fit(net(), Watched(lr=0.05, wander_from=0.5, snapshots=10, scale=scale))
    assert len(seen) == 10  # of 16 steps
    named = {n: p.detach() for n, p in model.named_parameters()}
    posteriors = dict(pb.named_posteriors(model))
    assert {type(q) for q in posteriors.values()} == {Gaussian}
    for name, parameter in seen[0][1].items():
        values = torch.stack([state[name] for _, state in seen]).double()
        torch.testing.assert_close(named[name].double(), values.mean(0), rtol=1e-4, atol=1e-6)
        if name.endswith("weight.mean"):
            wanted = (scale * values.var(0)).sqrt()
            got = named[name.replace("mean", "log_std")].detach().exp().double()
            torch.testing.assert_close(got, wanted, rtol=2e-3, atol=1e-3 * float(wanted.mean()))
            assert parameter.shape == got.shape


def test_snapshots_are_spread_over_what_is_left_of_training():
    seen.clear()
    fit(net(), Watched(wander_from=0.75, snapshots=4), epochs=8)
    assert [progress for progress, _ in seen] == pytest.approx([0.75, 0.8125, 0.875, 0.9375])
    seen.clear()
    fit(net(), Watched(wander_from=0.5, snapshots=1000), epochs=2)
    assert len(seen) == 8  # every step


def test_the_rate_falls_to_that_of_wandering_and_stays():
    method = pb.SWAG(lr=1.0, wander_from=0.5, wander_lr=0.1, lr_warmup=0.1)
    rates = [method.lr_share(n / 1000) for n in range(1001)]
    assert max(rates) == pytest.approx(1, abs=1e-2)
    assert all(rate == 0.1 for rate in rates[500:])
    assert rates[499] == pytest.approx(0.1, abs=1e-3)
    assert all(a >= b for a, b in itertools.pairwise(rates[60:]))


def test_wandering_has_the_spread_of_its_law():
    """SGD on (w - x)^2 / 2 has variance lr / (2 - lr) Var x; 4,500 snapshots.

    They are correlated over 1 / lr steps, so that about 700 are worth counting: 5 sd are 27%.
    """
    lr, x = 0.3, torch.randn(6000, 1, generator=torch.Generator().manual_seed(3))
    data = DataLoader(TensorDataset(torch.ones(6000, 1), x), 1)
    torch.manual_seed(0)
    model = pb.bayesianize_(nn.Sequential(nn.Linear(1, 1, bias=False)))
    still = {"noise_lr": 0.0, "std_lr": 0.0, "weight_decay": 0.0, "momentum": 0.0}
    method = pb.SWAG(
        lr=lr, optimizer="sgd", wander_from=0.25, wander_lr=1.0, snapshots=4500, **still
    )
    fit(model, method, data, epochs=1, likelihood="gaussian")
    (_, q), *_ = pb.named_posteriors(model)
    rate = lr * math.exp(-2 * noise_log_std(model).item())  # the loss is divided by that variance
    wanted = rate / (2 - rate) * float(x.var())
    assert q.std.square().item() == pytest.approx(wanted, rel=0.27)
    assert q.mean.item() == pytest.approx(0, abs=0.2)


def test_draws_differ_and_the_file_holds_them(tmp_path):
    model = fit(net(), pb.SWAG(lr=0.05))
    assert float(pb.predict(model, X, num_samples=20).epistemic.mean()) > 1e-6
    pb.save(model, tmp_path / "a.pocket")
    again = pb.load(tmp_path / "a.pocket", plain())
    draws = [
        pb.predict(m, X, generator=torch.Generator().manual_seed(1)).probs for m in (model, again)
    ]
    torch.testing.assert_close(*draws, rtol=0, atol=2e-2)


def test_a_sparse_network_keeps_its_support():
    model = fit(net(), pb.RigL(density=0.5, update_every=100))
    zeros = [q.expectation() == 0 for _, q in pb.named_posteriors(model)]
    model = fit(model, pb.SWAG())
    found = [q for _, q in pb.named_posteriors(model)]
    assert any(isinstance(q, Sparse) for q in found)
    for before, q in zip(zeros, found, strict=True):
        assert torch.equal(before, q.expectation() == 0)


def test_too_short_a_run_says_so_and_none_at_all_changes_nothing():
    with pytest.raises(pb.TrainingError, match="train for more epochs"):
        fit(net(), pb.SWAG(wander_from=0.9), epochs=1)
    model = fit(net(), pb.SWAG(), epochs=0)
    assert {type(q) for _, q in pb.named_posteriors(model)} == {Point}
    with pytest.raises(pb.PocketBayesError, match="averages epochs"):
        fit(net(), pb.SWAG(), keep_best=True, val_loader=loader())


def test_an_interrupted_run_ends_as_if_it_had_not_been(tmp_path):
    whole = fit(net(), pb.SWAG(lr=0.05))
    first = {"out": tmp_path, "checkpoint_minutes": 1e-9}

    class Stopped(pb.SWAG):
        def after_step(self, model, context):
            if context.step == 29:
                raise KeyboardInterrupt
            return super().after_step(model, context)

    Stopped.__name__ = "SWAG"
    with pytest.raises(KeyboardInterrupt):
        fit(net(), Stopped(lr=0.05), **first)
    for _ in range(2):  # a finished run, too
        again = fit(net(), pb.SWAG(lr=0.05), resume=True, **first)
        for one, other in zip(
            whole.state_dict().values(), again.state_dict().values(), strict=True
        ):
            assert torch.equal(one, other)
