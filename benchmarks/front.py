"""Accuracy against bytes: a narrow network that learns from a wide one, made small by `compress`.

    python benchmarks/front.py --root DATA --width 0.5 --target-bytes 200000 100000 --cutout
        --weight-decay 1e-3 --beta .003 --lr .4 --epochs 100 --seeds 100

For each seed: the teacher, of full width, and the student, of `--width`, by draws of weights; then
one `pb.compress` to the smallest target. Its front has files for the larger targets as well: of
those that fit the one of least NLL on the images held back. The test set is read once for each.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from cifar import Sets, open_sets, parser, settings
from corruptions import also_made_worse
from distillation import SOME
from record import append_result

import pocketbayes as pb
from pocketbayes.data import CORRUPTIONS, MemoryLoader
from pocketbayes.models import build_network

_HEAD = 7_000  # bytes that a one-pass head may take


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--target-bytes", nargs="+", type=int, required=True)
    made.add_argument("--teacher-width", type=float, default=1.0)
    made.add_argument("--teacher-epochs", type=int, default=100)
    made.add_argument("--tune-epochs", type=int, default=33)
    made.add_argument("--tune-lr", type=float, default=0.1)
    made.add_argument("--tune-beta", type=float, default=0.01)
    made.add_argument("--own-defaults", action="store_true", help="compress, as a user calls it")
    made.add_argument("--seeds", nargs="+", type=int, default=[100])
    made.add_argument("--names", nargs="*", default=list(SOME), choices=CORRUPTIONS)
    made.add_argument("--files", type=Path, help="folder where the files stay")
    made.set_defaults(validation=True)
    a = made.parse_args()
    sets = open_sets(a)
    held = sets.test
    test = argparse.Namespace(**vars(a) | {"validation": False})
    for seed in a.seeds:
        for facts in rows(a, sets, held, open_sets(test), seed):
            append_result("front", **facts)


def rows(
    a: argparse.Namespace, sets: Sets, held: MemoryLoader, tested: Sets, seed: int
) -> Iterator[dict[str, Any]]:
    begin = time.perf_counter()
    loader = MemoryLoader(sets.train, a.batch, shuffle=True, augment=True)
    known = {"seed": seed, "settings": settings(a), "model": a.model, "data": a.data}
    teacher = trained(a, sets, seed, a.teacher_width, a.teacher_epochs, loader)
    yield (
        known
        | {"row": "teacher", "train_seconds": time.perf_counter() - begin}
        | of(a, teacher, tested, None)
    )
    taught = pb.with_teacher(loader, teacher)
    student = teacher
    if a.width != a.teacher_width:
        student = trained(a, sets, seed, a.width, a.epochs, taught)
        yield (
            known
            | {"row": "student", "train_seconds": time.perf_counter() - begin}
            | of(a, student, tested, None)
        )
    options: dict[str, Any] = {}
    if not a.own_defaults:
        tuning = pb.MeanField(
            optimizer="sgd", lr=a.tune_lr, weight_decay=a.weight_decay, beta=a.tune_beta,
            std_lr=a.std_lr, warmup=0.0,
        )  # fmt: skip
        options = {"method": tuning, "epochs": a.tune_epochs, "teacher": teacher}
    found = pb.compress(
        student, loader, held, target_bytes=min(a.target_bytes), seed=seed,
        compile=not a.no_compile, num_samples=a.samples, **options,
    )  # fmt: skip
    known["train_seconds"] = time.perf_counter() - begin
    print(found, flush=True)
    for row in found.rows():
        yield known | {"row": "front", "measured_on": "held back"} | row
    for target in a.target_bytes:
        fitting = [c for c in found.front if c.bytes + _HEAD <= target]
        best = min(fitting, key=lambda c: c.record.nll)
        model = found.model if best is found.chosen else with_head(best, loader, seed, sets.device)
        size = stored(a, model, best.tolerance, f"{a.model}-{a.width:g}-{target}-{seed}.pocket")
        kept = {"target_bytes": target, "bytes": size, "density": best.density}
        kept |= {"multiplications": best.multiplications, "tolerance": best.tolerance}
        for estimator in ("weight", "one_pass"):
            if estimator == "weight" or pb.audit(model).one_pass is not None:
                yield (
                    known
                    | kept
                    | {"row": "file", "what": best.what}
                    | of(a, model, tested, estimator)
                )


def trained(
    a: argparse.Namespace, sets: Sets, seed: int, width: float, epochs: int, loader: Any
) -> torch.nn.Module:
    torch.manual_seed(seed)
    torch.compiler.reset()
    shape = sets.train.preprocess["shape"]
    net = build_network(a.model, input_shape=shape, width=width)
    net = net.to(sets.device, memory_format=torch.channels_last)
    model = pb.bayesianize_(net, prior_std=a.prior_std, std_init=a.std_init, estimator="weight")
    method = pb.MeanField(
        optimizer="sgd", lr=a.lr, weight_decay=a.weight_decay, beta=a.beta, std_lr=a.std_lr
    )
    options = {"seed": seed, "progress": False, "compile": not a.no_compile}
    return pb.fit(model, loader, method, epochs=epochs, **options).model


def with_head(best: Any, loader: MemoryLoader, seed: int, device: str) -> torch.nn.Module:
    model = best.model().to(device, memory_format=torch.channels_last)
    return pb.distill_(model, loader, seed=seed)


def stored(a: argparse.Namespace, model: torch.nn.Module, tolerance: float, name: str) -> int:
    if a.files is not None:
        a.files.mkdir(exist_ok=True, parents=True)
        return pb.save(model, a.files / name, tolerance=tolerance).bytes
    with tempfile.TemporaryDirectory() as folder:
        return pb.save(model, Path(folder) / name, tolerance=tolerance).bytes


def of(
    a: argparse.Namespace, model: torch.nn.Module, tested: Sets, estimator: str | None
) -> dict[str, Any]:
    """The record on the test images, and means over corrupted ones of a stored file."""
    names = a.names if estimator else ()
    return {"measured_on": "test"} | also_made_worse(model, tested, a.samples, estimator, names)


if __name__ == "__main__":
    main()
