from itertools import chain

import pytest
import torch
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import pocketbayes as pb
from pocketbayes.data import ImageSet, MemoryLoader
from pocketbayes.prediction.inputs import unpack
from pocketbayes.training.batches import Batches, dataset_size_of

CPU = torch.device("cpu")


def numbers(n=10):
    return TensorDataset(torch.arange(n).float(), torch.arange(n))


def order(batches, epoch, skip=0):
    return [y.tolist() for _, _, y in batches.epoch(epoch, skip)]


def test_the_order_is_set_by_seed_and_epoch():
    def make(seed):
        return Batches(DataLoader(numbers(), 3, shuffle=True), seed, 0, 1, CPU)

    assert order(make(0), 0) == order(make(0), 0)
    assert order(make(0), 0) != order(make(0), 1)
    assert order(make(0), 0) != order(make(1), 0)
    assert sorted(chain(*order(make(0), 0))) == list(range(10))
    assert order(make(0), 2, skip=2) == order(make(0), 2)[2:]


def test_without_shuffle_the_order_is_the_data_sets():
    assert order(Batches(DataLoader(numbers(), 4), 0, 0, 1, CPU), 5)[0] == [0, 1, 2, 3]


def test_ranks_together_see_the_batches_of_one_process():
    one = order(Batches(DataLoader(numbers(12), 4, shuffle=True), 3, 0, 1, CPU), 1)
    two = [
        order(Batches(DataLoader(numbers(12), 2, shuffle=True), 3, r, 2, CPU), 1) for r in (0, 1)
    ]
    assert [sorted(batch) for batch in one] == [sorted(a + b) for a, b in zip(*two, strict=True)]


def test_noise_differs_between_ranks_epochs_and_steps_and_not_with_the_past():
    def first_draws(rank, epoch, skip=0):
        batches = Batches(DataLoader(numbers(), 2), 0, rank, 2 if rank else 1, CPU)
        return [torch.rand(1).item() for _ in batches.epoch(epoch, skip)]

    assert first_draws(0, 0)[2:] == first_draws(0, 0, skip=2)
    draws = first_draws(0, 0) + first_draws(0, 1) + first_draws(1, 0)
    assert len(set(draws)) == len(draws)


def test_dataset_sizes():
    assert dataset_size_of(DataLoader(numbers(10), 3, drop_last=True), None) == 10
    assert dataset_size_of(DataLoader(numbers(10), sampler=SubsetRandomSampler([1, 2])), None) == 2
    assert dataset_size_of([(torch.zeros(3, 1), torch.zeros(3))] * 2, None) == 6

    class Stream(IterableDataset):
        def __iter__(self):
            yield torch.zeros(1), torch.zeros(1)

    with pytest.raises(pb.DataError, match="pass dataset_size="):
        dataset_size_of(DataLoader(Stream()), None)
    with pytest.raises(pb.DataError, match="empty"):
        dataset_size_of(DataLoader(TensorDataset(torch.zeros(0), torch.zeros(0))), None)
    for wrong in (0, -3, 2.5, "many"):
        with pytest.raises(pb.PocketBayesError, match="dataset_size"):
            dataset_size_of([], wrong)


def test_loaders_that_cannot_be_shared_between_processes_are_refused():
    for loader in (
        DataLoader(numbers(), sampler=RandomSampler(numbers(), replacement=True)),
        [(torch.zeros(1), torch.zeros(1))],
    ):
        with pytest.raises(pb.DataError, match="several processes"):
            Batches(loader, 0, 0, 2, CPU)
    with pytest.raises(pb.DataError, match="iterator"):
        dataset_size_of(iter([]), 17)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"image": 1}, r"a dict with keys \['image'\]"),
        ((torch.zeros(1),), "1 values"),
        (torch.zeros(2, 2), "a Tensor"),
        ((torch.zeros(2), torch.zeros(3)), "2 inputs with 3 targets"),
        ((torch.zeros(0), torch.zeros(0)), "0 inputs"),
        (("a", "b"), "inputs as a str"),
    ],
)
def test_bad_batches(batch, message):
    with pytest.raises(pb.DataError, match=message):
        unpack(batch, "the loader")


def lazily_ordered():
    images = torch.arange(20, dtype=torch.uint8).view(20, 1, 1, 1).repeat(1, 3, 4, 4)
    data = ImageSet(images, torch.arange(20), {"mean": [0.0] * 3, "std": [1.0] * 3})
    generator = torch.Generator()
    return {
        "images": MemoryLoader(data, 4, shuffle=True, augment=True),
        "subset": DataLoader(numbers(), 2, sampler=SubsetRandomSampler(range(8))),
        "weighted": DataLoader(numbers(), 2, sampler=WeightedRandomSampler([1.0] * 10, 10)),
        "own generator": DataLoader(
            numbers(), 2, sampler=RandomSampler(numbers(), num_samples=6, generator=generator)
        ),
    }


@pytest.mark.parametrize("kind", lazily_ordered())
def test_skipping_replays_the_order_of_every_kind_of_loader(kind):
    one = Batches(lazily_ordered()[kind], 1, 0, 1, CPU)
    order(one, 0)
    whole = order(one, 1)
    assert order(Batches(lazily_ordered()[kind], 1, 0, 1, CPU), 1, skip=2) == whole[2:]
    assert whole != order(one, 2)


def test_skipping_more_than_there_is_and_a_batch_of_none():
    with pytest.raises(pb.DataError, match="ended after 5 batches"):
        order(Batches(DataLoader(numbers(), 2), 0, 0, 1, CPU), 0, skip=9)
    with pytest.raises(pb.DataError, match="a NoneType"):
        order(Batches([(torch.zeros(1), torch.zeros(1)), None], 0, 0, 1, CPU), 0)
    with pytest.raises(pb.DataError, match="batch dimension"):
        unpack((torch.tensor(1.0), torch.tensor(2)), "the loader")
