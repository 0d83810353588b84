"""What a byte is worth: a trained network shares its weights at several sizes, untrained.

    python benchmarks/rate_curve.py --root DATA

Mean-field networks learn 20,000 digits of MNIST's training set; then their weights share a
rate-distortion codebook, for several sizes. Measured on 10,000 other training digits, with
weights as they come from the file.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from record import append_result

import pocketbayes as pb
from pocketbayes.data import MemoryLoader, open_dataset
from pocketbayes.models import build_network

NETWORKS: dict[str, dict[str, Any]] = {
    "lenet5": {"sizes": [26_000, 18_000, 12_000], "options": {}},
    "mlp": {"sizes": [60_000, 35_000, 20_000], "options": {"hidden": (300, 100)}},
}


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--root", type=Path, required=True)
    made.add_argument("--epochs", type=int, default=12)
    made.add_argument("--samples", type=int, default=20)
    a = made.parse_args()
    digits = open_dataset("mnist", "train", a.root)
    train = MemoryLoader(digits.subset(range(20_000)), 256, shuffle=True)
    held = MemoryLoader(digits.subset(range(50_000, 60_000)), 1000)
    with tempfile.TemporaryDirectory() as folder:
        for name, facts in NETWORKS.items():
            path = Path(folder) / "model.pocket"
            pb.save(trained(name, facts["options"], train, a.epochs), path)
            report(a, name, path, held, "mean-field", None)
            for size in facts["sizes"]:
                smaller = Path(folder) / "smaller.pocket"
                pb.save(shared(pb.load(path), train, size), smaller)
                report(a, name, smaller, held, "shared", size)


def trained(
    name: str, options: dict[str, Any], train: MemoryLoader, epochs: int
) -> torch.nn.Module:
    torch.manual_seed(0)
    net = build_network(name, input_shape=(1, 28, 28), **options)
    model = pb.bayesianize_(net, prior_std=0.2, std_init=1e-2)
    method = pb.MeanField(beta=0.1, lr=2e-3, std_lr=1e-2)
    return pb.fit(model, train, method, epochs=epochs, progress=False, seed=0).model


def shared(model: torch.nn.Module, train: MemoryLoader, size: int) -> torch.nn.Module:
    method = pb.Sharing(objective="rate_distortion", target_bytes=size, components=500)
    return pb.fit(model, train, method, epochs=0, progress=False, seed=0).model


def report(
    a: argparse.Namespace, name: str, path: Path, held: MemoryLoader, row: str, size: int | None
) -> None:
    record = pb.evaluate(pb.load(path), held, a.samples, generator=torch.Generator().manual_seed(0))
    known = {"model": name, "row": row, "target_bytes": size, "epochs": a.epochs}
    known |= {"file_bytes": path.stat().st_size}
    append_result("rate_curve", **known, **record.to_dict())


if __name__ == "__main__":
    main()
