import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.profiler import ProfilerActivity, profile

import pocketbayes as pb
from pocketbayes.likelihoods import LIKELIHOODS, Objective, matched_target


def test_kl_of_a_model_is_the_sum_in_float64_to_1e6():
    model = pb.bayesianize_(nn.Sequential(nn.Linear(30, 20), nn.Linear(20, 5)).double(), 0.07, 0.02)
    for _, q in pb.named_posteriors(model):
        q.log_std.data.uniform_(math.log(1e-12), math.log(1e3))
    want = sum(
        kl_divergence(Normal(q.mean, q.std), Normal(0.0, 0.07)).sum()
        for _, q in pb.named_posteriors(model)
    )
    torch.testing.assert_close(pb.kl(model), want, rtol=1e-6, atol=0)
    pb.kl(model).backward()
    assert all(p.grad is not None for _, q in pb.named_posteriors(model) for p in q.parameters())


def test_kl_needs_a_posterior():
    with pytest.raises(pb.PocketBayesError, match="call bayesianize_"):
        pb.kl(nn.Linear(2, 2))


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 10))
def test_warm_up_rises_from_zero_to_beta_and_stays(progress, warmup, beta):
    value = pb.MeanField(beta=beta, warmup=warmup).kl_weight(progress)
    assert 0 <= value <= beta
    if progress >= warmup:
        assert value == beta
    if progress == 0 and warmup > 0:
        assert value == 0


def test_categorical_likelihood():
    logits, labels = torch.randn(6, 4, 3), torch.randint(4, (6, 3))
    nll, accuracy = LIKELIHOODS["categorical"].nll(logits, labels, {})
    torch.testing.assert_close(nll, F.cross_entropy(logits, labels, reduction="sum") / 6)
    assert accuracy == (logits.argmax(1) == labels).float().mean()
    for wrong in (-1, 4):
        labels[2, 1] = wrong
        assert LIKELIHOODS["categorical"].nll(logits, labels, {})[0].isnan()


def test_gaussian_likelihood():
    output, target = torch.randn(6, 2), torch.randn(6, 2)
    log_std = torch.tensor([0.3, -1.0])
    nll, squared = LIKELIHOODS["gaussian"].nll(output, target, {"noise_log_std": log_std})
    want = -Normal(output, log_std.exp()).log_prob(target).sum(1).mean()
    torch.testing.assert_close(nll, want)
    torch.testing.assert_close(squared, F.mse_loss(output, target))


def test_a_flat_target_goes_with_a_column_and_nothing_broadcasts():
    assert matched_target(torch.zeros(5, 1), torch.zeros(5)).shape == (5, 1)
    with pytest.raises(pb.DataError, match=r"output is \(5, 2\), the target is \(5,\)"):
        matched_target(torch.zeros(5, 2), torch.zeros(5))


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (torch.zeros(3, 2), torch.zeros(3), "must be integers, not torch.float32"),
        (torch.zeros(3, 2), torch.zeros(3, 2, dtype=torch.long), r"labels are \(3, 2\)"),
        (torch.zeros(3), torch.zeros(3, dtype=torch.long), r"output is \(3,\)"),
    ],
)
def test_wrong_labels(logits, labels, message):
    with pytest.raises(pb.DataError, match=message):
        LIKELIHOODS["categorical"].nll(logits, labels, {})


def highest_level(work) -> int:
    """Most bytes that tensors hold at once, above what there is before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
        work()
    level = highest = 0
    found = (e for e in trace.profiler.kineto_results.events() if e.name() == "[memory]")
    for event in sorted(found, key=lambda e: e.start_ns()):
        level += event.nbytes()
        highest = max(highest, level)
    return highest


def test_a_step_holds_gradients_or_draws_and_never_all_of_both():
    """Two gradients of 4 bytes a weight, and a draw, with one layer's numbers besides."""
    model = pb.bayesianize_(nn.Sequential(*(nn.Linear(256, 256) for _ in range(16))), None, 0.01,
                            estimator="weight")  # fmt: skip
    weights = sum(q.shape.numel() for _, q in pb.named_posteriors(model))
    x, y = torch.randn(4, 256), torch.arange(4)
    found = {}
    for first in (True, False):
        objective = Objective(model, "categorical", kl_first=first)
        found[first] = highest_level(lambda: objective(x, y, torch.tensor(1e-3))[0].backward())  # noqa: B023
        model.zero_grad(set_to_none=True)
    assert found[True] < 9.5 * weights
    assert found[False] > 11.5 * weights
