"""Training inside a Lightning Trainer is that of `fit`."""

import math
import sys
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import pocketbayes as pb
from pocketbayes.methods import METHODS

ONE_RUN = sorted(set(METHODS) - {"csg-mcmc", "deep-ensemble", "laplace"})
QUIET = {
    "accelerator": "cpu",
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "enable_checkpointing": False,
}


@pytest.fixture(scope="module")
def lightning():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("lightning.pytorch")


@pytest.fixture(autouse=True)
def _no_advice():
    """The Trainer warns of workers, loggers and devices that could be more."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning")
        warnings.filterwarnings("ignore", message=".*(does not have many workers|sync_dist).*")
        yield


def data(rows: int = 64) -> TensorDataset:
    x = torch.randn(rows, 6, generator=torch.Generator().manual_seed(0))
    return TensorDataset(x, x[:, :3].argmax(1))


def mlp(estimator: str = "lrt", outputs: int = 3) -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(1e-9), nn.Linear(16, outputs))
    return pb.bayesianize_(net, estimator=estimator)


def trained(lightning, module, loader, **options):
    trainer = lightning.Trainer(**{"max_epochs": 3} | QUIET | options)
    trainer.fit(module, loader)
    return trainer


@pytest.mark.parametrize("name", ONE_RUN)
def test_it_ends_where_fit_ends_by_every_method(lightning, name):
    """Without noise in the layers and in a fixed order, to the last rounding."""
    options = {"update_every": 4, "density": 0.5} if hasattr(METHODS[name], "density") else {}
    method = METHODS[name](lr=1e-2, **options)
    loader, one, two = DataLoader(data(), 16), mlp("mean"), mlp("mean")
    expected = pb.fit(one, loader, method, epochs=3, progress=False)
    module = pb.lightning.BayesianModule(two, method)
    trainer = trained(lightning, module, loader)
    assert trainer.global_step == expected.steps == 12
    found, wanted = two.state_dict(), one.state_dict()
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        assert torch.allclose(found[key].double(), value.double(), atol=1e-5), key
    for row, other in zip(module.history, expected.history, strict=True):
        for number in ("loss", "nll", "kl", "accuracy", "beta", "lr", "step"):
            assert row[number] == pytest.approx(other[number], rel=1e-4, abs=1e-6), number


@pytest.mark.parametrize("likelihood", ["gaussian", "student-t"])
def test_a_regression_learns_its_noise(lightning, likelihood):
    x = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))
    model = mlp(outputs=1)
    loader = DataLoader(TensorDataset(x, x[:, :1] + 0.1 * torch.randn(64, 1)), 16)
    trained(lightning, pb.lightning.BayesianModule(model, likelihood=likelihood), loader)
    assert pb.predict(model, x).aleatoric.isfinite().all()
    assert any(name.startswith("noise") for name, _ in model.named_parameters())


def test_the_log_has_the_numbers_of_fit_and_evaluate(lightning, tmp_path):
    model = mlp()
    logger = lightning.loggers.CSVLogger(tmp_path)
    module = pb.lightning.BayesianModule(model, file=tmp_path / "a.pocket")
    options = QUIET | {"logger": logger, "max_epochs": 2, "log_every_n_steps": 1}
    trainer = lightning.Trainer(**options)
    trainer.fit(module, DataLoader(data(), 16), DataLoader(data(), 40))
    text = next(tmp_path.rglob("metrics.csv")).read_text()
    for name in ("loss", "nll", "kl", "accuracy", "beta", "lr", "val_nll", "val_ece"):
        assert name in text.splitlines()[0].split(",")
    assert "method: MeanField" in next(tmp_path.rglob("hparams.yaml")).read_text()
    metrics = trainer.test(module, DataLoader(data(), 40), verbose=False)[0]
    record = pb.evaluate(model, DataLoader(data(), 40), num_samples=10)
    assert metrics["test_nll"] == pytest.approx(record.nll, rel=0.2)
    x = data()[:5][0]
    again = pb.load(tmp_path / "a.pocket", mlp_to_fill())
    assert (pb.predict(again, x).probs - pb.predict(model, x).probs).abs().max() < 0.3
    predictions = trainer.predict(module, DataLoader(data(), 40))
    assert [p["probs"].shape for p in predictions] == [(40, 3), (24, 3)]


def test_training_that_came_to_nothing_says_so(lightning):
    method = pb.Deterministic(lr=30.0, clip_norm=None)
    x, y = data().tensors
    module = pb.lightning.BayesianModule(mlp(), method)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        trained(lightning, module, DataLoader(TensorDataset(30 * x, y), 16), max_epochs=20)
    assert any("training came to nothing" in str(warning.message) for warning in found)


def mlp_to_fill() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(1e-9), nn.Linear(16, 3))


@pytest.mark.parametrize("method", [pb.MeanField(), pb.Subspace(density=0.5, update_every=3)])
def test_a_checkpoint_goes_on_to_the_same_end(lightning, tmp_path, method):
    """Of noiseless layers; the Trainer stores no state of random generators."""
    loader = DataLoader(data(), 16)
    whole = mlp("mean")
    trained(lightning, pb.lightning.BayesianModule(whole, method), loader, max_epochs=4)
    half = pb.lightning.BayesianModule(mlp("mean"), method)
    stop = StopAfter(2)
    trainer = trained(lightning, half, loader, max_epochs=4, callbacks=[stop(lightning)])
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    model = mlp("mean")
    module = pb.lightning.BayesianModule(model, method)
    lightning.Trainer(**QUIET | {"max_epochs": 4}).fit(
        module, loader, ckpt_path=tmp_path / "half.ckpt", weights_only=True
    )
    assert [row["epoch"] for row in module.history] == [1, 2, 3, 4]
    for key, value in whole.state_dict().items():
        assert torch.allclose(model.state_dict()[key].double(), value.double(), atol=1e-5), key
    other = pb.lightning.BayesianModule(mlp("mean"), pb.MeanField(lr=0.5))
    with pytest.raises(pb.TrainingError, match="same method"):
        lightning.Trainer(**QUIET | {"max_epochs": 4}).fit(
            other, loader, ckpt_path=tmp_path / "half.ckpt", weights_only=True
        )
    kind = pb.lightning.BayesianModule
    again = kind.load_from_checkpoint(tmp_path / "half.ckpt", model=mlp(), method=method)
    for (_, q), (_, p) in zip(
        pb.named_posteriors(again.model), pb.named_posteriors(half.model), strict=True
    ):
        assert torch.equal(q.expectation(), p.expectation())


class StopAfter:
    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    def __call__(self, lightning):
        epochs = self.epochs

        class Stop(lightning.Callback):
            def on_train_epoch_end(self, trainer, module):
                trainer.should_stop = trainer.current_epoch + 1 == epochs

        return Stop()


def test_steps_limit_schedules_as_epochs_do(lightning):
    module = pb.lightning.BayesianModule(mlp())
    trained(lightning, module, DataLoader(data(), 16), max_epochs=-1, max_steps=6)
    assert module.hosted.running.at.step == 6
    assert module.hosted.running.at.lr_scale < 0.2


class Stream(IterableDataset):
    def __iter__(self):
        yield from data()


def test_a_stream_needs_its_size_and_trains(lightning):
    loader = DataLoader(Stream(), 16)
    with pytest.raises(pb.DataError, match="dataset_size="):
        trained(lightning, pb.lightning.BayesianModule(mlp()), loader)
    module = pb.lightning.BayesianModule(mlp(), dataset_size=64)
    trained(lightning, module, loader)
    assert len(module.history) == 3
    assert module.hosted.running.at.lr_scale < 0.2


def test_what_one_run_cannot_do_is_said(lightning):
    kind = pb.lightning.BayesianModule
    for method in (pb.DeepEnsemble(), pb.Laplace(), pb.Sharing(pretrain_epochs=2)):
        with pytest.raises(pb.PocketBayesError, match=r"fit|MeanField"):
            kind(mlp(), method)
    with pytest.raises(pb.PocketBayesError, match="nothing is trained yet"):
        _ = kind(mlp()).history
    with pytest.raises(pb.PocketBayesError, match="likelihood"):
        kind(mlp(), likelihood="normal")
    options = {"max_epochs": -1, "max_time": "00:01:00:00"}
    with pytest.raises(pb.PocketBayesError, match="max_epochs or max_steps"):
        trained(lightning, kind(mlp()), DataLoader(data(), 16), **options)
    with pytest.raises(pb.PocketBayesError, match="several training loaders"):
        trained(lightning, kind(mlp()), {"a": DataLoader(data(), 16), "b": DataLoader(data(), 16)})
    with pytest.raises(pb.PocketBayesError, match="bayesianize_"):
        trained(lightning, kind(mlp_to_fill()), DataLoader(data(), 16))


def test_nan_in_the_data_is_named(lightning):
    x, y = data()[:]
    x[37, 2] = math.nan
    loader = DataLoader(TensorDataset(x, y), 16)
    with pytest.raises(pb.DataError, match="row 5"):
        trained(lightning, pb.lightning.BayesianModule(mlp()), loader)


def test_global_generators_are_left_as_the_trainer_leaves_them(lightning):
    """Beginning and end draw from generators of their own, steps as the layers do: here nothing."""

    class Plain(lightning.LightningModule):
        def training_step(self, batch, batch_idx):
            return None

        def configure_optimizers(self):
            return None

    net = pb.bayesianize_(nn.Linear(6, 3), estimator="mean")
    states = []
    for module in (Plain(), pb.lightning.BayesianModule(net)):
        torch.manual_seed(3)
        trained(lightning, module, DataLoader(data(), 16, shuffle=True))
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


def test_without_lightning_the_error_names_the_package(monkeypatch):
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "pocketbayes.lightning", raising=False)
    monkeypatch.delattr(pb, "lightning", raising=False)
    with pytest.raises(pb.PocketBayesError, match=r"pip install 'pocketbayes\[lightning\]'"):
        _ = pb.lightning
