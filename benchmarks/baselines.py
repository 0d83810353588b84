"""What a Bayesian network is measured against, on CIFAR-10: one row per method.

    python benchmarks/baselines.py --root DATA --methods deterministic mc-dropout --epochs 60

Plain training, MC dropout, a deep ensemble and Bayes by Backprop, with one network, optimiser and
number of epochs. Each model is stored, loaded back from its file, and then measured; the record is
that of the last epoch, and the test set chooses nothing.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch
from dense_vi import images, outside_images
from record import append_result

import pocketbayes as pb
from pocketbayes.data import MemoryLoader
from pocketbayes.methods import METHODS
from pocketbayes.models import MODELS, build_network

# By row: method, its own settings, estimator, options of the network.
ROWS = {
    "deterministic": ("deterministic", {}, "lrt", {}),
    "mc-dropout": ("mc-dropout", {}, "lrt", {"dropout": 0.1}),
    "deep-ensemble": ("deep-ensemble", {"members": 5}, "lrt", {}),
    "bayes-by-backprop": ("mean-field", {"std_lr": 5e-3}, "weight", {}),
    "mean-field": ("mean-field", {"std_lr": 5e-3}, "lrt", {}),
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--methods", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--model", default="resnet18", choices=MODELS)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--lr", type=float, default=0.2)
    parser.add_argument("--beta", type=float, default=0.01)
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--limit", type=int, help="images per set, for a dry run")
    parser.add_argument("--no-compile", action="store_true")
    return parser.parse_args()


def main() -> None:
    a = arguments()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    train_set = images("cifar10", "train", a, device)
    test = MemoryLoader(images("cifar10", "test", a, device), 500)
    outside = outside_images(a, device, train_set)
    for row in a.methods:
        measure(row, a, train_set, test, outside, device)


def measure(row, a, train_set, test, outside, device) -> None:  # type: ignore[no-untyped-def]
    name, settings, estimator, options = ROWS[row]
    if name == "mean-field":
        settings = settings | {"beta": a.beta}
    method = METHODS[name](optimizer="sgd", lr=a.lr, weight_decay=a.weight_decay, **settings)
    torch.manual_seed(a.seed)
    net = build_network(a.model, **options).to(device, memory_format=torch.channels_last)
    model = pb.bayesianize_(net, estimator=estimator)
    train = MemoryLoader(train_set, a.batch, shuffle=True, augment=True)
    begin = time.perf_counter()
    result = pb.fit(
        model, train, method, epochs=a.epochs, seed=a.seed, compile=not a.no_compile, progress=False
    )
    seconds = time.perf_counter() - begin
    with tempfile.TemporaryDirectory() as folder:
        size = pb.save(result.model, Path(folder) / "model.pocket")
        stored = pb.load(Path(folder) / "model.pocket").to(device)
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        record = pb.evaluate(
            stored, test, a.samples, outside, torch.Generator().manual_seed(0)
        )  # fmt: skip
    append_result(
        "baselines",
        row=row,
        model=a.model,
        data="cifar10",
        epochs=a.epochs,
        seed=a.seed,
        method=method.settings(),
        options=options,
        train_seconds=seconds,
        weights=size.weights,
        file_bytes=size.bytes,
        **record.to_dict(),
    )


if __name__ == "__main__":
    main()
