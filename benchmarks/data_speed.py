"""How fast images come: seconds to load CIFAR-10, and images per second of one augmented epoch.

    python benchmarks/data_speed.py --root DATA

Batches are cropped, mirrored and normalised on the device, and thrown away. The epoch that counts
comes after one that does not.
"""

import argparse
import time
from pathlib import Path

import torch
from record import append_result

from pocketbayes.data import MemoryLoader, open_dataset


def seconds_of_epoch(loader: MemoryLoader, device: str) -> float:
    begin = time.perf_counter()
    for _ in loader:
        pass
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    begin = time.perf_counter()
    data = open_dataset("cifar10", "train", arguments.root)
    loading = time.perf_counter() - begin
    loader = MemoryLoader(data.to(arguments.device), arguments.batch, shuffle=True, augment=True)
    seconds_of_epoch(loader, arguments.device)
    seconds = seconds_of_epoch(loader, arguments.device)
    append_result(
        "data_speed",
        data="cifar10",
        device=arguments.device,
        batch=arguments.batch,
        load_seconds=loading,
        epoch_seconds=seconds,
        images_per_second=arguments.batch * len(loader) / seconds,
    )


if __name__ == "__main__":
    main()
