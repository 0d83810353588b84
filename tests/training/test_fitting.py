"""Training: it learns, repeats, resumes, and fails well."""

import dataclasses
import json
import math
import os
import signal
import threading
import time

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import pocketbayes as pb
from pocketbayes.layers.description import describe
from pocketbayes.methods import METHODS, Method, lr_scale
from pocketbayes.methods.exchanging import ExchangingMethod
from pocketbayes.training.optimizers import make_optimizers


def blobs(n=120, seed=0):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (n,), generator=generator)
    centres = torch.tensor([[2.0, 0.0], [-1.0, 2.0], [-1.0, -2.0]])
    return TensorDataset(centres[y] + 0.5 * torch.randn(n, 2, generator=generator), y)


def loader(data=None, size=20):
    return DataLoader(data or blobs(), batch_size=size, shuffle=True)


def model(seed=0, dropout=None, **options):
    torch.manual_seed(seed)
    layers = [nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3)]
    if dropout is not None:
        layers.insert(2, nn.Dropout(dropout))
    return pb.bayesianize_(nn.Sequential(*layers), **options)


def fit(net, data=None, **options):
    return pb.fit(
        net, loader() if data is None else data, **{"epochs": 3, "progress": False} | options
    )


def weights(net):
    return torch.cat([p.detach().flatten() for p in net.parameters()])


every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def small(method):
    """The method's config for networks of a few dozen weights."""
    if method is pb.Sharing:
        return method(pretrain_epochs=30, pretrain_lr=1e-2, least_members=1)
    sparse = issubclass(method, ExchangingMethod)
    made = method(density=0.5, update_every=20) if sparse else method()
    if method is pb.SpikeSlab:
        made = method(beta=0.01)
    if method is pb.IVON:
        made = method(step_size=0.3)  # there are few steps
    return dataclasses.replace(made, lr=9e-3, std_lr=3e-2)


@pytest.mark.parametrize("method", [m for m in METHODS.values() if m.trains])
def test_every_method_learns_blobs(method):
    net = model(prior_std=0.5, dropout=0.1)
    several = issubclass(method, pb.DeepEnsemble)
    epochs = 20 if several or method is pb.Sharing else 35
    result = fit(net, epochs=epochs, method=small(method))
    assert (result.model is net) == (not several)
    record = pb.evaluate(result.model, loader(blobs(300, seed=1)), generator=torch.Generator())
    assert record.accuracy > 0.95
    assert record.ece < 0.1
    assert result.history[-1]["nll"] < result.history[0]["nll"]
    assert describe(result.model).likelihood == "categorical"


@every_method
def test_configs_are_frozen_and_know_their_settings(method):
    config = method()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.lr = 1.0
    assert config.settings()["lr"] == config.lr
    json.dumps(config.settings())


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_stds_really_learn_and_means_too(optimizer):
    net = model()
    before = {n: (q.mean.clone(), q.std.clone()) for n, q in pb.named_posteriors(net)}
    lr = 0.05 if optimizer == "sgd" else 3e-3
    method = pb.MeanField(optimizer=optimizer, lr=lr, beta=0.1, clip_norm=5.0)
    fit(net, epochs=30, method=method)
    for name, q in pb.named_posteriors(net):
        assert (q.std / before[name][1]).log().abs().mean() > 0.3
        assert (q.mean - before[name][0]).abs().mean() > 1e-3


def test_the_posterior_of_a_conjugate_model_is_found():
    """One-weight regression with known noise scale: mean and std against the closed form."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 1, generator=generator)
    y = 0.4 * x + 0.5 * torch.randn(200, 1, generator=generator)
    torch.manual_seed(0)
    net = pb.bayesianize_(nn.Linear(1, 1, bias=False), prior_std=0.5, std_init=0.1)
    fit(
        net, loader(TensorDataset(x, y), 50), likelihood="gaussian", epochs=150,
        method=pb.MeanField(beta=1.0, lr=2e-2, std_lr=2e-2),
    )  # fmt: skip
    noise = net.noise_log_std.exp().item() ** 2
    precision = float(x.square().sum()) / noise + 1 / 0.25
    q = dict(pb.named_posteriors(net))["weight"]
    assert q.mean.item() == pytest.approx(float((x * y).sum()) / noise / precision, abs=0.02)
    assert q.std.item() == pytest.approx(precision**-0.5, rel=0.15)
    assert math.sqrt(noise) == pytest.approx(0.5, abs=0.07)


def test_regression_end_to_end():
    x = torch.linspace(-1, 1, 200)[:, None]
    y = torch.sin(3 * x).squeeze(1) + 0.1 * torch.randn(200)
    torch.manual_seed(0)
    net = pb.bayesianize_(nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1)))
    data = DataLoader(TensorDataset(x, y), 20, shuffle=True)
    result = fit(net, data, epochs=60, likelihood="gaussian", method=pb.MeanField(lr=1e-2))
    record = pb.evaluate(net, data, generator=torch.Generator())
    assert record.rmse < 0.2
    assert 0.8 < record.coverage_90 <= 1
    assert "rmse" in result.history[-1]
    assert net.noise_log_std.shape == (1,)


def test_runs_repeat_and_leave_the_global_generators_alone():
    torch.manual_seed(9)
    expected = torch.rand(3)
    one, other, third = model(), model(), model()
    torch.manual_seed(9)
    fit(one)
    assert torch.equal(torch.rand(3), expected)
    torch.rand(50)
    fit(other)
    fit(third, seed=1)
    assert torch.equal(weights(one), weights(other))
    assert not torch.equal(weights(one), weights(third))


def test_the_mode_is_restored_and_gradients_are_dropped():
    net = model().eval()
    fit(net)
    assert not net.training
    assert all(p.grad is None for p in net.parameters())


def test_history_is_returned_and_written(tmp_path):
    result = fit(model(), out=tmp_path / "run", val_loader=loader(blobs(50, seed=3)))
    lines = [json.loads(line) for line in (tmp_path / "run/history.jsonl").read_text().splitlines()]
    assert lines == result.history
    assert [row["epoch"] for row in lines] == [1, 2, 3]
    assert lines[-1]["step"] == 18
    needed = {"loss", "nll", "kl", "accuracy", "examples_per_second", "beta", "lr", "val_nll"}
    assert needed <= lines[0].keys()
    assert 0.05 <= lines[-1]["beta"] <= 0.3
    assert lines[0]["beta"] < lines[-1]["beta"]
    assert lines[-1]["lr"] < lines[0]["lr"]
    assert lines[0]["loss"] == pytest.approx(lines[0]["nll"], rel=0.2)


def test_the_kl_is_scaled_by_the_data_sets_size_whatever_the_batch():
    """With all learning switched off, (loss - nll) N / KL is beta."""
    off = pb.MeanField(lr=0, std_lr=0, beta=0.3, warmup=0)
    for size in (10, 40):
        row = fit(model(), loader(size=size), epochs=1, method=off).history[0]
        assert (row["loss"] - row["nll"]) * 120 / row["kl"] == pytest.approx(0.3, rel=1e-4)
    row = fit(model(), epochs=1, method=off, dataset_size=1000).history[0]
    assert (row["loss"] - row["nll"]) * 1000 / row["kl"] == pytest.approx(0.3, rel=1e-3)


def test_the_kls_weight_rises_in_a_straight_line_and_stays():
    """Over 12 of 24 steps: step k has beta k / 12; an epoch's loss holds the mean of its four."""
    still = pb.MeanField(lr=0, std_lr=0, beta=0.3, warmup=0.5)
    history = fit(model(), loader(size=30), epochs=6, method=still).history
    felt = [(row["loss"] - row["nll"]) * 120 / row["kl"] for row in history]
    wanted = [0.3 * min(1, k / 12) for k in range(24)]
    wanted = [sum(wanted[4 * e : 4 * e + 4]) / 4 for e in range(6)]
    assert felt == pytest.approx(wanted, rel=1e-3)
    assert [still.kl_weight(p) for p in (0, 0.125, 0.25, 0.5, 1)] == [0, 0.075, 0.15, 0.3, 0.3]


@pytest.fixture
def _listens_to_ctrl_c():
    """As in a terminal, also where the tests run as a job in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class StopAfter(Dataset):
    """Interrupts training when it has handed out so many examples."""

    def __init__(self, examples, action):
        self.data, self.left, self.action = blobs(), examples, action

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        self.left -= 1
        if self.left == 0:
            self.action()
        x, y = self.data[index]
        return x + 0.1 * torch.randn(2), y  # augmentation draws from the default generator


@pytest.mark.usefixtures("_listens_to_ctrl_c")
@pytest.mark.parametrize(
    ("examples", "optimizer"),
    [(30, "adamw"), (90, "sgd"), (130, "adamw"), (230, "sgd"), (359, "adamw"), (359, "sgd")],
)
def test_ctrl_c_saves_and_resuming_is_bit_for_bit(tmp_path, capsys, examples, optimizer):
    method = pb.MeanField(optimizer=optimizer, lr=3e-3)
    whole, part = model(), model()
    expected = fit(whole, loader(StopAfter(-1, None)), method=method)

    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        fit(part, loader(StopAfter(examples, interrupt)), method=method, out=tmp_path)
    assert "resume=True" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    fresh = model(seed=5)
    result = fit(fresh, loader(StopAfter(-1, None)), method=method, out=tmp_path, resume=True)
    assert torch.equal(weights(fresh), weights(whole))
    timing = ("seconds", "examples_per_second")
    for got, want in zip(result.history, expected.history, strict=True):
        assert {k: v for k, v in got.items() if k not in timing} == {
            k: v for k, v in want.items() if k not in timing
        }


def test_a_job_that_ignores_ctrl_c_goes_on_ignoring_it():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        data = StopAfter(30, lambda: os.kill(os.getpid(), signal.SIGINT))
        assert len(fit(model(), loader(data)).history) == 3
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_finished_run_can_be_resumed_and_does_nothing(tmp_path):
    net = model()
    fit(net, out=tmp_path)
    again = model(seed=3)
    result = fit(again, out=tmp_path, resume=True)
    assert torch.equal(weights(net), weights(again))
    assert len(result.history) == 3


def test_checkpoints_are_written_in_time(tmp_path):
    seen = []

    class Slow(StopAfter):
        def __getitem__(self, index):
            time.sleep(0.001)
            seen.append((tmp_path / "checkpoint.pt").exists())
            return super().__getitem__(index)

    fit(model(), loader(Slow(-1, None)), out=tmp_path, checkpoint_minutes=0.0005, epochs=2)
    assert True in seen[:200]


def test_resume_refuses_other_settings_and_damaged_files(tmp_path):
    with pytest.raises(pb.TrainingError, match="no checkpoint at"):
        fit(model(), out=tmp_path, resume=True)
    with pytest.raises(pb.PocketBayesError, match="needs out="):
        fit(model(), resume=True)
    fit(model(), out=tmp_path)
    with pytest.raises(pb.TrainingError, match="made with seed=0, this call has 4"):
        fit(model(), out=tmp_path, resume=True, seed=4)
    with pytest.raises(pb.TrainingError, match="lr="):
        fit(model(), out=tmp_path, resume=True, method=pb.MeanField(lr=0.5))
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(pb.TrainingError, match="damaged"):
        fit(model(), out=tmp_path, resume=True)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(pb.TrainingError, match="damaged"):
        fit(model(), out=tmp_path, resume=True)


def test_a_failed_write_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    fit(model(), out=tmp_path)
    before = (tmp_path / "checkpoint.pt").read_bytes()

    def full(state, file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.warns(UserWarning, match="No space"):
        fit(model(), out=tmp_path)
    assert (tmp_path / "checkpoint.pt").read_bytes() == before
    assert {p.name for p in tmp_path.iterdir()} == {"checkpoint.pt", "history.jsonl", ".lock"}


def test_an_unwritable_directory_fails_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(pb.TrainingError, match="cannot write to"):
        fit(model(), out=tmp_path / "file" / "run")


def nan_at(step):
    data = blobs()
    data.tensors[0][step] = float("nan")
    return data


def test_a_nan_in_the_data_is_named():
    with pytest.raises(pb.DataError, match=r"batch of step \d+ .* row \d+ of the input is not"):
        fit(model(), loader(nan_at(50)))


def test_a_layer_that_overflows_is_named(tmp_path):
    class Overflow(nn.Module):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return x if self.calls < 8 else x * float("inf")

    torch.manual_seed(0)
    net = pb.bayesianize_(nn.Sequential(nn.Linear(2, 8), Overflow(), nn.Linear(8, 3)))
    with pytest.raises(pb.TrainingError) as error:
        fit(net, method=pb.MeanField(lr=3e-3), out=tmp_path, checkpoint_minutes=1e-9)
    message = str(error.value)
    assert "step 8 (epoch 2)" in message
    assert "layer 1 (Overflow) is the first" in message
    assert f"The last good checkpoint is {tmp_path / 'checkpoint.pt'}" in message
    assert all(p.isfinite().all() for p in net.parameters())


@pytest.mark.parametrize("wrong", [-1, 3, 77])
def test_a_label_out_of_range_is_named(wrong):
    data = blobs()
    data.tensors[1][60] = wrong
    with pytest.raises(pb.DataError, match=f"label {wrong} is out of range: .* 3 outputs") as error:
        fit(model(), loader(data))
    assert "Labels count from 0" in str(error.value)
    assert "learning rate" not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epochs": -1}, "epochs must be a whole number"),
        ({"likelihood": "normal"}, "likelihood must be one of categorical, gaussian"),
        ({"precision": "fp8"}, "precision must be one of"),
        ({"device": "tpu"}, "device must be one of"),
        ({"method": "mean-field"}, "method must be a config"),
        ({"checkpoint_minutes": 0}, "checkpoint_minutes"),
        ({"dataset_size": 0}, "dataset_size"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(pb.PocketBayesError, match=message):
        fit(model(), **arguments)


@pytest.mark.parametrize(
    "field",
    [
        {"beta": -1}, {"beta": float("nan")}, {"lr": "fast"}, {"std_lr": -0.1}, {"noise_lr": -0.1},
        {"warmup": 1.5}, {"lr_warmup": 1.0},
        {"optimizer": "lion"}, {"momentum": 1.0}, {"clip_norm": 0}, {"weight_decay": -1},
    ],
)  # fmt: skip
def test_bad_configs(field):
    (name,) = field
    with pytest.raises(pb.PocketBayesError, match=rf"MeanField\.{name} must be"):
        pb.MeanField(**field)


def test_bad_data_and_models():
    with pytest.raises(pb.PocketBayesError, match="call bayesianize_"):
        fit(nn.Linear(2, 3))
    with pytest.raises(pb.DataError, match="a dict with keys"):
        fit(model(), [{"x": torch.zeros(2, 2), "z": torch.zeros(2)}])
    with pytest.raises(pb.DataError, match="empty"):
        fit(model(), DataLoader(TensorDataset(torch.zeros(0, 2), torch.zeros(0))))
    with pytest.raises(pb.DataError, match="empty"):
        fit(model(), DataLoader(blobs(5), batch_size=50, drop_last=True))
    with pytest.raises(pb.DataError, match="labels are"):
        fit(model(), [(torch.zeros(4, 2), torch.zeros(4, 5, dtype=torch.long))])
    frozen = model()
    frozen.requires_grad_(False)
    with pytest.raises(pb.PocketBayesError, match="nothing to train"):
        fit(frozen)


def test_learning_rates_rise_to_their_peak_and_fall_to_zero():
    steps = [lr_scale(n / 1000, 0.1) for n in range(1001)]
    assert steps[0] < 0.02
    assert steps[100] == 1
    assert steps[:101] == sorted(steps[:101])
    assert steps[100:] == sorted(steps[100:], reverse=True)
    assert steps[-1] == pytest.approx(0)
    assert lr_scale(0.0, 0.0) == 1


def test_every_trained_parameter_is_in_one_optimiser_once():
    net = pb.bayesianize_(nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)))
    net[0].bias.requires_grad_(False)
    means, stds = make_optimizers(net, pb.MeanField(lr=1e-3, weight_decay=0.1))
    grouped = [p for o in (means, stds) for g in o.param_groups for p in g["params"]]
    assert sorted(map(id, grouped)) == sorted(id(p) for p in net.parameters() if p.requires_grad)
    decay = {id(p): g["weight_decay"] for g in means.param_groups for p in g["params"]}
    assert decay[id(net[0]._posteriors["weight"].mean)] == 0.1
    assert decay[id(net[1].weight)] == 0


def test_a_result_is_told_in_a_line():
    result = fit(model(), epochs=2, method=pb.MeanField(), val_loader=loader(blobs(50, seed=3)))
    last, words = result.history[-1], repr(result)
    assert words.startswith("FitResult(Sequential by MeanField, 2 epochs, ")
    assert f"{last['step']} steps" in words
    for name in ("loss", "nll", "kl", "accuracy", "val_nll"):
        assert f"{name} {last[name]:.4g}" in words
    assert "rmse" not in words
    assert "\n" not in words
    untrained = fit(model(), epochs=0, method=pb.Deterministic())
    assert repr(untrained).startswith("FitResult(Sequential by Deterministic, 0 epochs, 0 steps")


def test_no_epochs_prepare_the_model_and_change_no_weight(tmp_path):
    net = model()
    before = net[0]._posteriors["weight"].mean.detach().clone()
    result = fit(net, epochs=0, method=pb.Deterministic(), out=tmp_path)
    assert result.history == []
    assert torch.equal(net[0]._posteriors["weight"].mean, before)
    assert describe(net).likelihood == "categorical"
    assert not net[0]._posteriors["weight"].is_random


def test_bf16_and_compiled_training_learn_too():
    torch._dynamo.reset()
    for options in ({"precision": "bf16"}, {"compile": "aot_eager"}):
        net = model()
        result = fit(net, epochs=20, **options)
        assert result.history[-1]["accuracy"] > 0.9


def test_a_compiled_regression_learns():
    torch._dynamo.reset()
    x = torch.randn(60, 2)
    data = [(x, x.sum(1))]
    torch.manual_seed(0)
    net = pb.bayesianize_(nn.Linear(2, 1))
    result = fit(net, data, epochs=60, likelihood="gaussian", compile="aot_eager",
                 method=pb.MeanField(lr=0.05))  # fmt: skip
    assert result.history[-1]["rmse"] < 0.5 * result.history[0]["rmse"]


@pytest.mark.usefixtures("_listens_to_ctrl_c")
def test_ctrl_c_during_the_last_validation_is_not_lost(tmp_path):
    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        fit(model(), epochs=1, out=tmp_path, val_loader=loader(StopAfter(5, interrupt)))
    assert len(fit(model(), epochs=1, out=tmp_path, resume=True).history) == 1


def test_it_works_outside_the_main_thread():
    results = []
    thread = threading.Thread(target=lambda: results.append(fit(model())))
    thread.start()
    thread.join()
    assert len(results[0].history) == 3


def test_a_method_of_ones_own_is_called_at_each_moment():
    calls = []

    class Spy(Method):
        def start(self, model):
            calls.append("start")

        def after_step(self, model, moment):
            calls.append(moment.step)
            return False

        def finish(self, model, context):
            calls.append("finish")

    fit(model(), method=Spy(), epochs=1)
    assert calls == ["start", 1, 2, 3, 4, 5, 6, "finish"]


def test_class_names_and_preprocessing_come_from_the_data_set():
    data = blobs()
    data.classes = ["a", "b", "c"]
    data.preprocess = {"mean": [0.0, 0.0]}
    net = model()
    fit(net, loader(data), epochs=1)
    assert describe(net).class_names == ("a", "b", "c")
    assert describe(net).preprocess == {"mean": [0.0, 0.0]}


def test_progress_shows_the_numbers(capsys):
    fit(model(), progress=True)
    shown = capsys.readouterr().err
    assert "epoch 3/3" in shown
    assert all(word in shown for word in ("loss", "nll", "KL", "nats", "accuracy", "examples/s"))


def test_the_seed_alone_determines_a_gaussian_run():
    x = torch.randn(40, 2)
    data = DataLoader(TensorDataset(x, 5 * torch.randn(40, 1)), 8, shuffle=True)
    finals = []
    for state in (1, 2):
        torch.manual_seed(0)
        net = pb.bayesianize_(nn.Linear(2, 1))
        torch.manual_seed(state)
        fit(net, data, likelihood="gaussian")
        finals.append(weights(net))
    assert torch.equal(*finals)


class BrokenGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * float("nan")


def test_parameters_broken_by_a_gradient_are_never_saved(tmp_path):
    class Breaks(nn.Module):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return BrokenGradient.apply(x) if self.calls == 18 else x

    fit(model(), out=tmp_path)
    before = (tmp_path / "checkpoint.pt").read_bytes()
    torch.manual_seed(0)
    net = pb.bayesianize_(nn.Sequential(nn.Linear(2, 3), Breaks()))
    with pytest.raises(pb.TrainingError, match=r"not finite after step 18.*No checkpoint"):
        fit(net, method=pb.MeanField(lr=3e-3), out=tmp_path)
    assert (tmp_path / "checkpoint.pt").read_bytes() == before


def test_more_bad_calls(tmp_path):
    with pytest.raises(pb.DataError, match=r"cannot run on an input of shape \(4, 7\)"):
        fit(model(), [(torch.zeros(4, 7), torch.zeros(4, dtype=torch.long))])
    for arguments, message in (
        ({"seed": "a"}, "seed must be"),
        ({"seed": -1}, "seed must be"),
        ({"out": 5}, "out must be a path"),
        ({"val_loader": iter([])}, "val_loader is an iterator"),
    ):
        with pytest.raises(pb.PocketBayesError, match=message):
            fit(model(), **arguments)
    with pytest.raises(pb.PocketBayesError, match=r"must be a torch\.nn\.Module"):
        fit("net")
    fit(model(), out=tmp_path)
    with pytest.raises(pb.TrainingError, match="batches="):
        fit(model(), loader(size=40), out=tmp_path, resume=True)
    other = pb.bayesianize_(nn.Sequential(nn.Linear(2, 9), nn.ReLU(), nn.Linear(9, 3)))
    with pytest.raises(pb.TrainingError, match="of another network"):
        fit(other, out=tmp_path, resume=True)
    torch.save({"weights": torch.zeros(2)}, tmp_path / "checkpoint.pt")
    with pytest.raises(pb.TrainingError, match="not a checkpoint of this library"):
        fit(model(), out=tmp_path, resume=True)
