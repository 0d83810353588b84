"""What stored networks are worth on corrupted images: the 15 corruptions of CIFAR-10-C.

    python benchmarks/corruptions.py --root DATA --files A.pocket B.pocket
    python benchmarks/corruptions.py --root DATA --files A.pocket --names fog snow --severities 3

One row per file, corruption and severity, and one of the images as they are (severity 0). Rows that
are there already, of the same file and with the same settings, are not measured again.
"""

import argparse
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from cifar import Sets, in_batches
from record import append_result
from run import rows_of

import pocketbayes as pb
from pocketbayes.data import CORRUPTIONS, ImageSet, MemoryLoader, corrupted, open_dataset
from pocketbayes.layers.description import describe

TABLE = "corruptions"
CLEAN = ("none", 0)
KEY = ("sha256", "data", "corruption", "severity", "samples", "limit", "seed")


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--root", type=Path, required=True)
    made.add_argument("--files", type=Path, nargs="+", required=True)
    made.add_argument("--data", default="cifar10", choices=("cifar10", "cifar100", "svhn"))
    made.add_argument("--names", nargs="+", default=list(CORRUPTIONS), choices=CORRUPTIONS)
    made.add_argument("--severities", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    made.add_argument("--samples", type=int, default=30)
    made.add_argument("--limit", type=int, help="images, for a dry run")
    made.add_argument("--seed", type=int, default=0)
    a = made.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    test = open_dataset(a.data, "test", a.root)
    test = test.subset(range(len(test))[: a.limit]).to(device)
    models = {path: opened(path, device) for path in a.files}
    facts = {path: file_facts(path, model) for path, model in models.items()}
    known = known_rows()
    for name, severity in cases(a):
        what = {"data": a.data, "corruption": name, "severity": severity, "samples": a.samples,
                "limit": a.limit, "seed": a.seed}  # fmt: skip
        rows = {path: facts[path] | what for path in a.files}
        wanted = [path for path in a.files if key(rows[path]) not in known]
        if wanted:
            images = test if severity == 0 else made_worse(test, name, severity, a.seed)
            for path in wanted:
                append_result(TABLE, **rows[path], **measured(models[path], images, a.samples))


def cases(a: argparse.Namespace) -> Iterator[tuple[str, int]]:
    yield CLEAN
    for name in a.names:
        for severity in a.severities:
            yield name, severity


def opened(path: Path, device: str) -> torch.nn.Module:
    return pb.load(path).to(device, memory_format=torch.channels_last)


def file_facts(path: Path, model: torch.nn.Module) -> dict[str, Any]:
    content = path.read_bytes()
    network = (describe(model).network or {}).get("name")
    digest = hashlib.sha256(content).hexdigest()
    return {"file": path.name, "network": network, "bytes": len(content), "sha256": digest}


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in KEY)


def known_rows() -> set[tuple[Any, ...]]:
    """The keys of all rows that earlier runs left."""
    return {key(row) for row in rows_of(TABLE)}


def made_worse(test: ImageSet, name: str, severity: int, seed: int) -> ImageSet:
    return replace(test, images=corrupted(test.images, name, severity, seed))


def also_made_worse(
    model: torch.nn.Module,
    sets: Sets,
    samples: int,
    estimator: str | None = None,
    names: Sequence[str] = (),
) -> dict[str, Any]:
    """The record on what is measured on, and means over it made worse at severities 2 and 5."""
    half = torch.autocast(sets.device, torch.bfloat16, enabled=sets.device == "cuda")

    def record(loader: MemoryLoader, outside: MemoryLoader | None) -> pb.Record:
        generator = torch.Generator().manual_seed(0)
        with half:
            return pb.evaluate(model, loader, samples, outside, generator, estimator)

    return with_made_worse(record, sets, names)


def with_made_worse(
    record: Callable[[MemoryLoader, MemoryLoader | None], pb.Record],
    sets: Sets,
    names: Sequence[str] = (),
) -> dict[str, Any]:
    """What `record` finds for clean examples, and the means over corrupted ones."""
    found = record(sets.test, sets.outside).to_dict()
    images = sets.test.dataset
    records = [
        record(in_batches(made_worse(images, name, severity, 0)), None)
        for name in names
        for severity in (2, 5)
    ]
    for field in ("accuracy", "nll", "ece") if records else ():
        found[f"corrupted_{field}"] = sum(getattr(r, field) for r in records) / len(records)
    return found


def measured(model: torch.nn.Module, images: ImageSet, samples: int) -> dict[str, Any]:
    preprocess = describe(model).preprocess
    loader = in_batches(images if preprocess is None else images.fitted(preprocess))
    device = images.device.type
    begin = time.perf_counter()
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        record = pb.evaluate(model, loader, samples, None, torch.Generator().manual_seed(0))
    return {"evaluate_seconds": time.perf_counter() - begin} | record.to_dict()


if __name__ == "__main__":
    main()
