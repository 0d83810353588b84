"""The best epoch: which one it is, that it is restored whole, and that it survives a resume."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.layers.ensembles import members_of
from pocketbayes.training.best import compare_epoch, has_waited, restore_best_
from pocketbayes.training.run_state import RunState
from pocketbayes.training.settings import Settings


def data(n=60, seed=0, noise=0.4):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=generator)
    y = (x[:, :3] + noise * torch.randn(n, 3, generator=generator)).argmax(1)
    return TensorDataset(x, y)


def network(seed=0):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))
    return pb.bayesianize_(net, std_init=0.01)


VAL = [data(40, seed=1, noise=2.0).tensors]  # far noisier than what it trains on: it overfits
HASTY = {"lr": 3e-2, "beta": 0.0, "warmup": 0.5}


def fit(model, method=None, seen=None, **options):
    rows = data() if seen is None else seen
    options = {"epochs": 8, "progress": False, "keep_best": True, "val_loader": VAL} | options
    loader = DataLoader(rows, 20, shuffle=True)
    return pb.fit(model, loader, method or pb.MeanField(**HASTY), **options)


def state(model):
    return {k: v.clone() for k, v in model.state_dict().items()}


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[k], two[k]) for k in one)


def validation_nll(model, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return pb.evaluate(model, VAL, num_samples=10, generator=generator).nll


def least(history, first=1):
    return min((row for row in history if row["epoch"] >= first), key=lambda row: row["val_nll"])


METHODS = {
    "mean field": pb.MeanField(**HASTY),
    "subspace": pb.Subspace(density=0.4, update_every=2, **HASTY),
    "sizes change": pb.Subspace(density=0.4, update_every=2, allocation="global", **HASTY),
    "rigl": pb.RigL(density=0.4, update_every=2, lr=3e-2),
    "sharing": pb.Sharing(components=20, least_members=2, reassign_every=1, lr=3e-2, beta=0.0),
    "stages": pb.Sharing(components=20, least_members=2, lr=3e-2, beta=0.0, pretrain_epochs=4),
    "spike and slab": pb.SpikeSlab(lr=3e-2, beta=0.01, warmup=0.5),
    "dropout": pb.VariationalDropout(lr=3e-2, warmup=0.5),
    "deterministic": pb.Deterministic(lr=3e-2),
}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_ends_as_it_was_at_its_best(name):
    model, method = network(), METHODS[name]
    result = fit(model, method)
    rows = [row for row in result.history if "stage" not in row]
    first = 1 + next(e for e in range(8) if method.kl_weight(e / 8) == method.kl_weight(1.0))
    best = least(rows, first)
    assert result.best_epoch == best["epoch"] == rows[-1]["best_epoch"]
    assert validation_nll(model) == best["val_nll"]
    assert "best_epoch" not in rows[first - 2] or first == 1


def test_the_last_epoch_was_worse_and_the_norms_come_back_too():
    kept, last = network(), network()
    result = fit(kept)
    fit(last, keep_best=False)
    assert 1 <= result.best_epoch < 8
    assert validation_nll(kept) < validation_nll(last)
    assert not torch.equal(kept[1].running_mean, last[1].running_mean)
    assert kept[1].num_batches_tracked == 3 * result.best_epoch


def test_keeping_the_best_changes_nothing_else():
    rows = [fit(network(), keep_best=kept).history for kept in (True, False)]
    for one, two in zip(*rows, strict=True):
        assert one["loss"] == two["loss"]
        assert one["val_nll"] == two["val_nll"]


def test_the_noise_of_a_regression_comes_back():
    x, y = torch.randn(40, 6, generator=torch.Generator().manual_seed(0)), torch.randn(40, 1)
    val = [(x, 3 * torch.randn(40, 1))]
    torch.manual_seed(0)
    model = pb.bayesianize_(nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1)))
    options = {"val_loader": val, "likelihood": "gaussian", "epochs": 12}
    noises = []

    class Spy(pb.MeanField):
        def after_epoch(self, model, epoch, memory):
            noises.append(model.noise_log_std.detach().clone())

    result = fit(model, Spy(**HASTY), TensorDataset(x, y), **options)
    assert result.best_epoch < 12
    assert torch.equal(model.noise_log_std, noises[result.best_epoch - 1])
    assert not torch.equal(model.noise_log_std, noises[-1])


@pytest.mark.parametrize(
    ("method", "epochs", "counting"),
    [
        (pb.MeanField(beta=0.01, warmup=0.5), 4, [2, 3]),
        (pb.MeanField(beta=0.01, warmup=0.0), 3, [0, 1, 2]),
        (pb.MeanField(beta=0.01, warmup=0.3), 10, [3, 4, 5, 6, 7, 8, 9]),
        (pb.MeanField(beta=0.01, warmup=0.1), 30, list(range(3, 30))),
        (pb.MeanField(beta=0.01, warmup=1.0), 3, [0, 1, 2]),  # never whole: all count
        (pb.MeanField(beta=0.01, warmup=0.5), 1, [0]),
        (pb.Deterministic(), 2, [0, 1]),
    ],
)
def test_epochs_count_once_the_kl_has_its_whole_weight(method, epochs, counting):
    settings = Settings(epochs, "categorical", 0, 9, method, False, 1.0, keep_best=True)
    assert [e for e in range(epochs) if settings.compares(e)] == counting


def test_an_epoch_of_the_warm_up_is_not_taken_though_it_is_better():
    model = network()
    result = fit(model, pb.MeanField(lr=3e-2, beta=1.0, warmup=0.5, prior="fixed"))
    assert least(result.history)["epoch"] <= 4 < result.best_epoch
    assert result.best_epoch == least(result.history, first=5)["epoch"]


class StoppedError(Exception):
    """What ends a run in the middle."""


class Stopping(TensorDataset):
    """Ends the run when so many examples have been read."""

    def __init__(self, examples):
        super().__init__(*data().tensors)
        self.left = examples

    def __getitem__(self, index):
        self.left -= 1
        if self.left == 0:
            raise StoppedError
        return super().__getitem__(index)


@pytest.mark.parametrize("name", ["mean field", "sizes change", "sharing", "stages"])
@pytest.mark.parametrize("examples", [200, 290, 400])
def test_resuming_is_bit_for_bit(tmp_path, name, examples):
    """Interrupted at several places: in the first stage, and while the method looks at data."""
    whole, part = network(), network()
    wanted = fit(whole, METHODS[name])
    options = {"out": tmp_path, "checkpoint_minutes": 1e-9}
    with pytest.raises(StoppedError):
        fit(part, METHODS[name], Stopping(examples), **options)
    fresh = network(seed=5)
    found = fit(fresh, METHODS[name], **options, resume=True)
    assert same(state(fresh), state(whole))
    assert found.best_epoch == wanted.best_epoch
    assert [row.get("best_epoch") for row in found.history] == [
        row.get("best_epoch") for row in wanted.history
    ]


def test_members_of_an_ensemble_keep_their_own():
    result = fit(network(), pb.DeepEnsemble(members=2, lr=3e-2))
    assert result.best_epoch is None
    for number, member in enumerate(members_of(result.model)):
        rows = [row for row in result.history if row["member"] == number]
        assert min(row["val_nll"] for row in rows) in {
            validation_nll(member, seed) for seed in (0, pb.posteriors.mixed_seed(0, 1))
        }
        assert rows[-1]["best_epoch"] == least(rows)["epoch"]


def test_patience_ends_the_run_and_a_resume_does_not_go_on(tmp_path):
    model, patient = network(), network()
    result = fit(model, epochs=40, patience=3, out=tmp_path)
    assert len(result.history) == result.best_epoch + 3 < 40
    again = network(seed=2)
    repeated = fit(again, epochs=40, patience=3, out=tmp_path, resume=True)
    assert same(state(again), state(model))
    assert repeated.best_epoch == result.best_epoch
    assert len(repeated.history) == len(result.history)
    assert len(fit(patient, epochs=5, patience=50).history) == 5


def test_a_checkpoint_of_another_choice_is_refused(tmp_path):
    fit(network(), epochs=2, out=tmp_path)
    with pytest.raises(pb.TrainingError, match="keep_best=True, this call has None"):
        fit(network(), epochs=2, out=tmp_path, resume=True, keep_best=False)
    with pytest.raises(pb.TrainingError, match="patience=None, this call has 4"):
        fit(network(), epochs=2, out=tmp_path, resume=True, patience=4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"val_loader": None}, r"keep_best=True chooses .* pass val_loader=.*never the test set"),
        ({"keep_best": 1}, "keep_best must be True or False"),
        ({"patience": 0}, "patience must be a whole number of at least 1"),
        ({"patience": 3, "keep_best": False}, "add keep_best=True"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(pb.PocketBayesError, match=message):
        fit(network(), **options)


def test_a_nan_is_never_the_best_and_equals_do_not_replace():
    at, model = RunState.at_start(torch.device("cpu"), {}, network(), pb.MeanField()), network()
    compare_epoch(at, model, math.nan)
    assert at.best_epoch is None
    assert not has_waited(at, 1)
    restore_best_(at, model)  # nothing to restore
    before = copy.deepcopy(model.state_dict())
    compare_epoch(at, model, 1.0)
    model[0]._posteriors["weight"].mean.data.add_(1)
    at.epoch = 1
    compare_epoch(at, model, 1.0)
    assert at.best_epoch == 1
    at.epoch = 3
    assert has_waited(at, 2)
    assert not has_waited(at, 3)
    restore_best_(at, model)
    assert same(model.state_dict(), before)
