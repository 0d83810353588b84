"""What variational inference makes of a trained network, epoch by epoch.

    python benchmarks/from_trained.py --data digits --seeds 0 1 2
    python benchmarks/from_trained.py --data fashion-mnist --root DATA --rows 20000

A plain network is trained by Adam and a cosine, then converted and handed to `fit`, with nothing
said but the epochs. One row each for the plain network, for draws right after conversion, and after
each number of `--epochs`, a run of its own; all on the test set. `std_range` says how far apart the
stds of one tensor are: their 90% over their 10% quantile, averaged over tensors. It is 1 where
nothing was learned. `std_share`: stds over means, root mean squares.
"""

import argparse
import copy
import time
from pathlib import Path

import torch
from record import append_result
from torch import nn

import pocketbayes as pb
from pocketbayes.data import MemoryLoader, open_dataset

PLAIN_EPOCHS = {"digits": 60, "fashion-mnist": 8}


def network(data: str) -> nn.Module:
    if data == "digits":
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Flatten(), nn.Linear(16 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def plain_training(net: nn.Module, loader: MemoryLoader, epochs: int, device: str) -> None:
    """Adam and a cosine, as one would."""
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader))
    net.train()
    for _ in range(epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            output = net(images.to(device))
            nn.functional.cross_entropy(output, labels.to(device)).backward()
            optimizer.step()
            schedule.step()


@torch.no_grad()
def stds_of(model: nn.Module) -> dict[str, float]:
    ranges, shares = [], []
    for _, posterior in pb.named_posteriors(model):
        mean, variance = posterior.moments()
        std = variance.sqrt().flatten().cpu()
        low, high = std.quantile(torch.tensor([0.1, 0.9]))
        ranges.append(float(high / low))
        shares.append(float(std.square().mean().sqrt() / mean.square().mean().sqrt()))
    return {"std_range": sum(ranges) / len(ranges), "std_share": sum(shares) / len(shares)}


def report(a: argparse.Namespace, seed: int, stage: str, model: nn.Module, **facts: float) -> None:
    test = MemoryLoader(open_dataset(a.data, "test", a.root), 500)
    estimator = "mean" if stage == "plain" else None
    found = pb.evaluate(model, test, estimator=estimator)
    append_result(
        "from_trained", data=a.data, seed=seed, stage=stage, accuracy=found.accuracy,
        nll=found.nll, ece=found.ece, aurc=found.aurc, **facts,
    )  # fmt: skip


def run(a: argparse.Namespace, seed: int) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(seed)
    train = open_dataset(a.data, "train", a.root)
    if a.rows is not None:
        train = train.subset(torch.arange(a.rows))
    loader = MemoryLoader(train, a.batch_size, shuffle=True)
    net = network(a.data).to(device)
    plain_training(net, loader, PLAIN_EPOCHS[a.data], device)
    converted = pb.bayesianize_(copy.deepcopy(net))
    report(a, seed, "plain", converted)
    report(a, seed, "converted", converted, **stds_of(converted))
    for epochs in a.epochs:
        model, begin = pb.bayesianize_(copy.deepcopy(net)), time.perf_counter()
        pb.fit(model, loader, epochs=epochs, seed=seed, progress=False)
        spent = time.perf_counter() - begin
        report(a, seed, f"{epochs} epochs", model, fit_seconds=spent, **stds_of(model))


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--data", choices=PLAIN_EPOCHS, default="digits")
    made.add_argument("--root", type=Path)
    made.add_argument("--rows", type=int, help="the first of the training set; default: all")
    made.add_argument("--batch-size", type=int, default=64)
    made.add_argument("--epochs", nargs="+", type=int, default=[1, 10])
    made.add_argument("--seeds", nargs="+", type=int, default=[0])
    a = made.parse_args()
    for seed in a.seeds:
        run(a, seed)


if __name__ == "__main__":
    main()
