"""Data sets that are only read from beginning to end: who reads which part, and how much it is."""

import hashlib
from typing import Any

from torch import Tensor
from torch.utils.data import IterableDataset

from pocketbayes.errors import DataError, warn
from pocketbayes.layers import Inputs, named_tensors
from pocketbayes.methods import gathered

_TOO_MANY = 1.5  # examples in an epoch for each that there is


def is_stream(loader: object) -> bool:
    """Whether a loader reads an `IterableDataset`, or is one, as those of webdataset are."""
    loader = getattr(loader, "loader", loader)  # of one around another
    dataset = getattr(loader, "dataset", None)
    return isinstance(loader, IterableDataset) or isinstance(dataset, IterableDataset)


def require_own_part(loader: object, x: Inputs, y: Tensor) -> None:
    """An error if every process got the same first batch of a stream, as one not split gives."""
    if not is_stream(loader):
        return
    found = gathered(_digest(x, y))
    if len(found) > 1 and len(set(found)) == 1:
        raise DataError(
            f"each of {len(found)} processes reads the same examples of this stream: let its "
            "__iter__ yield a part of its own to each, for instance islice(rows, rank, None, "
            "world_size) with torch.distributed.get_rank() and get_world_size() (of webdataset: "
            "nodesplitter=split_by_node; of datasets: split_dataset_by_node)"
        )


def _digest(x: Inputs, y: Tensor) -> str:
    state = hashlib.sha256()
    for name, tensor in [*named_tensors(x), ("target", y)]:
        state.update(f"{name} {tuple(tensor.shape)}".encode())
        state.update(tensor.detach().cpu().double().contiguous().numpy().tobytes())
    return state.hexdigest()


def warn_if_read_again(loader: object, seen: float, dataset_size: int) -> None:
    """Says so if the first epoch of a stream had far more examples than there are."""
    if is_stream(loader) and seen > _TOO_MANY * dataset_size:
        warn(
            f"an epoch of this stream has {int(seen):,} examples, and dataset_size is "
            f"{dataset_size:,}: the KL counts {seen / dataset_size:.2g} times too much. Give the "
            "right dataset_size; or, if each worker of the DataLoader (or each process) reads the "
            "whole stream, let its __iter__ yield only a part to each: see "
            "torch.utils.data.get_worker_info()"
        )


def tell_epoch(loader: Any, epoch: int) -> None:
    """Lets a data set that shuffles by epoch know which one begins."""
    tell = getattr(getattr(loader, "dataset", None), "set_epoch", None)
    if callable(tell):
        tell(epoch)
