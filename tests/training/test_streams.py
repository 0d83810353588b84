"""Data sets that are only read from first to last."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import pocketbayes as pb
from pocketbayes.training import streams
from pocketbayes.training.batches import Batches, dataset_size_of
from pocketbayes.training.streams import is_stream, require_own_part

X = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
Y = X[:, :2].argmax(1)


class Stream(IterableDataset):
    def __init__(self, times: int = 1) -> None:
        self.times, self.epochs = times, []

    def __iter__(self):
        for _ in range(self.times):
            yield from zip(X, Y, strict=True)

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)


class Sized(Stream):
    def __len__(self) -> int:
        return len(X)


def model() -> nn.Module:
    torch.manual_seed(0)
    return pb.bayesianize_(nn.Linear(4, 2))


def fit(loader, **options):
    method = pb.MeanField(lr=1e-2)
    return pb.fit(model(), loader, method, epochs=3, progress=False, **options)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_trains_as_the_same_rows_in_that_order(workers):
    rows = fit(DataLoader(TensorDataset(X, Y), 16))
    known = fit(DataLoader(Sized(), 16, num_workers=workers))
    for a, b in zip(rows.model.parameters(), known.model.parameters(), strict=True):
        assert torch.equal(a, b)
    told = fit(DataLoader(Stream(), 16), dataset_size=60)  # schedules go by examples
    assert told.history[-1]["nll"] == pytest.approx(rows.history[-1]["nll"], rel=0.02)


def test_one_without_length_is_asked_for_it():
    loader = DataLoader(Stream(), 16)
    with pytest.raises(pb.DataError, match=r"pass dataset_size=, or give the data set a __len__"):
        fit(loader)
    assert dataset_size_of(loader, 60) == 60
    assert dataset_size_of(DataLoader(Sized(), 16), None) == 60


def test_one_that_ends_within_an_epoch_goes_on_where_it_was(tmp_path):
    whole = fit(DataLoader(Sized(), 16))
    loader = DataLoader(Sized(), 16)
    fit(loader, out=tmp_path, checkpoint_minutes=1e-9)
    state = torch.load(tmp_path / "checkpoint.pt")
    assert state["standing"]["step"] == 12
    again = fit(loader, out=tmp_path, resume=True)
    assert again.history[-1]["nll"] == whole.history[-1]["nll"]


def test_a_stream_that_shuffles_by_epoch_is_told_which_one():
    stream = Sized()
    fit(DataLoader(stream, 16))
    assert stream.epochs[-3:] == [0, 1, 2]


def test_a_stream_may_be_the_loader_itself():
    """As the WebLoader of webdataset is one, which yields batches."""

    class Batched(IterableDataset):
        def __iter__(self):
            yield from zip(X.split(16), Y.split(16), strict=True)

    assert len(fit(Batched(), dataset_size=60).history) == 3
    with pytest.raises(pb.DataError, match="dataset_size="):
        fit(Batched())
    assert is_stream(Batched())
    assert is_stream(DataLoader(Stream()))
    assert not is_stream(DataLoader(TensorDataset(X, Y)))
    assert not is_stream([(X, Y)])


def test_more_examples_than_there_are_is_said_once():
    with pytest.warns(UserWarning, match=r"has 120 examples, and dataset_size is 60") as caught:
        fit(DataLoader(Stream(times=2), 16), dataset_size=60)
    assert len(caught) == 1
    fit(DataLoader(Stream(), 16), dataset_size=1000)  # an epoch may be a part of all there is


def test_processes_that_read_the_same_are_told_so(monkeypatch):
    loader = DataLoader(Stream(), 16)
    assert Batches(loader, 0, 1, 2, torch.device("cpu")).loader is loader
    monkeypatch.setattr(streams, "gathered", lambda digest: [digest, digest])
    with pytest.raises(pb.DataError, match="each of 2 processes reads the same examples"):
        require_own_part(loader, X, Y)
    require_own_part(DataLoader(TensorDataset(X, Y)), X, Y)
    digests = []
    monkeypatch.setattr(streams, "gathered", lambda d: digests.append(d) or [d, "another"])
    for x, y in ((X, Y), (X, 1 - Y), (-X, Y), ({"a": X}, Y), (X[:30], Y[:30])):
        require_own_part(loader, x, y)
    assert len(set(digests)) == 5
