"""Steps of several batches: what one batch of all their examples would do, and no more memory."""

import os
import signal

import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.errors import PocketBayesError, TrainingError
from pocketbayes.training import defaults


def batches(*sizes):
    x = torch.randn(sum(sizes), 5, generator=torch.Generator().manual_seed(0)).double()
    y = x[:, :3].argmax(1)
    return list(zip(x.split(sizes), y.split(sizes), strict=True))


def network(estimator="mean"):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3)).double()
    return pb.bayesianize_(net, std_init=0.05, estimator=estimator)


def fit(loader, method=None, model=None, **options):
    method = method or pb.MeanField(lr=0.1, beta=0.1)
    options = {"epochs": 4, "progress": False, "device": "cpu"} | options
    return pb.fit(model or network(), loader, method, **options)


@pytest.mark.parametrize(
    "method",
    [
        pb.MeanField(optimizer="sgd", lr=0.1, beta=0.1, clip_norm=0.2, warmup=0.5),
        pb.MeanField(lr=0.1, beta=0.1, flatness=0.2),
        pb.Subspace(density=0.3, lr=0.05, update_every=2, beta=0.1),
    ],
    ids=["clipped", "flat", "exchanging"],
)
def test_some_batches_do_as_one_of_all_their_examples(method):
    many = fit(batches(8, 8, 8, 8, 8, 4, 3), method, accumulate=3)
    few = fit(batches(24, 20, 3), method)
    assert many.history[-1]["step"] == few.history[-1]["step"] == 12
    for row, other in zip(many.history, few.history, strict=True):
        assert all(
            row[key] == pytest.approx(other[key], rel=1e-9)
            for key in ("epoch", "step", "loss", "nll", "kl", "accuracy", "beta")
        )
    state, other = many.model.state_dict(), few.model.state_dict()
    torch.testing.assert_close(state, other, rtol=1e-8, atol=1e-11)


def test_every_batch_has_draws_of_its_own():
    model, seen = network("weight"), []
    model[0].register_forward_hook(lambda layer, x, out: seen.append(out.detach()))
    x, y = batches(8)[0]
    fit([(x, y), (x, y)], model=model, epochs=1, accumulate=2)
    assert not torch.equal(*seen[-2:])


def test_a_run_stops_after_a_whole_step_and_goes_on_there(tmp_path):
    data, options = batches(*[4] * 6), {"accumulate": 2, "out": tmp_path}
    whole, part = fit(data, model=network("lrt"), accumulate=2), network("lrt")
    calls = []

    def terminate(*_):
        calls.append(1)
        if len(calls) == 10:  # one is for the noise; the first of a step's two
            os.kill(os.getpid(), signal.SIGTERM)

    part.register_forward_hook(terminate)
    with pytest.raises(SystemExit):
        fit(data, model=part, **options)
    with pytest.raises(TrainingError, match="accumulate=2, this call has 3"):
        fit(data, model=network("lrt"), **options | {"accumulate": 3}, resume=True)
    resumed = fit(data, model=network("lrt"), **options, resume=True)
    assert [row["step"] for row in resumed.history] == [3, 6, 9, 12]
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_default_epochs_count_steps(monkeypatch):
    monkeypatch.setattr(defaults, "_EPOCHS", 1)
    monkeypatch.setattr(defaults, "_LEAST_STEPS", {"classes": 20})
    method, loader = pb.MeanField(lr=1e-3), batches(4, 4, 4, 4)
    for accumulate, epochs in ((1, 5), (2, 10), (4, 20)):
        history = fit(loader, method, epochs=None, accumulate=accumulate).history
        assert (len(history), history[-1]["step"]) == (epochs, 20)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "2"])
def test_accumulate_is_a_count(wrong):
    with pytest.raises(PocketBayesError, match="accumulate"):
        fit(batches(4), accumulate=wrong)
