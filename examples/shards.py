"""Training on shards, tar files that are read from first to last, as webdataset writes them.

python examples/shards.py                                        # or, each process its shards:
torchrun --nproc-per-node 2 examples/shards.py
"""

import io
import os
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import pocketbayes as pb


class Shards(IterableDataset):
    """Pairs `KEY.npy` and `KEY.cls` of tar files; every process and worker reads files of its own.

    `size` is the number of examples in all files together: what the KL is scaled by.
    """

    def __init__(self, files: list[Path], size: int) -> None:
        self.files, self.size, self.epoch = sorted(files), size, 0

    def __len__(self) -> int:
        return self.size

    def set_epoch(self, epoch: int) -> None:
        """The order of the files follows the epoch; `fit` says which one begins."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        worker = get_worker_info()
        rank, processes = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        order = torch.randperm(len(self.files), generator=torch.Generator().manual_seed(self.epoch))
        for place in order[rank * workers + number :: processes * workers].tolist():
            yield from examples_in(self.files[place])


def examples_in(file: Path) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs and labels of a shard, in which files of one key follow each other."""
    with tarfile.open(file) as shard:
        parts: dict[str, bytes] = {}
        for member in shard:
            stored = shard.extractfile(member)
            assert stored is not None
            parts[Path(member.name).suffix] = stored.read()
            if len(parts) == 2:
                x = np.load(io.BytesIO(parts[".npy"]), allow_pickle=False)
                yield torch.from_numpy(x), torch.tensor(int(parts[".cls"]))
                parts = {}


def write_shards(folder: Path, shards: int, rows: int) -> list[Path]:
    """Shards of numbers whose label is where the largest of the first three stands."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(0)
    for number in range(shards):
        with tarfile.open(folder / f"{number:03}.tar", "w") as shard:
            for row in range(rows):
                x, stored = draw.normal(size=8).astype(np.float32), io.BytesIO()
                np.save(stored, x)
                texts = {"npy": stored.getvalue(), "cls": str(x[:3].argmax()).encode()}
                for ending, text in texts.items():
                    info = tarfile.TarInfo(f"{row:05}.{ending}")
                    info.size = len(text)
                    shard.addfile(info, io.BytesIO(text))
    return sorted(folder.glob("*.tar"))


def main(epochs: int = 10, shards: int = 8, rows: int = 100, workers: int = 0) -> pb.FitResult:
    """Writes shards, and trains on them."""
    rank = os.environ.get("RANK", "0")
    with tempfile.TemporaryDirectory() as folder:
        files = write_shards(Path(folder, rank), shards, rows)
        loader = DataLoader(Shards(files, shards * rows), batch_size=50, num_workers=workers)
        net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
        return pb.fit(pb.bayesianize_(net), loader, epochs=epochs)


if __name__ == "__main__":
    print(main().history[-1])
