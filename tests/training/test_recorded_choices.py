"""What `fit` used is told by its result, by the model and by the file."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.codec.header import model_in
from pocketbayes.layers import describe

QUIETLY = {"progress": False, "device": "cpu"}


def mlp():
    return pb.bayesianize_(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)))


def data(rows=64):
    x = torch.randn(rows, 3, generator=torch.Generator().manual_seed(1))
    return DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), 16)


def test_what_was_chosen_is_in_the_result_and_in_the_file(tmp_path):
    model = mlp()
    result = pb.fit(model, data(), epochs=3, **QUIETLY)
    assert (result.method.lr, result.epochs, result.steps) == (3e-3, 3, 12)
    expected = {"method": "MeanField", "lr": 3e-3, "epochs": 3, "steps": 12, "betas": [0.05, 0.3]}
    pb.save(model, tmp_path / "a.pocket")
    found = pb.inspect(tmp_path / "a.pocket")
    assert found.training == found.to_dict()["training"] == describe(model).training == expected
    assert "MeanField, learning rate 0.003, epochs 3, steps 12" in str(found)
    assert "learning rate 0.003" in str(pb.audit(model))
    again = pb.load(
        tmp_path / "a.pocket", nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    )
    assert describe(again).training == expected
    pb.save(again, tmp_path / "b.pocket")
    assert (tmp_path / "a.pocket").read_bytes() == (tmp_path / "b.pocket").read_bytes()


def test_the_number_of_epochs_that_fit_chose_is_told():
    net = nn.Sequential(nn.Conv1d(1, 2, 3), nn.Flatten())
    model, batch = pb.bayesianize_(net), (torch.randn(4, 1, 3), torch.arange(4) % 2)
    pb.fit(model, [batch], dataset_size=4, **QUIETLY)
    assert describe(model).training["epochs"] == 100


def test_the_best_epoch_is_told():
    told = pb.fit(mlp(), data(), epochs=3, val_loader=data(), keep_best=True, **QUIETLY)
    assert describe(told.model).training["best_epoch"] == told.best_epoch
    assert (told.epochs, told.steps) == (3, 12)


def test_a_resumed_run_tells_of_the_whole(tmp_path):
    def stopping(loader, after):
        yield from list(loader)[:after]
        raise KeyboardInterrupt

    class Interrupted(list):
        passes = 0

        def __iter__(self):
            self.passes += 1
            return stopping(super().__iter__(), 2) if self.passes > 5 else super().__iter__()

    batches, options = list(data()), {"dataset_size": 64, "out": tmp_path, "epochs": 6, **QUIETLY}
    with pytest.raises(KeyboardInterrupt):
        pb.fit(mlp(), Interrupted(batches), checkpoint_minutes=1e-9, **options)
    result = pb.fit(mlp(), batches, resume=True, **options)
    assert describe(result.model).training["steps"] == result.steps == 24


def test_a_later_training_counts_and_one_without_steps_does_not():
    model = mlp()
    pb.fit(model, data(), epochs=2, **QUIETLY)
    pb.fit(model, data(), pb.Deterministic(), epochs=0, **QUIETLY)
    assert describe(model).training["method"] == "MeanField"
    pb.fit(model, data(), pb.Deterministic(lr=0.5), epochs=1, **QUIETLY)
    assert describe(model).training["method"] == "Deterministic"
    assert describe(model).training["lr"] == 0.5
    x, y = next(iter(data()))
    points = pb.bayesianize_(nn.Linear(3, 2))
    pb.fit(points, data(), epochs=1, **QUIETLY)
    pb.loss(points, points(x), y, 64)
    assert describe(points).training is None  # a loop of one's own: nobody knows its rate


def test_an_ensemble_tells_what_its_members_had():
    result = pb.fit(mlp(), data(), pb.DeepEnsemble(members=2), epochs=2, **QUIETLY)
    assert (result.epochs, result.steps) == (2, 8)
    assert describe(result.model).training["steps"] == 8


def test_nothing_trained_is_no_epoch():
    result = pb.fit(mlp(), data(), epochs=0, **QUIETLY)
    assert (result.epochs, result.steps) == (0, 0)
    assert describe(result.model).training is None


@pytest.mark.parametrize(
    "hostile",
    [
        [], "MeanField", {}, {"method": 3},
        *({"method": "a"} | {name: value} for name, value in (
            ("lr", "fast"), ("lr", -1.0), ("epochs", True), ("steps", 1.5), ("steps", None),
            ("subset", 1), ("prior_by", "evidence"),
        )),
        *({"method": "a", "prior_by": "a", "prior_std": e} for e in (1, [1], [0, 1], [1, "b"])),
    ],
)  # fmt: skip
def test_a_hostile_file_says_nothing_of_its_training(hostile):
    with pytest.raises(pb.FormatError, match=r"model\.training"):
        model_in({"model": {"training": hostile}})


def test_what_a_later_version_adds_is_passed_over():
    facts = {"method": "New", "mood": "good"}
    assert model_in({"model": {"training": facts}}).training == facts
