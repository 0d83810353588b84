"""What the image benchmarks share: arguments, data, training and measuring.

DATA holds CIFAR-10 (or MNIST, or Fashion-MNIST) and optionally a set that lies outside of it, in
any form that `open_dataset` reads. Every record is that of the last epoch: no epoch is chosen.
"""

import argparse
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from paired import sums_by_block

import pocketbayes as pb
from pocketbayes.data import ImageSet, MemoryLoader, open_dataset
from pocketbayes.errors import DataError
from pocketbayes.methods import Method
from pocketbayes.models import MODELS, build_network
from pocketbayes.prediction import answered, record_of

_VALIDATION = 5_000

# By data set: its out-of-distribution inputs.
OUTSIDE = {
    "cifar10": "svhn", "mnist": "fashion-mnist", "fashion-mnist": "mnist", "tiny-imagenet": "svhn"
}  # fmt: skip
# Of ten classes and in no order, so that the first and the last images are as good as any.
SHUFFLED = ("cifar10", "mnist", "fashion-mnist")


def parser(description: str | None) -> argparse.ArgumentParser:
    """The arguments of every image benchmark."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--root", type=Path, required=True)
    made.add_argument("--data", default="cifar10", choices=SHUFFLED)
    made.add_argument("--model", default="resnet18", choices=MODELS)
    made.add_argument("--width", type=float, default=1.0, help="factor on hidden channels")
    made.add_argument("--epochs", type=int, default=60)
    made.add_argument("--batch", type=int, default=512)
    made.add_argument("--lr", type=float, default=0.2)
    made.add_argument("--weight-decay", type=float, default=5e-4)
    made.add_argument("--beta", type=float, default=0.01)
    made.add_argument("--std-lr", type=float, default=5e-3)
    made.add_argument("--prior-std", type=float, default=0.05)
    made.add_argument("--std-init", type=float, default=1e-3)
    made.add_argument("--samples", type=int, default=30)
    made.add_argument("--limit", type=int, help="images per set, for a dry run")
    made.add_argument("--crop-digits", action="store_true", help="shift digits at random")
    made.add_argument("--cutout", action="store_true", help="blank a square of training images")
    made.add_argument("--no-compile", action="store_true")
    made.add_argument("--no-ood", action="store_true")
    made.add_argument(
        "--validation",
        action="store_true",
        help="train on 45,000 images and measure on the other 5,000: for choosing settings",
    )
    return made


@dataclass(frozen=True)
class Sets:
    """Training images, test images, and out-of-distribution images."""

    train: ImageSet
    test: MemoryLoader
    outside: MemoryLoader | None
    device: str


def open_sets(a: argparse.Namespace) -> Sets:
    """The sets on the device: the test set or, to choose settings, a part of the training set."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    train = _images(a.data, "train", a, device)
    if a.crop_digits:
        train = replace(train, augmentation=("crop",))  # digits have a margin of 4 pixels
    if a.cutout:
        train = train.with_cutout()
    if a.validation:
        cut = len(train) - min(_VALIDATION, len(train) // 2)
        train, held = train.subset(range(cut)), train.subset(range(cut, len(train)))
        return Sets(train, in_batches(held), None, device)
    test = in_batches(_images(a.data, "test", a, device))
    return Sets(train, test, None if a.no_ood else outside(a, device, train), device)


def in_batches(images: ImageSet) -> MemoryLoader:
    """For measuring; on a GPU, where small networks would wait for each other's launches, large."""
    return MemoryLoader(images, 2500 if images.device.type == "cuda" else 500)


def _images(name: str, split: str, a: argparse.Namespace, device: str) -> ImageSet:
    data = open_dataset(name, split, a.root)
    return data.subset(range(len(data))[: a.limit]).to(device)


def outside(a: argparse.Namespace, device: str, like: ImageSet) -> MemoryLoader | None:
    """Images of another set, prepared alike; none if they are not there."""
    try:
        found = _images(OUTSIDE[a.data], "test", a, device)
        return in_batches(found.fitted(like.preprocess))
    except DataError as error:
        print(f"no OOD scores: {error}", file=sys.stderr)
        return None


def network(a: argparse.Namespace, sets: Sets, **options: Any) -> torch.nn.Module:
    """A fresh one for these images, on their device."""
    if a.width != 1:
        options["width"] = a.width  # a network of the benchmarks need not have it
    net = build_network(a.model, input_shape=sets.train.preprocess["shape"], **options)
    return net.to(sets.device, memory_format=torch.channels_last)


def network_name(a: argparse.Namespace) -> str:
    """As rows and files name it: a narrower one is another network."""
    return a.model if a.width == 1 else f"{a.model}-width-{a.width:g}"


def train(
    a: argparse.Namespace,
    method: Method,
    sets: Sets,
    seed: int,
    estimator: str = "lrt",
    **options: Any,
) -> tuple[pb.FitResult, dict[str, Any]]:
    """A network trained by `method`, and what that took."""
    torch.manual_seed(seed)
    net = network(a, sets, **options)
    model = pb.bayesianize_(net, prior_std=a.prior_std, std_init=a.std_init, estimator=estimator)
    if sets.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    result = fitted(a, sets, model, method, a.epochs, seed)
    last, later = result.history[-1], result.history[len(result.history) // 2 :]
    speed = sum(row["examples_per_second"] for row in later) / len(later)
    return result, {
        "train_seconds": time.perf_counter() - begin,
        "seconds_per_epoch": len(sets.train) // a.batch * a.batch / speed,
        "peak_gpu_bytes": torch.cuda.max_memory_allocated() if sets.device == "cuda" else None,
        "kl": last["kl"],
        "train_nll": last["nll"],
        "train_accuracy": last["accuracy"],
    }


def fitted(
    a: argparse.Namespace,
    sets: Sets,
    model: torch.nn.Module,
    method: Method,
    epochs: int,
    seed: int,
) -> pb.FitResult:
    """The model after this many epochs, with the augmentation that suits the data."""
    loader = MemoryLoader(sets.train, a.batch, shuffle=True, augment=True)
    options = {"seed": seed, "progress": False, "compile": not a.no_compile}
    return pb.fit(model, loader, method, epochs=epochs, **options)


def measure(
    a: argparse.Namespace,
    model: torch.nn.Module,
    sets: Sets,
    estimator: str | None = None,
    by_block: bool = False,
) -> dict[str, Any]:
    """The record on what is measured on, how long that took and, if asked, its sums by block."""
    begin = time.perf_counter()
    count = 1 if estimator == "mean" else a.samples
    options = {"generator": torch.Generator().manual_seed(0), "estimator": estimator}
    with torch.autocast(sets.device, torch.bfloat16, enabled=sets.device == "cuda"):
        answers = answered(model, sets.test, count, sets.outside, **options)
        record = record_of(answers)
    found = {"evaluate_seconds": time.perf_counter() - begin} | record.to_dict()
    return found | ({"blocks": sums_by_block(answers)} if by_block else {})


def settings(a: argparse.Namespace) -> dict[str, Any]:
    """All arguments but where data and models lie; of a file only its name."""
    known = {name: value for name, value in vars(a).items() if name not in ("root", "files")}
    for name, value in known.items():
        if isinstance(value, list):
            known[name] = [item.name if isinstance(item, Path) else item for item in value]
    if known.get("weights"):
        known["weights"] = Path(known["weights"]).name
    return known
