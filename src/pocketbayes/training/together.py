"""Several processes fail, stop and end together: none waits for one that is gone.

On GPUs a word in every step would cost more than it is worth: there the launcher ends the others.
"""

from collections.abc import Iterator
from typing import Any, TypeVar

import torch

from pocketbayes import errors
from pocketbayes.errors import DataError, TrainingError
from pocketbayes.training.stopping import StopRequest

Item = TypeVar("Item")


def agrees(fabric: Any) -> bool:
    """Whether processes ask one another in every step."""
    return bool(fabric.world_size > 1 and fabric.device.type == "cpu")


def raise_together(fabric: Any, fault: Exception | None) -> None:
    """Raises this process's error, or that of another one, on every process."""
    if agrees(fabric):
        if not _most(int(fault is not None))[0]:
            return
        _raise_first(fault)
    if fault is not None:
        raise fault


def fetched_together(
    fabric: Any, batches: Iterator[Item], asked: StopRequest, stop: StopRequest
) -> Iterator[Item]:
    """The batches, as long as every process has one.

    Args:
        fabric: knows the processes.
        batches: of this one.
        asked: what this process was asked by a signal.
        stop: becomes what any process was asked, at the same batch on all of them.
    """
    if not agrees(fabric):
        yield from batches
        return
    while True:
        item: Item | None = None
        fault: Exception | None = None
        try:
            item = next(batches, None)
        except Exception as error:
            fault = error
        ended = int(item is None and fault is None)
        failed, some_ended, none_ended, signal = _most(
            int(fault is not None), ended, 1 - ended, asked.signal
        )
        if failed:
            _raise_first(fault)
        if some_ended and none_ended:
            raise DataError(
                "the processes have different numbers of batches: give each the same number, as a "
                "DistributedSampler does"
            )
        stop.signal = stop.signal or signal
        if item is None:
            return
        yield item


def _most(*numbers: int) -> list[int]:
    """The largest of each number over all processes."""
    found = torch.tensor(numbers)
    torch.distributed.all_reduce(found, torch.distributed.ReduceOp.MAX)
    return [int(number) for number in found]


def _raise_first(fault: Exception | None) -> None:
    """The error of this process, or else of the first one that has one."""
    mine = None if fault is None else (type(fault).__name__, str(fault))
    told: list[tuple[str, str] | None] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(told, mine)
    if fault is not None:
        raise fault
    for rank, words in enumerate(told):
        if words is not None:
            kind = getattr(errors, words[0], None)
            if isinstance(kind, type) and issubclass(kind, errors.PocketBayesError):
                raise kind(f"{words[1]} (in process {rank})")
            raise TrainingError(f"process {rank} failed: {words[0]}: {words[1]}")
