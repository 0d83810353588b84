"""Beta that follows the doubt about labels."""

import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.layers import describe
from pocketbayes.training.doubt import add_labels, doubt_left, entropy_of, share_of_beta


def data(noise, rows=256, seed=0):
    """Two classes by the sign of one input; this share of labels is drawn at random."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 3, generator=generator)
    y = (x[:, 0] > 0).long()
    random = torch.rand(rows, generator=generator) < noise
    y = torch.where(random, torch.randint(0, 2, (rows,), generator=generator), y)
    return DataLoader(TensorDataset(x, y), batch_size=32)


def network(seed=0):
    torch.manual_seed(seed)
    return pb.bayesianize_(nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2)))


def fitted(noise, method=None, **options):
    return pb.fit(network(), data(noise), method, progress=False, **({"epochs": 30} | options))


def test_entropy_is_the_nll_of_the_frequencies():
    counts = {}
    add_labels(counts, torch.tensor([0, 0, 1, -100]))
    add_labels(counts, torch.tensor([[2, 0], [-100, 0]]))
    assert counts == {0: 4, 1: 1, 2: 1}
    want = -(4 * math.log(4 / 6) + 2 * math.log(1 / 6))
    assert entropy_of(counts) == pytest.approx(want)
    assert entropy_of({}) == 0


@pytest.mark.parametrize(
    ("entropy", "nll", "kl_each", "want"),
    [(2.0, 0.5, 0.0, 0.25), (2.0, 0.0, 10.0, 0.5), (2.0, 3.0, 0.0, 1.0), (0.0, 0.0, 0.0, 1.0),
     (2.0, 0.0, 0.0, 0.0)],
)  # fmt: skip
def test_doubt_is_a_share_of_the_entropy(entropy, nll, kl_each, want):
    row = {"nll": nll, "kl": 20 * kl_each}
    assert doubt_left(row, 20, entropy) == pytest.approx(want)


def test_positions_count_and_masked_ones_do_not():
    """Random labels at 10 positions, most of them masked: nothing can be known, beta stays."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(128, 3, generator=generator)
    y = torch.randint(2, (128, 10), generator=generator)
    y[torch.rand(y.shape, generator=generator) < 0.8] = -100
    net = nn.Sequential(nn.Linear(3, 20), nn.Unflatten(1, (2, 10)))
    loader = list(zip(x.split(32), y.split(32), strict=True))
    result = pb.fit(pb.bayesianize_(net), loader, epochs=10, progress=False)
    assert result.history[-1]["beta"] > 0.27
    y = (x[:, :1] > 0).long().expand(-1, 10)
    clean = list(zip(x.split(32), y.split(32), strict=True))
    net = nn.Sequential(nn.Linear(3, 20), nn.Unflatten(1, (2, 10)))
    result = pb.fit(pb.bayesianize_(net), clean, pb.MeanField(lr=0.05), epochs=40, progress=False)
    assert result.history[-1]["beta"] < 0.12


def test_the_beta_that_is_told_has_no_warm_up_in_it():
    assert describe(fitted(0.5, epochs=1).model).beta == 0.3


def test_beta_keeps_its_bounds():
    method = pb.MeanField(beta=0.4, least_beta=0.1)
    assert [share_of_beta(method, doubt) for doubt in (0.0, 0.1, 0.5, 1.0)] == [0.25, 0.25, 0.5, 1]
    assert share_of_beta(pb.MeanField(beta=0.4), 0.1) == 1
    assert share_of_beta(pb.MeanField(beta=0.0, least_beta=0.0), 0.1) == 1
    assert share_of_beta(pb.Deterministic(), 0.1) == 1


def test_clean_labels_get_a_smaller_beta_than_noisy_ones():
    clean, noisy = fitted(0.0), fitted(0.8)
    assert clean.method.beta == noisy.method.beta == 0.3
    assert clean.method.least_beta == 0.05
    assert clean.history[-1]["beta"] < 0.1 < 0.2 < noisy.history[-1]["beta"] <= 0.3
    for result in (clean, noisy):
        last = result.history[-1]
        assert describe(result.model).beta == pytest.approx(last["beta"])


def test_each_epoch_goes_by_the_nll_of_the_last():
    loader, method = data(0.3), pb.MeanField(beta=0.5, least_beta=0.01, warmup=0.0)
    history = pb.fit(network(), loader, method, epochs=5, progress=False).history
    counts = {}
    for _, y in loader:
        add_labels(counts, y)
    left = [row["nll"] + 0.1 * row["kl"] / 256 for row in history[:-1]]
    doubts = [1.0] + [min(1.0, nats / (entropy_of(counts) / 256)) for nats in left]
    assert [row["beta"] for row in history] == pytest.approx([0.5 * d for d in doubts], rel=1e-6)


def test_a_beta_that_is_said_stays():
    result = fitted(0.0, pb.MeanField(beta=0.3), epochs=3)
    assert result.method.least_beta is None
    assert result.history[-1]["beta"] == 0.3


def test_inclusion_variables_and_several_labels_keep_one_beta():
    assert fitted(0.0, pb.SpikeSlab(), epochs=1).method.least_beta is None
    x = torch.randn(32, 3)
    model = network()
    result = pb.fit(model, [(x, (x[:, :2] > 0).float())], epochs=1, likelihood="bernoulli",
                    progress=False)  # fmt: skip
    assert (result.method.beta, result.method.least_beta) == (0.1, None)


def test_training_on_begins_with_the_doubt_that_was_left():
    first = fitted(0.0)
    again = pb.fit(first.model, data(0.0), pb.MeanField(warmup=0.0), epochs=2, progress=False)
    assert again.history[0]["beta"] == pytest.approx(first.history[-1]["beta"])
    assert fitted(0.0, pb.MeanField(warmup=0.0), epochs=1).history[0]["beta"] == 0.3


def test_weight_decay_is_told_for_the_last_beta():
    method = pb.MeanField(optimizer="sgd", lr=0.01, weight_decay=1e-3)
    result = fitted(0.5, method, epochs=3)
    want = (result.history[-1]["beta"] / (256 * 1e-3)) ** 0.5
    assert describe(result.model).decay_std == pytest.approx(want)


def test_the_best_epoch_tells_its_own_beta():
    result = fitted(0.5, val_loader=data(0.5, seed=1), keep_best=True)
    row = result.history[result.best_epoch - 1]
    assert describe(result.model).beta == pytest.approx(row["beta"])


def test_a_resumed_run_goes_on_where_doubt_was(tmp_path, monkeypatch):
    """Stopped within the first epoch, in which labels are counted, and again later."""
    whole = fitted(0.3, epochs=4)
    model, loader = network(), data(0.3)
    for stop in (3, 20):
        interrupted_after(stop, monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            pb.fit(model, loader, epochs=4, out=tmp_path, resume=stop > 3, progress=False)
        monkeypatch.undo()
    again = pb.fit(network(), loader, epochs=4, out=tmp_path, resume=True, progress=False)
    assert [r["beta"] for r in again.history] == [r["beta"] for r in whole.history]
    assert [r["nll"] for r in again.history] == [r["nll"] for r in whole.history]


def interrupted_after(steps, monkeypatch):
    from pocketbayes.training.run import Run

    step = Run._step

    def stopping(self, group):
        step(self, group)
        if self.at.step == steps:
            self.at.batch = group[-1][0] + 1
            self.save()
            raise KeyboardInterrupt

    monkeypatch.setattr(Run, "_step", stopping)


def test_own_loops_keep_one_beta():
    model = network()
    x, y = next(iter(data(0.0)))
    pb.loss(model, model(x), y, dataset_size=256).backward()
    assert describe(model).beta == pytest.approx(0.1)


@pytest.mark.parametrize("least", [-0.1, 0.3, float("nan"), "low"])
def test_impossible_bounds_are_refused(least):
    with pytest.raises(pb.PocketBayesError, match="least_beta"):
        pb.MeanField(beta=0.2, least_beta=least)


def test_values_have_no_labels():
    x = torch.randn(32, 3)
    with pytest.raises(pb.PocketBayesError, match=r"least_beta.*gaussian"):
        pb.fit(network(), [(x, x[:, :2])], pb.MeanField(least_beta=0.01), epochs=1,
               likelihood="gaussian", progress=False)  # fmt: skip
