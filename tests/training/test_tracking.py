"""Experiment trackers get each epoch once, also of runs that were resumed."""

import csv
import json

import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.cli import main
from pocketbayes.training import tracking
from pocketbayes.training.run import Run

X = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
BATCHES = [(part, (part[:, 0] > 0).long()) for part in X.split(10)]


def model() -> nn.Module:
    torch.manual_seed(0)
    return pb.bayesianize_(nn.Linear(4, 2))


def fit(**options):
    options = {"epochs": 3, "progress": False, "method": pb.MeanField(lr=1e-2)} | options
    return pb.fit(model(), BATCHES, **options)


class Rows:
    """A logger that only remembers."""

    def __init__(self):
        self.rows, self.settings, self.saved, self.finalized = [], {}, 0, 0

    def log_metrics(self, metrics, step=None):
        self.rows.append((step, dict(metrics)))

    def log_hyperparams(self, params):
        self.settings = params

    def save(self):
        self.saved += 1

    def finalize(self, status):
        self.finalized += 1


def stopped(monkeypatch, after: int, **options):
    """A run that is killed at the end of an epoch, and has a checkpoint of the first one."""
    close = Run._close_epoch

    def close_and_die(self, speed):
        row = close(self, speed)
        if self.at.epoch == 1:
            self.save()
        if self.at.epoch == after:
            raise MemoryError
        return row

    with monkeypatch.context() as patch:
        patch.setattr(Run, "_close_epoch", close_and_die)
        with pytest.raises(MemoryError):
            fit(**options)


def test_a_logger_gets_what_the_history_has():
    logger = Rows()
    result = fit(logger=logger, val_loader=BATCHES)
    assert [step for step, _ in logger.rows] == [4, 8, 12]
    for (_, numbers), row in zip(logger.rows, result.history, strict=True):
        assert numbers == {name: float(value) for name, value in row.items() if name != "step"}
    assert {"nll", "kl", "lr", "val_ece"} < numbers.keys()
    assert logger.settings["method"] == "MeanField"
    assert logger.settings["lr"] == 1e-2
    assert (logger.saved, logger.finalized) == (3, 0)  # its owner may go on with it


def test_a_resumed_run_repeats_no_step(monkeypatch, tmp_path):
    logger = Rows()
    stopped(monkeypatch, 2, logger=logger, out=tmp_path)
    assert [step for step, _ in logger.rows] == [4, 8]
    result = fit(logger=logger, out=tmp_path, resume=True)
    assert [step for step, _ in logger.rows] == [4, 8, 12]
    assert [numbers["nll"] for _, numbers in logger.rows] == [row["nll"] for row in result.history]
    fit(logger=logger, out=tmp_path)  # a new run begins anew
    assert [step for step, _ in logger.rows[3:]] == [4, 8, 12]


def test_a_logger_that_comes_later_gets_what_it_missed(monkeypatch, tmp_path):
    stopped(monkeypatch, 2, out=tmp_path)
    logger = Rows()
    fit(logger=logger, out=tmp_path, resume=True)
    assert [step for step, _ in logger.rows] == [4, 8, 12]


@pytest.mark.parametrize("note", ["", "[]", '{"logger": "Rows"}', '{"logger": "Rows", "step": []}'])
def test_a_damaged_note_is_no_fault(monkeypatch, tmp_path, note):
    stopped(monkeypatch, 2, out=tmp_path)
    (tmp_path / "logger.json").write_text(note)
    logger = Rows()
    fit(logger=logger, out=tmp_path, resume=True)
    assert [step for step, _ in logger.rows] == [4, 8, 12]


def test_parts_of_a_run_are_told_apart():
    logger = Rows()
    fit(logger=logger, method=pb.DeepEnsemble(members=2), epochs=1)
    assert {name.split("/")[0] for _, row in logger.rows for name in row} == {
        "member-0",
        "member-1",
    }
    logger = Rows()
    fit(logger=logger, method=pb.Sharing(pretrain_epochs=1), epochs=1)
    first, second = (row for _, row in logger.rows)
    assert "pretraining/nll" in first
    assert "nll" in second


def test_a_logger_that_fails_does_not_end_training():
    class Down(Rows):
        def log_metrics(self, metrics, step=None):
            raise ConnectionError("no route to host")

    with pytest.warns(UserWarning, match="training goes on: ConnectionError: no route to host"):
        result = fit(logger=Down())
    assert len(result.history) == 3


def rows_in(path) -> list[dict]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_csv_is_one_table_however_often_the_run_was_resumed(monkeypatch, tmp_path):
    stopped(monkeypatch, 2, logger="csv", out=tmp_path, val_loader=BATCHES)
    assert len(rows_in(tmp_path / "logs" / "metrics.csv")) == 2
    for _ in range(2):
        result = fit(logger="csv", out=tmp_path, val_loader=BATCHES, resume=True)
        rows = rows_in(tmp_path / "logs" / "metrics.csv")
        assert [int(row["step"]) for row in rows] == [4, 8, 12]
        for row, known in zip(rows, result.history, strict=True):
            assert float(row["nll"]) == known["nll"]
            assert float(row["val_nll"]) == known["val_nll"]


def test_members_write_tables_of_their_own(tmp_path):
    fit(logger="csv", out=tmp_path, method=pb.DeepEnsemble(members=2), epochs=1)
    assert len(list(tmp_path.glob("member-*/logs/metrics.csv"))) == 2


def test_tensorboard_gets_each_step_once(monkeypatch, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    stopped(monkeypatch, 2, logger="tensorboard", out=tmp_path)
    fit(logger="tensorboard", out=tmp_path, resume=True)
    events = EventAccumulator(str(tmp_path / "logs")).Reload()
    assert [event.step for event in events.Scalars("nll")] == [4, 8, 12]
    fit(logger="tensorboard", out=tmp_path, epochs=1)
    events = EventAccumulator(str(tmp_path / "logs")).Reload()
    assert [event.step for event in events.Scalars("nll")] == [4]


@pytest.mark.filterwarnings("ignore")
def test_mlflow_goes_on_with_the_same_run(monkeypatch, tmp_path):
    pytest.importorskip("lightning.pytorch")
    mlflow = pytest.importorskip("mlflow")
    stopped(monkeypatch, 2, logger="mlflow", out=tmp_path)
    fit(logger="mlflow", out=tmp_path, resume=True)
    run = json.loads((tmp_path / "logger.json").read_text())["run"]
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert [metric.step for metric in client.get_metric_history(run, "nll")] == [4, 8, 12]
    assert client.get_run(run).info.status == "FINISHED"


def test_what_is_no_logger_is_refused_before_training(tmp_path, monkeypatch):
    with pytest.raises(pb.PocketBayesError, match="logger must be one of csv, tensorboard, mlflow"):
        fit(logger="wandb", out=tmp_path)
    for wrong in (Rows, 3, print):
        with pytest.raises(pb.PocketBayesError, match=r"Fabric logger such as CSVLogger"):
            fit(logger=wrong)
    with pytest.raises(pb.PocketBayesError, match="pass out="):
        fit(logger="csv")
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    with pytest.raises(pb.PocketBayesError, match="pip install tensorboard"):
        fit(logger="tensorboard", out=tmp_path)
    with pytest.raises(pb.PocketBayesError, match="pip install mlflow lightning"):
        fit(logger="mlflow", out=tmp_path)


def test_the_command_line_has_it(tmp_path, monkeypatch, capsys):
    def called(*words) -> int:
        sizes = ["--data", "digits", "--model", "mlp", "--hidden", "8", "--epochs", "1"]
        monkeypatch.setattr("sys.argv", ["pocketbayes", "train", *sizes, *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code

    assert called("--out", tmp_path / "a", "--logger", "csv") == 0
    assert len(rows_in(tmp_path / "a" / "logs" / "metrics.csv")) == 1
    assert called("--out", tmp_path / "b", "--logger", "wandb") == 2
    assert "--logger must be one of csv" in capsys.readouterr().err
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    assert called("--out", tmp_path / "b", "--logger", "mlflow") == 2
    assert "pip install mlflow" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "b").exists()
