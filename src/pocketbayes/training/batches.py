"""Batches in an order that seed, epoch and rank determine; and how many examples there are."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
)

from pocketbayes.errors import DataError, require_count
from pocketbayes.layers import Inputs, moved
from pocketbayes.posteriors import mixed_seed, seed_everything
from pocketbayes.prediction import unpack
from pocketbayes.training.streams import is_stream, tell_epoch

_END = object()
Item = TypeVar("Item")
Batch = tuple[int, Inputs, Tensor]  # its number in the epoch, input and target


class LoaderAround:
    """A loader that changes the batches of another: its examples and their order are that one's."""

    loader: Iterable[Any]

    def around(self, loader: Iterable[Any]) -> "LoaderAround":
        """The same change to another loader's batches."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError


def dataset_size_of(loader: object, given: int | None) -> int:
    """The number of examples the loader goes through in an epoch: N of the KL's scale."""
    if isinstance(loader, Iterator):
        raise DataError(
            "the loader is an iterator, spent after one pass: pass a DataLoader or a list"
        )
    if given is not None:
        return require_count(given, "dataset_size")
    if isinstance(loader, LoaderAround):
        return dataset_size_of(loader.loader, None)
    for holder in (loader, getattr(loader, "batch_sampler", None)):
        sampler = getattr(holder, "sampler", None)
        if isinstance(sampler, SubsetRandomSampler):
            return len(sampler)
    if isinstance(loader, list | tuple):
        return sum(len(unpack(batch, "the loader")[1]) for batch in loader)
    try:
        size = len(loader.dataset)  # type: ignore[attr-defined]
    except (AttributeError, TypeError) as error:
        raise DataError(
            f"this {type(loader).__name__} does not tell how many training examples it has, and "
            "the KL is scaled by that number from the first step on: pass dataset_size=, or give "
            "the data set a __len__, the examples of all processes together"
        ) from error
    if size == 0:
        raise DataError("the training loader is empty: its dataset has no example")
    return int(size)


class Batches:
    """An epoch's batches, in an order and with a noise that do not depend on the past."""

    def __init__(
        self,
        loader: Iterable[Any],
        seed: int,
        rank: int,
        world_size: int,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.loader = ordered_loader(loader, seed, rank, world_size)
        self.seed, self.rank, self.device, self.dtype = seed, rank, device, dtype

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def epoch(self, epoch: int, skip: int = 0) -> Iterator[Batch]:
        """Yields (number, input, target) on the device, after the first `skip` batches.

        Before each fetch all generators are seeded by (seed, rank, epoch, number), which fixes
        augmentation and layer noise alike, so a resumed run needs no stored generator state.
        """
        self._set_order(epoch)
        iterator = iter(self.loader)
        number = 0
        while True:
            seed_everything(mixed_seed(self.seed, 1 + self.rank, epoch, number), self.device)
            batch = next(iterator, _END)
            if batch is _END:
                break
            if number >= skip:
                x, y = unpack(batch, "the training loader", self.dtype)
                yield (
                    number,
                    moved(x, self.device),
                    y.to(self.device, non_blocking=self.device.type == "cuda"),
                )
            number += 1
        if number == 0:
            raise DataError("the training loader is empty: it yielded no batch")
        if number < skip:
            raise DataError(
                f"the loader ended after {number} batches, but {skip} had been consumed before: "
                "resume with the same data and batch size"
            )

    def _set_order(self, epoch: int) -> None:
        """Makes the coming pass a function of seed and epoch."""
        sampler = getattr(self.loader, "sampler", None)
        if isinstance(sampler, DistributedSampler):
            sampler.set_epoch(epoch)
        tell_epoch(self.loader, epoch)
        seed = mixed_seed(self.seed, 0, epoch)
        for holder in (sampler, self.loader):
            if isinstance(getattr(holder, "generator", None), torch.Generator):
                holder.generator.manual_seed(seed)  # type: ignore[union-attr]
        seed_everything(seed, self.device)


def in_groups(items: Iterator[Item], size: int) -> Iterator[list[Item]]:
    """So many at a time; the last group may be smaller."""
    while group := list(islice(items, size)):
        yield group


def shares_of(group: Sequence[Batch]) -> list[float]:
    """The share of the examples of some batches that each of them has."""
    examples = sum(len(y) for _, _, y in group)
    return [len(y) / examples for _, _, y in group]


def ordered_loader(loader: Iterable[Any], seed: int, rank: int, world_size: int) -> Iterable[Any]:
    """The same data in an order set by seed and epoch; each rank its share.

    With one process and with several the k-th global batch holds the same examples. Workers do
    not persist from epoch to epoch: their generators would remember the past. A loader that is
    no DataLoader may give each rank its share by a method `for_rank(rank, world_size)`. A stream
    is as it is: it splits itself.
    """
    if isinstance(loader, LoaderAround):
        return loader.around(ordered_loader(loader.loader, seed, rank, world_size))
    sampler = getattr(loader, "sampler", None)
    if isinstance(sampler, DistributedSampler):
        return loader
    if callable(getattr(loader, "for_rank", None)):
        return loader.for_rank(rank, world_size)  # type: ignore[attr-defined, no-any-return]
    if is_stream(loader):
        return loader
    if not (type(loader) is DataLoader and _is_plain(loader)):
        if world_size > 1:
            raise DataError(
                "several processes need a DataLoader with its default sampler, one with a "
                "DistributedSampler, a stream that gives each its part, or a loader with a method "
                "for_rank(rank, world_size), so that each process gets its own share of the data"
            )
        return loader
    share: DistributedSampler[Any] = DistributedSampler(
        loader.dataset, world_size, rank, shuffle=isinstance(sampler, RandomSampler), seed=seed
    )
    return DataLoader(
        loader.dataset,
        batch_size=loader.batch_size,
        sampler=share,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        drop_last=loader.drop_last,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        prefetch_factor=loader.prefetch_factor,
    )


def _is_plain(loader: DataLoader[Any]) -> bool:
    """Whether batches come from a whole map-style dataset, in order or shuffled once through."""
    if loader.batch_size is None:
        return False
    if isinstance(loader.sampler, RandomSampler):
        whole = loader.sampler.num_samples == len(loader.dataset)  # type: ignore[arg-type]
        return whole and not loader.sampler.replacement
    return isinstance(loader.sampler, SequentialSampler)
