"""Real file sizes of trained networks, and what they are worth after loading.

    python benchmarks/sizes.py --root DATA --files FOLDER --parent mean-field --epochs 200
        --beta 0.003
    python benchmarks/sizes.py --root DATA --files FOLDER --parent subspace --density 0.1
        --epochs 200 --beta 0.004 --weight-decay 0.002 --estimator weight
    python benchmarks/sizes.py --root DATA --files FOLDER --compress FOLDER/mean-field-0.pocket
        --target-bytes 1000000 500000 --epochs 10 --beta 0.003
    python benchmarks/sizes.py --root DATA --files FOLDER --compress FOLDER/subspace-0.1-0.pocket
        --prune 0.06 0.035 --tune-epochs 60 --lr 0.1 --weight-decay 0.002 --beta 0.01
        --target-bytes 490000 --epochs 8

The first two train a network, measure it as it is and as it comes back from its file, and keep the
file. The others make that smaller: pruned by signal-to-noise ratio and fine-tuned, step by step, if
asked to; then its weights share a rate-distortion codebook, at the rate at which the whole file has
the wanted size; measured from the new file before and after fine-tuning.
"""

import argparse
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from cifar import Sets, fitted, measure, network_name, open_sets, parser, settings, train
from record import append_result
from stored import sharing_to_fit

import pocketbayes as pb
from pocketbayes.methods import METHODS, Method


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--files", type=Path, required=True, help="folder for the models")
    made.add_argument("--parent", choices=("mean-field", "subspace"))
    made.add_argument("--density", type=float, default=0.05, help="of a subspace")
    made.add_argument("--estimator", default="lrt")
    made.add_argument("--predictives", nargs="+", help="of parents; default as they are trained")
    made.add_argument("--seeds", nargs="+", type=int, default=[0])
    made.add_argument("--compress", nargs="+", type=Path, default=[])
    made.add_argument("--prune", nargs="*", type=float, default=[], help="densities before sharing")
    made.add_argument("--tune-epochs", type=int, default=20, help="after each pruning")
    made.add_argument("--target-bytes", nargs="*", type=int, default=[500_000])
    made.add_argument("--components", type=int, default=500)
    made.add_argument("--share-lr", type=float, default=1e-4)
    made.add_argument("--share-std-lr", type=float, default=1e-3)
    made.add_argument("--reassign-every", type=int, default=0)
    made.add_argument("--table")
    a = made.parse_args()
    a.table = a.table or ("sizes_search" if a.validation else "sizes")
    a.files.mkdir(exist_ok=True, parents=True)
    sets = open_sets(a)
    for seed in a.seeds if a.parent else ():
        make_parent(a, sets, seed)
    for path in a.compress:
        for density in a.prune:
            path = pruned(a, sets, path, density)
        for target in a.target_bytes:
            compress(a, sets, path, target)


def make_parent(a: argparse.Namespace, sets: Sets, seed: int) -> None:
    """One trained network, as it is and as its file gives it back."""
    result, cost = train(a, parent_method(a), sets, seed, a.estimator)
    known = {"row": a.parent, "seed": seed, "settings": settings(a), "model": network_name(a)}
    known |= cost | {"kl_nats": kl(result.model)}
    found = measure(a, result.model, sets, a.estimator)
    append_result(a.table, **known, stage="trained", data=a.data, **found)
    path, known = a.files / f"{parent_name(a)}-{seed}.pocket", known | {"stage": "file"}
    report(a, sets, result.model, path, known, a.predictives or (None,))


def parent_name(a: argparse.Namespace) -> str:
    """Of its file, without the seed."""
    usual = {"mean-field": "lrt", "subspace": "weight"}[a.parent]
    density = f"-{a.density:g}" if a.parent == "subspace" else ""
    estimator = "" if a.estimator == usual else f"-{a.estimator}"
    rate = "" if a.lr == 0.2 else f"-lr{a.lr:g}"
    width = "" if a.width == 1 else f"-width-{a.width:g}"
    return a.parent + density + estimator + rate + width + ("-cutout" if a.cutout else "")


def parent_method(a: argparse.Namespace) -> Method:
    rates = {"optimizer": "sgd", "lr": a.lr, "weight_decay": a.weight_decay, "beta": a.beta}
    rates |= {"std_lr": a.std_lr, "std_init": a.std_init}
    return METHODS[a.parent](**rates | ({"density": a.density} if a.parent == "subspace" else {}))


def kl(model: torch.nn.Module) -> float:
    with torch.no_grad():
        return float(pb.kl(model))


def pruned(a: argparse.Namespace, sets: Sets, path: Path, density: float) -> Path:
    """The file of what is left after pruning and fine-tuning."""
    torch.compiler.reset()  # compiled code fits one density
    model = pb.prune_(opened(path, sets), density, by="snr")
    rates = {"lr": a.lr, "std_lr": a.std_lr, "beta": a.beta, "weight_decay": a.weight_decay}
    method = pb.MeanField(optimizer="sgd", warmup=0.0, **rates)
    begin = time.perf_counter()
    model = fitted(a, sets, model, method, a.tune_epochs, seed_of(path)).model
    known = {"row": "pruned", "parent": path.stem, "stage": "trained on", "density": density}
    known |= {"settings": settings(a), "train_seconds": time.perf_counter() - begin}
    known |= {"model": network_name(a), "seed": seed_of(path)}
    smaller = a.files / f"{path.stem}-pruned-{density:g}.pocket"
    report(a, sets, model, smaller, known)
    return smaller


def seed_of(path: Path) -> int:
    """The seed of the first network of the chain, which its files carry in their names."""
    found = re.search(r"-(\d+)(?=-pruned|$)", path.stem)
    return int(found[1]) if found else 0


def compress(a: argparse.Namespace, sets: Sets, path: Path, target: int) -> None:
    """The smaller models made of one file."""
    known = {"row": "rate-distortion", "parent": path.stem, "target_bytes": target}
    known |= {"settings": settings(a), "model": network_name(a), "seed": seed_of(path)}
    known |= {"parent_bytes": path.stat().st_size}  # tells parents of one name apart
    begin = time.perf_counter()

    def fit(model: torch.nn.Module, method: Method, epochs: int) -> torch.nn.Module:
        return fitted(a, sets, model, method, epochs, 0).model

    method = sharing_to_fit(fit, opened(path, sets), sharing(a), target)
    if method is None:
        return
    model = fit(opened(path, sets), method, 0)
    known |= {"share_seconds": time.perf_counter() - begin, "rate_target": method.target_bytes}
    name = f"{path.stem}-{target}"
    report(a, sets, model, a.files / f"{name}-shared.pocket", known | {"stage": "shared"})
    if a.epochs:
        begin = time.perf_counter()
        model = fitted(a, sets, opened(path, sets), method, a.epochs, seed_of(path)).model
        known |= {"train_seconds": time.perf_counter() - begin}
        report(a, sets, model, a.files / f"{name}.pocket", known | {"stage": "trained on"})


def sharing(a: argparse.Namespace) -> pb.Sharing:
    return pb.Sharing(
        components=a.components, beta=a.beta, lr=a.share_lr, std_lr=a.share_std_lr,
        weight_decay=0.0, reassign_every=a.reassign_every,
    )  # fmt: skip


def opened(path: Path, sets: Sets) -> torch.nn.Module:
    return pb.load(path).to(sets.device, memory_format=torch.channels_last)


def report(
    a: argparse.Namespace, sets: Sets, model: torch.nn.Module, path: Path, known: dict[str, Any],
    predictives: Sequence[str | None] = (None,),
) -> None:  # fmt: skip
    """What the file of this model takes, and what comes back from it."""
    size = pb.save(model, path)
    sections = {s.name: [s.coding, s.bytes] for s in size.sections if s.bytes > 1000}
    facts = {"file_bytes": size.bytes, "bits_back_bytes": size.bits_back_bytes}
    facts |= {"active_weights": size.active_weights, "sections": sections, "data": a.data}
    for predictive in predictives:
        found = measure(a, opened(path, sets), sets, predictive)
        append_result(a.table, **known, **facts, **found)


if __name__ == "__main__":
    main()
