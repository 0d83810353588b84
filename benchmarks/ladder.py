"""Small files by a fixed recipe: a dense network, pruned step by step, stored as finely as fits.

    python benchmarks/ladder.py --root DATA --recipe recipes/resnet18-small.yaml --seeds 100
    python benchmarks/ladder.py --root DATA --recipe recipes/resnet18-small.yaml --validation

Each seed trains the dense network by draws of weights. It is the teacher of all that follow: for
each step of the recipe the network is pruned by signal-to-noise ratio and trained on. Where a step
has target bytes, its file has the smallest of the recipe's tolerances that fits, a one-pass head
included. Nothing is chosen here: choose recipes with `--validation`, which trains on 45,000 images,
measures on the other 5,000 and teaches no head. Else the test set is read, once for each file.
"""

import argparse
import copy
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import yaml
from cifar import Sets, open_sets, parser
from corruptions import also_made_worse
from distillation import SOME
from record import append_result

import pocketbayes as pb
from pocketbayes.codec import as_stored
from pocketbayes.compression.counting import multiplications
from pocketbayes.compression.rounding import rounded
from pocketbayes.data import CORRUPTIONS, MemoryLoader
from pocketbayes.models import build_network

_HEAD = 7_000  # bytes that a one-pass head may take
_EXAMPLE = torch.zeros(1, 3, 32, 32)


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--recipe", type=Path, required=True)
    made.add_argument("--seeds", nargs="+", type=int, default=[0])
    made.add_argument("--names", nargs="*", default=list(SOME), choices=CORRUPTIONS)
    made.add_argument("--files", type=Path, help="folder where the files stay")
    a = made.parse_args()
    recipe = yaml.safe_load(a.recipe.read_text(encoding="utf-8"))
    a.cutout = bool(recipe.get("cutout"))
    sets = open_sets(a)
    for seed in a.seeds:
        for facts in rows(a, recipe, sets, seed):
            known = {"recipe": a.recipe.stem, "settings": recipe, "seed": seed}
            known |= {"model": a.model, "data": a.data, "validation": a.validation}
            append_result("ladder_search" if a.validation else "ladder", **known, **facts)


def rows(
    a: argparse.Namespace, recipe: dict[str, Any], sets: Sets, seed: int
) -> Iterator[dict[str, Any]]:
    begin, step = time.perf_counter(), recipe["parent"]
    loader = MemoryLoader(sets.train, recipe["batch"], shuffle=True, augment=True)
    parent = fitted(a, recipe, step, dense(a, sets, seed, step["width"]), loader, seed)
    spent = {"train_seconds": time.perf_counter() - begin}
    size = kept(a, parent, 0.01, f"dense-{seed}.pocket")
    yield (
        {"row": "dense", "file_bytes": size}
        | spent
        | cost(parent, sets)
        | also_made_worse(parent, sets, a.samples)
    )
    taught, model = pb.with_teacher(loader, parent, compile=not a.no_compile), parent
    for step in recipe["steps"]:
        model = pb.prune_(copy.deepcopy(model), step["density"], by="snr")
        model = fitted(a, recipe, step, model, taught, seed, warmup=0.0)
        spent = {"train_seconds": time.perf_counter() - begin}
        known = {"density": step["density"]} | cost(model, sets) | spent
        if a.validation:
            for tolerance in recipe["tolerances"]:
                small, size = stored(model, tolerance)
                known |= {"row": "file", "tolerance": tolerance, "file_bytes": size}
                yield known | also_made_worse(small.to(sets.device), sets, a.samples)
        elif "target_bytes" in step:
            yield from files(a, recipe, step, model, loader, sets, seed, known)


def files(
    a: argparse.Namespace, recipe: dict[str, Any], step: dict[str, Any], model: torch.nn.Module,
    loader: MemoryLoader, sets: Sets, seed: int, known: dict[str, Any],
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """The file of a step, measured by draws and by its head."""
    target = step["target_bytes"]
    for tolerance in recipe["tolerances"]:
        small, size = stored(model, tolerance)
        if size + _HEAD <= target:
            break
    small = small.to(sets.device, memory_format=torch.channels_last)
    begin = time.perf_counter()
    small = pb.distill_(small, loader, seed=seed)
    size = kept(a, small, tolerance, f"{target}-{seed}.pocket")
    known |= {"row": "file", "target_bytes": target, "tolerance": tolerance, "file_bytes": size}
    known |= {"distill_seconds": time.perf_counter() - begin}
    for estimator in ("weight", "one_pass"):
        yield known | also_made_worse(small, sets, a.samples, estimator, a.names)


def dense(a: argparse.Namespace, sets: Sets, seed: int, width: float) -> torch.nn.Module:
    torch.manual_seed(seed)
    net = build_network(a.model, input_shape=sets.train.preprocess["shape"], width=width)
    net = net.to(sets.device, memory_format=torch.channels_last)
    return pb.bayesianize_(net, prior_std=a.prior_std, std_init=a.std_init, estimator="weight")


def fitted(
    a: argparse.Namespace, recipe: dict[str, Any], step: dict[str, Any], model: torch.nn.Module,
    loader: Any, seed: int, **options: Any,
) -> torch.nn.Module:  # fmt: skip
    torch.compiler.reset()  # compiled code fits one density
    shared = {name: recipe[name] for name in ("weight_decay", "std_lr")}
    method = pb.MeanField(optimizer="sgd", lr=step["lr"], beta=step["beta"], **shared, **options)
    fit = {"seed": seed, "progress": False, "compile": not a.no_compile}
    return pb.fit(model, loader, method, epochs=step["epochs"], **fit).model


def stored(model: torch.nn.Module, tolerance: float) -> tuple[torch.nn.Module, int]:
    """What its file gives back, and the bytes; with its network, for readers without torch."""
    return as_stored(rounded(model, {}, tolerance), tolerance=tolerance, example=_EXAMPLE)


def kept(a: argparse.Namespace, model: torch.nn.Module, tolerance: float, name: str) -> int:
    """Bytes of its file, which stays if there is a folder for it."""
    path = None
    if a.files is not None:
        a.files.mkdir(exist_ok=True, parents=True)
        path = a.files / name
    return as_stored(model, path=path, tolerance=tolerance, example=_EXAMPLE)[1]


def cost(model: torch.nn.Module, sets: Sets) -> dict[str, int]:
    return {"multiplications": multiplications(model, _EXAMPLE.to(sets.device)).sparse}


if __name__ == "__main__":
    main()
