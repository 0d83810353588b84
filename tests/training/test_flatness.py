"""Sharpness-aware steps: gradients from the worst means nearby, and nothing else changed."""

import os
import signal
from dataclasses import replace

import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.training.flatness import at_worst_means

PLAIN = {"optimizer": "sgd", "lr": 0.1, "momentum": 0.0, "lr_warmup": 0.0, "warmup": 0.0}


def noisy_network():
    """All that draws or remembers: noise of weights, dropout, the statistics of a norm."""
    torch.manual_seed(0)
    layers = nn.Linear(5, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3)
    return pb.bayesianize_(nn.Sequential(*layers).double(), std_init=0.05)


def batches():
    x = torch.randn(48, 5, generator=torch.Generator().manual_seed(0)).double()
    return list(zip(x.split(8), x[:, :3].argmax(1).split(8), strict=True))


def fit(model, loader, method, **options):
    options = {"epochs": 3, "progress": False, "device": "cpu"} | options
    return pb.fit(model, loader, method, **options)


def test_gradients_are_those_at_the_shifted_means_which_come_back():
    a, b = (nn.Parameter(torch.tensor([value])) for value in (0.3, 0.4))
    kept = [p.detach().clone() for p in (a, b)]
    (a.square() + b.square()).div(2).sum().backward()
    with at_worst_means([a, b], 0.1):
        assert torch.stack([a, b]).flatten().tolist() == pytest.approx([0.36, 0.48])
    assert [p.detach() for p in (a, b)] == kept


def test_where_the_gradient_is_zero_or_missing_means_stay():
    a, frozen = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    a.grad = torch.zeros(2)
    with at_worst_means([a, frozen], 0.1):
        assert torch.equal(a, torch.ones(2))
        assert torch.equal(frozen, torch.ones(2))
    with at_worst_means([], 0.1):
        pass


def step_of(flatness, accumulate=1):
    """How far one step takes the weights (3, 4) of a loss that is least at 0."""
    net = nn.Linear(2, 1, bias=False).double()
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[3.0, 4.0]]))
    model = pb.bayesianize_(net, estimator="mean", std_init=1e-3)
    ((_, posterior),) = pb.named_posteriors(model)
    before = posterior.mean.detach().clone()
    x, y = torch.eye(2).double(), torch.zeros(2, 1).double()
    loader = list(zip(x.split(2 // accumulate), y.split(2 // accumulate), strict=True))
    method = pb.MeanField(beta=0.0, flatness=flatness, **PLAIN)
    options = {"epochs": 1, "likelihood": "gaussian", "accumulate": accumulate}
    fit(model, loader, method, **options)
    return (before - posterior.mean).detach().flatten()


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_step_on_a_quadratic_is_known(accumulate):
    """The gradient c w at w + r w / |w| is c w (1 + r / |w|), and |w| is 5."""
    plain = step_of(0.0)
    assert (plain > 0).all()
    torch.testing.assert_close(step_of(0.5, accumulate), 1.1 * plain)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_as_the_radius_falls_steps_become_plain_ones(accumulate):
    """Both passes have the same draws, later ones those of a plain run; norms see one pass."""
    methods = [pb.MeanField(lr=0.1, beta=0.1, flatness=flatness) for flatness in (0.0, 1e-40, 0.1)]
    runs = [fit(noisy_network(), batches(), m, accumulate=accumulate) for m in methods]
    plain, near, far = (list(run.model.state_dict().values()) for run in runs)
    torch.testing.assert_close(near, plain, rtol=0, atol=0)
    assert runs[0].history[-1]["loss"] == runs[1].history[-1]["loss"]
    assert runs[0].history[-1]["step"] == runs[2].history[-1]["step"]
    assert not torch.equal(far[0], plain[0])


@pytest.mark.parametrize(("flatness", "passes"), [(0.0, 1), (0.1, 2)])
def test_a_plain_step_takes_one_pass_and_a_flat_one_two(flatness, passes):
    model, seen = noisy_network(), []
    model[0].register_forward_hook(lambda layer, x, out: seen.append(out.requires_grad))
    fit(model, batches(), pb.MeanField(lr=1e-3, beta=0.1, flatness=flatness), epochs=2)
    assert sum(seen) == 2 * 6 * passes


def test_a_run_that_was_stopped_within_a_step_goes_on_as_if_it_was_not(tmp_path):
    method = pb.MeanField(lr=0.01, beta=0.1, flatness=0.1)
    whole, part, calls = fit(noisy_network(), batches(), method), noisy_network(), []

    def terminate(*_):
        calls.append(1)
        if len(calls) == 16:
            os.kill(os.getpid(), signal.SIGTERM)

    part[0].register_forward_hook(terminate)
    with pytest.raises(SystemExit):
        fit(part, batches(), method, out=tmp_path)
    with pytest.raises(pb.TrainingError, match=r"flatness=0\.1, this call has 0\.0"):
        fit(noisy_network(), batches(), replace(method, flatness=0.0), out=tmp_path, resume=True)
    resumed = fit(noisy_network(), batches(), method, out=tmp_path, resume=True)
    wanted = whole.model.state_dict()
    torch.testing.assert_close(resumed.model.state_dict(), wanted, rtol=0, atol=0)


@pytest.mark.parametrize("wrong", [-0.1, float("nan"), "much", None])
def test_a_radius_is_a_number_from_0_on(wrong):
    with pytest.raises(pb.PocketBayesError, match=r"MeanField\.flatness"):
        pb.MeanField(flatness=wrong)


def test_parts_of_gradients_have_no_length():
    method = pb.MeanField(flatness=0.1)
    with pytest.raises(pb.PocketBayesError, match=r"MeanField\.flatness.*strategy=\"ddp\""):
        fit(noisy_network(), batches(), method, strategy="fsdp")
