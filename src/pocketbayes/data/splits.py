"""A validation set held back from the training data, the same one in every run."""

from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pocketbayes.data.images import ImageSet
from pocketbayes.data.tables import TableSet
from pocketbayes.errors import DataError, require_number

_SEED = 20_240_229
Set = TypeVar("Set", ImageSet, TableSet)


def with_validation(dataset: Set, share: float = 0.1) -> tuple[Set, Set]:
    """Splits training data into a part to train on and one to choose settings by.

    The split depends on the data alone, not on any seed of training. Each class gives its share,
    and keeps at least one example for training. A table is standardised by its training part.

    Args:
        dataset: the training data, at least two examples.
        share: the part held back, above 0 and below 1.
    """
    require_number(share, "share", above=0, most=1)
    count = len(dataset)
    if count < 2 or share == 1:
        raise DataError(f"{count} examples cannot be split with a validation share of {share}")
    total = min(max(1, round(share * count)), count - 1)
    rng = np.random.default_rng(_SEED)
    if isinstance(dataset, TableSet) and dataset.targets.is_floating_point():
        held_back = rng.permutation(count)[:total]
    else:
        labels = dataset.labels if isinstance(dataset, ImageSet) else dataset.targets
        held_back = stratified(labels.cpu().numpy(), total, rng)
    mask = np.zeros(count, dtype=bool)
    mask[held_back] = True
    train = dataset.subset(np.flatnonzero(~mask))
    validation = dataset.subset(np.flatnonzero(mask))
    if isinstance(train, TableSet):
        train = train.refitted()
    return train, replace(validation, preprocess=train.preprocess)


def stratified(
    labels: NDArray[np.int64], total: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """About `total` random rows, each class giving in proportion and keeping at least one."""
    counts = np.bincount(labels)
    quota = total * counts / len(labels)
    taken = np.floor(quota).astype(np.int64)
    largest_rest = np.argsort(taken - quota, kind="stable")
    taken[largest_rest[: total - taken.sum()]] += 1
    taken = np.minimum(taken, np.maximum(counts - 1, 0))
    if taken.sum() == 0:
        taken[counts.argmax()] = 1
    shuffled = rng.permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    place_in_class = np.arange(len(labels)) - (np.cumsum(counts) - counts)[labels[by_class]]
    return by_class[place_in_class < taken[labels[by_class]]]
