"""Small files by a fixed recipe: a dense network, pruned step by step, stored as finely as fits.

    python benchmarks/ladder.py --root DATA --recipe recipes/resnet18-small.yaml --seeds 100
    python benchmarks/ladder.py --root DATA --recipe recipes/resnet18-small.yaml --validation

Each seed trains the dense network by draws of weights. It is the teacher of all that follow: for
each step of the recipe the network is pruned by signal-to-noise ratio and trained on. Where a step
has target bytes, its file has the smallest of the recipe's tolerances that fits, a one-pass head
included. A step that is aside has a file, but no further step begins with its network.
With `--files`, networks and files of the recipe that are there are not made again.
Nothing is chosen here: choose recipes with `--validation`, which trains on 45,000 images,
measures on the other 5,000 and teaches no head. Else the test set is read, once for each file.
"""

import argparse
import copy
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
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

_HEAD = 5_000, 0.02  # bytes that a one-pass head takes at most, or the share of the file
_EXAMPLE = torch.zeros(1, 3, 32, 32)


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--recipe", type=Path, required=True)
    made.add_argument("--seeds", nargs="+", type=int, default=[0])
    made.add_argument("--names", nargs="*", default=list(SOME), choices=CORRUPTIONS)
    made.add_argument("--files", type=Path, help="folder where the files stay")
    made.add_argument("--at-once", type=int, default=1, help="trainings that share this GPU")
    a = made.parse_args()
    recipe = yaml.safe_load(a.recipe.read_text(encoding="utf-8"))
    a.cutout = bool(recipe.get("cutout"))
    if a.files:
        a.files = folder_of(a.files / f"{a.recipe.stem}{'-search' * a.validation}", recipe)
    sets = open_sets(a)
    for seed in a.seeds:
        for facts in rows(a, recipe, sets, seed):
            known = {"recipe": a.recipe.stem, "settings": recipe, "seed": seed}
            known |= {"model": recipe["model"], "data": a.data, "validation": a.validation}
            known |= {"trainings_at_once": a.at_once}
            append_result("ladder_search" if a.validation else "ladder", **known, **facts)


def rows(
    a: argparse.Namespace, recipe: dict[str, Any], sets: Sets, seed: int
) -> Iterator[dict[str, Any]]:
    loader = MemoryLoader(sets.train, recipe["batch"], shuffle=True, augment=True)
    parent, spent, size = known_or(
        a, sets, f"dense-{seed}", 0.01, partial(dense, a, recipe, sets, loader, seed)
    )
    if size:
        known = {"row": "dense", "file_bytes": size, "train_seconds": spent} | cost(parent, sets)
        yield known | also_made_worse(parent, sets, a.samples)
    taught, model = pb.with_teacher(loader, parent, compile=not a.no_compile), parent
    for step in recipe["steps"]:
        name = f"{step['density']}-{seed}"
        if is_behind(a, recipe, step, seed):
            spent += 0 if step.get("aside") else seconds_of(a, name)
            continue
        train = partial(pruned, a, recipe, step, model, taught, seed)
        here, seconds, _ = known_or(a, sets, name, 0.0, train)
        known = {"density": step["density"], "train_seconds": spent + seconds} | cost(here, sets)
        if not step.get("aside"):
            model, spent = here, spent + seconds
        if a.validation:
            for tolerance in recipe["tolerances"]:
                small, size = stored(here, tolerance)
                known |= {"row": "file", "tolerance": tolerance, "file_bytes": size}
                yield known | also_made_worse(small.to(sets.device), sets, a.samples)
        elif "target_bytes" in step and not has(a, f"{step['target_bytes']}-{seed}"):
            yield from files(a, recipe, step, here, loader, sets, seed, known)


def is_behind(
    a: argparse.Namespace, recipe: dict[str, Any], step: dict[str, Any], seed: int
) -> bool:
    """Whether a network further down is there, so that this step need not be read or made."""
    further = [s for s in recipe["steps"] if s["density"] < step["density"] and not s.get("aside")]
    return any(has(a, f"{s['density']}-{seed}") for s in further)


def folder_of(path: Path, recipe: dict[str, Any]) -> Path:
    """The folder, which is for networks of one recipe alone."""
    path.mkdir(exist_ok=True, parents=True)
    told = path / "recipe.yaml"
    if told.exists() and yaml.safe_load(told.read_text(encoding="utf-8")) != recipe:
        raise SystemExit(f"{path} holds networks of another recipe: empty it, or take another one")
    told.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return path


def has(a: argparse.Namespace, name: str) -> bool:
    """Whether its file is in the folder."""
    return bool(a.files) and (a.files / f"{name}.pocket").exists()


def seconds_of(a: argparse.Namespace, name: str) -> float:
    return json.loads((a.files / f"{name}.json").read_text(encoding="utf-8"))["seconds"]


def known_or(
    a: argparse.Namespace, sets: Sets, name: str, tolerance: float,
    train: Callable[[], torch.nn.Module],
) -> tuple[torch.nn.Module, float, int]:  # fmt: skip
    """The network, the seconds of its training, and bytes; 0: read from the folder of files."""
    path = a.files / f"{name}.pocket" if a.files else None
    if path and has(a, name):
        model = pb.load(path).to(sets.device, memory_format=torch.channels_last)
        return model, seconds_of(a, name), 0
    begin = time.perf_counter()
    model = train()
    seconds = time.perf_counter() - begin
    exactly = {"tolerance": tolerance} if tolerance else {"lossless": True}
    model, size = as_stored(model, path=path, **exactly)
    if path:
        path.with_suffix(".json").write_text(json.dumps({"seconds": seconds}), encoding="utf-8")
    return model.to(sets.device, memory_format=torch.channels_last), seconds, size


def files(
    a: argparse.Namespace, recipe: dict[str, Any], step: dict[str, Any], model: torch.nn.Module,
    loader: MemoryLoader, sets: Sets, seed: int, known: dict[str, Any],
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """The file of a step, measured by draws and by its head."""
    target = step["target_bytes"]
    for tolerance in recipe["tolerances"]:
        small, size = stored(model, tolerance)
        if size + max(_HEAD[0], _HEAD[1] * target) <= target:
            break
    small = small.to(sets.device, memory_format=torch.channels_last)
    begin = time.perf_counter()
    small = pb.distill_(small, loader, seed=seed)
    path = a.files / f"{target}-{seed}.pocket" if a.files else None
    small = copy.deepcopy(small).cpu()
    small, size = as_stored(small, path=path, tolerance=tolerance, example=_EXAMPLE)
    small = small.to(sets.device, memory_format=torch.channels_last)
    known |= {"row": "file", "target_bytes": target, "tolerance": tolerance, "file_bytes": size}
    known |= {"distill_seconds": time.perf_counter() - begin}
    names = [] if step.get("aside") else a.names
    for estimator in ("weight", "one_pass"):
        yield known | also_made_worse(small, sets, a.samples, estimator, names)


def dense(
    a: argparse.Namespace, recipe: dict[str, Any], sets: Sets, loader: MemoryLoader, seed: int
) -> torch.nn.Module:
    torch.manual_seed(seed)
    step, shape = recipe["parent"], sets.train.preprocess["shape"]
    net = build_network(recipe["model"], input_shape=shape, width=step["width"])
    net = net.to(sets.device, memory_format=torch.channels_last)
    net = pb.bayesianize_(net, prior_std=a.prior_std, std_init=a.std_init, estimator="weight")
    return fitted(a, recipe, step, net, loader, seed)


def pruned(
    a: argparse.Namespace, recipe: dict[str, Any], step: dict[str, Any], model: torch.nn.Module,
    taught: Any, seed: int,
) -> torch.nn.Module:  # fmt: skip
    model = pb.prune_(copy.deepcopy(model), step["density"], by="snr")
    return fitted(a, recipe, step, model, taught, seed, warmup=0.0)


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
    return as_stored(rounded(model, {}, tolerance).cpu(), tolerance=tolerance, example=_EXAMPLE)


def cost(model: torch.nn.Module, sets: Sets) -> dict[str, int]:
    return {"multiplications": multiplications(model, _EXAMPLE.to(sets.device)).sparse}


if __name__ == "__main__":
    main()
