"""Orders, shares of several processes, and the validation split."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pocketbayes as pb
from pocketbayes.data import ImageSet, MemoryLoader, TableSet, with_validation
from pocketbayes.training.batches import Batches, dataset_size_of

GREY = {"kind": "image", "shape": [1, 1, 1], "mean": [0.0], "std": [1.0]}


def numbered(n):
    """Images whose labels number them."""
    return ImageSet(torch.zeros(n, 1, 1, 1, dtype=torch.uint8), torch.arange(n), GREY)


def labels_of(loader):
    return [y.tolist() for _, y in loader]


def test_in_order_all_come_and_the_last_batch_is_short():
    loader = MemoryLoader(numbered(10), 4)
    assert labels_of(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert len(loader) == 3
    assert len(MemoryLoader(numbered(8), 4)) == 2


def test_shuffled_batches_are_whole_and_new_in_each_pass():
    loader = MemoryLoader(numbered(50), 8, shuffle=True)
    first, second = labels_of(loader), labels_of(loader)
    assert [len(batch) for batch in first] == [8] * 6
    assert len(loader) == 6
    assert len({label for batch in first for label in batch}) == 48
    assert first != second


def test_a_set_smaller_than_one_batch_still_comes():
    loader = MemoryLoader(numbered(3), 8, shuffle=True)
    assert [sorted(batch) for batch in labels_of(loader)] == [[0, 1, 2]]
    assert len(loader) == 1


def test_the_order_is_drawn_when_a_pass_begins():
    loader = MemoryLoader(numbered(20), 5, shuffle=True)
    torch.manual_seed(7)
    expected = labels_of(loader)
    torch.manual_seed(7)
    iterator = iter(loader)
    torch.manual_seed(1)
    assert [y.tolist() for _, y in iterator] == expected
    assert (
        expected[0] == torch.randperm(20, generator=torch.Generator().manual_seed(7))[:5].tolist()
    )


shapes = st.tuples(st.integers(1, 60), st.integers(1, 9), st.integers(1, 5), st.booleans())


@given(shapes, st.integers(0, 100))
def test_shares_of_several_processes_make_up_the_batches_of_one(shape, seed):
    count, batch, world, shuffle = shape

    def seeded(loader):
        torch.manual_seed(seed)
        return labels_of(loader)

    data = numbered(count)
    alone = seeded(MemoryLoader(data, batch * world, shuffle))
    base = MemoryLoader(data, batch, shuffle)
    shares = [seeded(base.for_rank(rank, world)) for rank in range(world)]
    assert {len(base.for_rank(rank, world)) for rank in range(world)} == {len(alone)}
    for number, whole in enumerate(alone):
        parts = [share[number] for share in shares]
        assert len({len(part) for part in parts}) == 1
        together = [label for part in parts for label in part]
        if len(whole) == batch * world:
            assert together == whole
        else:
            assert together[: len(whole)] == whole
            assert len(together) - len(whole) < world
    assert all(len(share) == len(alone) for share in shares)


def test_a_share_knows_the_whole_data_set():
    share = MemoryLoader(numbered(10), 2, shuffle=True, augment=True).for_rank(1, 2)
    assert dataset_size_of(share, None) == 10
    assert share.augment
    assert share.shuffle


@pytest.mark.parametrize(("rank", "world"), [(2, 2), (-1, 2), (0, 0)])
def test_impossible_ranks(rank, world):
    with pytest.raises(pb.PocketBayesError):
        MemoryLoader(numbered(10), 2).for_rank(rank, world)


def test_nothing_to_load_is_an_error():
    with pytest.raises(pb.DataError, match="no example"):
        MemoryLoader(numbered(0), 2)
    with pytest.raises(pb.PocketBayesError, match="batch_size"):
        MemoryLoader(numbered(3), 0)


def test_training_batches_resume_in_the_same_order():
    def order(epoch, skip=0):
        loader = MemoryLoader(numbered(40), 4, shuffle=True, augment=True)
        batches = Batches(loader, 3, 0, 1, torch.device("cpu"))
        return [y.tolist() for _, _, y in batches.epoch(epoch, skip)]

    assert order(1, skip=2) == order(1)[2:]
    assert order(1) != order(2)


def table(rows, targets):
    features = torch.arange(rows, dtype=torch.float64).view(-1, 1)
    layout = {"kind": "table", "columns": [{"name": "x"}], "target": {"name": "y"}}
    if targets.is_floating_point():
        targets = targets.double()
    return TableSet(features, targets, layout).refitted()


@given(st.lists(st.integers(0, 6), min_size=2, max_size=80), st.floats(0.01, 0.99))
def test_validation_parts_are_disjoint_complete_and_stratified(labels, share):
    data = table(len(labels), torch.tensor(labels))
    train, validation = with_validation(data, share)
    seen = sorted(train.features.flatten().tolist() + validation.features.flatten().tolist())
    assert seen == list(range(len(labels)))
    assert len(train) >= 1
    assert len(validation) >= 1
    for label in set(labels):
        whole = labels.count(label)
        held = int((validation.targets == label).sum())
        assert held <= max(1, whole * share + 1.5)
        if whole > 1:
            assert int((train.targets == label).sum()) >= 1


def test_validation_of_a_balanced_set_is_balanced():
    labels = torch.arange(1000) % 10
    images = ImageSet(torch.zeros(1000, 1, 1, 1, dtype=torch.uint8), labels, GREY)
    train, validation = with_validation(images, 0.1)
    assert torch.bincount(validation.labels).tolist() == [10] * 10
    assert torch.bincount(train.labels).tolist() == [90] * 10


def test_the_split_does_not_depend_on_any_seed():
    data = table(100, torch.rand(100))
    splits = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        np.random.seed(seed)
        splits.append(with_validation(data)[1].features)
    assert torch.equal(*splits)
    assert len(splits[0]) == 10
    assert splits[0].flatten().tolist() != list(range(10))


def test_a_table_is_standardised_by_its_training_part():
    train, validation = with_validation(table(50, torch.rand(50)), 0.3)
    x, y = train.batch(range(len(train)))
    for values in (x[:, 0], y):
        assert float(values.mean()) == pytest.approx(0, abs=1e-5)
        assert float(values.std(correction=0)) == pytest.approx(1, abs=1e-5)
    assert validation.preprocess == train.preprocess
    assert float(validation.batch(range(len(validation)))[1].mean()) != pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize(("rows", "share"), [(1, 0.5), (10, 0), (10, 1), (10, "a")])
def test_impossible_validation(rows, share):
    with pytest.raises(pb.PocketBayesError):
        with_validation(table(rows, torch.rand(rows)), share)
