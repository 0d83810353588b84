"""Dense mean-field VI of a ResNet on CIFAR-10, through the public names.

    python benchmarks/dense_vi.py --root DATA --epochs 60 --seed 0

DATA holds CIFAR-10 and optionally SVHN's test set, in any form that `open_dataset` reads. The
record is that of the last epoch; the test set chooses nothing.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch
from record import append_result

import pocketbayes as pb
from pocketbayes.data import ImageSet, MemoryLoader, open_dataset
from pocketbayes.errors import DataError
from pocketbayes.models import MODELS


def images(name: str, split: str, a: argparse.Namespace, device: str) -> ImageSet:
    data = open_dataset(name, split, a.root)
    return data.subset(range(len(data))[: a.limit]).to(device)


def outside_images(a: argparse.Namespace, device: str, like: ImageSet) -> MemoryLoader | None:
    try:
        return MemoryLoader(images("svhn", "test", a, device).fitted(like.preprocess), 500)
    except DataError as error:
        print(f"no OOD scores: {error}", file=sys.stderr)
        return None


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--model", default="resnet18", choices=MODELS)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--beta", type=float, default=0.01)
    parser.add_argument("--lr", type=float, default=0.2)
    parser.add_argument("--std-lr", type=float, default=5e-3)
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--prior-std", type=float, default=0.05)
    parser.add_argument("--std-init", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--limit", type=int, help="images per set, for a dry run")
    parser.add_argument("--no-compile", action="store_true")
    return parser.parse_args()


def main() -> None:
    a = arguments()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    train_set = images("cifar10", "train", a, device)
    train = MemoryLoader(train_set, a.batch, shuffle=True, augment=True)
    test = MemoryLoader(images("cifar10", "test", a, device), 500)
    outside = outside_images(a, device, train_set)
    torch.manual_seed(a.seed)
    net = MODELS[a.model]().to(device, memory_format=torch.channels_last)
    model = pb.bayesianize_(net, prior_std=a.prior_std, std_init=a.std_init)
    method = pb.MeanField(
        beta=a.beta,
        lr=a.lr,
        std_lr=a.std_lr,
        optimizer="sgd",
        weight_decay=a.weight_decay,
    )
    begin = time.perf_counter()
    result = pb.fit(
        model, train, method, epochs=a.epochs, seed=a.seed, compile=not a.no_compile, progress=False
    )
    seconds = time.perf_counter() - begin
    later = result.history[len(result.history) // 2 :]
    for estimator in ("lrt", "weight", "mean"):
        count = 1 if estimator == "mean" else a.samples
        begin = time.perf_counter()
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            record = pb.evaluate(
                model, test, count, outside, torch.Generator().manual_seed(0), estimator
            )
        append_result(
            "dense_vi",
            model=a.model,
            data="cifar10",
            settings={k: v for k, v in vars(a).items() if k != "root"},
            train_seconds=seconds,
            seconds_per_epoch=a.batch * len(train) / np.mean(
                [row["examples_per_second"] for row in later]
            ),
            kl=result.history[-1]["kl"],
            train_nll=result.history[-1]["nll"],
            peak_gpu_bytes=torch.cuda.max_memory_allocated() if device == "cuda" else None,
            evaluate_seconds=time.perf_counter() - begin,
            **record.to_dict(),
        )  # fmt: skip


if __name__ == "__main__":
    main()
