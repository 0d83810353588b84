"""Batches of data that lie in memory, made on their device without workers."""

from collections.abc import Iterator

import torch
from torch import Tensor

from pocketbayes.data.images import ImageSet
from pocketbayes.data.tables import TableSet
from pocketbayes.errors import DataError, require_count


class MemoryLoader:
    """Batches (input, target) of an `ImageSet` or a `TableSet`.

    The order is drawn when a pass begins, from torch's default generator on the CPU: seeding
    just before `iter(loader)` fixes it, on every device.

    Args:
        dataset: the examples.
        batch_size: examples per batch.
        shuffle: a new order in each pass; an incomplete last batch is then left out, unless it
            is the only one.
        augment: each image cropped, mirrored and cut at random, as its `ImageSet` says.
    """

    def __init__(
        self,
        dataset: ImageSet | TableSet,
        batch_size: int,
        shuffle: bool = False,
        augment: bool = False,
    ) -> None:
        self.dataset, self.batch_size = dataset, require_count(batch_size, "batch_size")
        self.shuffle, self.augment = shuffle, augment
        self.rank, self.world_size = 0, 1
        if len(dataset) == 0:
            raise DataError("the data set holds no example: there is nothing to load")

    def for_rank(self, rank: int, world_size: int) -> "MemoryLoader":
        """The share of one of several processes, given that all draw the same order.

        The k-th batches of all ranks together are the k-th batch of one process with `batch_size`
        times `world_size`, and all have the same number and size. What cannot be shared evenly
        is left out when shuffling, and filled up by repeating examples otherwise.
        """
        if not 0 <= rank < require_count(world_size, "world_size"):
            raise DataError(f"rank {rank} is not among {world_size} processes: 0 <= rank < that")
        share = MemoryLoader(self.dataset, self.batch_size, self.shuffle, self.augment)
        share.rank, share.world_size = rank, world_size
        return share

    def __len__(self) -> int:
        whole, rest = divmod(len(self.dataset), self.batch_size * self.world_size)
        return max(whole, 1) if self.shuffle else whole + bool(rest)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self._batches(self._order().to(self.dataset.device))

    def _order(self) -> Tensor:
        """Row numbers of all processes, as many for each."""
        count = len(self.dataset)
        draw = torch.randperm if self.shuffle else torch.arange
        order: Tensor = draw(count, device="cpu")
        even = -(-count // self.world_size) * self.world_size
        return order.repeat(-(-even // count))[:even]

    def _batches(self, order: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        together = self.batch_size * self.world_size
        for number in range(len(self)):
            everyone = order[number * together : (number + 1) * together]
            share = len(everyone) // self.world_size
            mine = everyone[self.rank * share : (self.rank + 1) * share]
            yield self.dataset.batch(mine, self.augment)
