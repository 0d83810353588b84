"""Plain and Bayesian networks at equal bytes: one `compress`, one codec for both.

    python benchmarks/controls.py --root DATA --data fashion-mnist --model mlp
        --bytes 6000 12000 24000
    python benchmarks/controls.py --root DATA --data mnist --model lenet5 --bytes 4000 8000

A network of each kind is trained with the library's defaults and made small by `pb.compress`. Of
all files on the way, the one of at most so many bytes with the least NLL on images held back is
kept for each size, and measured on the test images: as they are, on another set, and corrupted. The
test set is read once for each file.
"""

import argparse
import math
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from cifar import Sets, in_batches, network, open_sets, parser, settings
from corruptions import made_worse
from record import append_result

import pocketbayes as pb
from pocketbayes.data import MemoryLoader

KINDS = {"plain": pb.Deterministic, "Bayesian": pb.MeanField}
_CORRUPTIONS = ("gaussian_noise", "defocus_blur", "contrast", "elastic_transform")
_SEVERITIES = (2, 4)


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--bytes", type=int, nargs="+", required=True)
    made.add_argument("--seeds", type=int, nargs="+", default=[100, 101, 102])
    made.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    made.set_defaults(validation=True, epochs=12, batch=128)
    a = made.parse_args()
    held = open_sets(a)
    test = open_sets(argparse.Namespace(**vars(a) | {"validation": False}))
    worse = list(corrupted_sets(test))
    for seed in a.seeds:
        for kind in a.kinds:
            known = {"kind": kind, "seed": seed, "data": a.data, "model": a.model}
            known |= {"settings": settings(a)}
            for row in rows(a, kind, held, test, worse, seed):
                append_result("controls", **known | row)


def rows(
    a: argparse.Namespace, kind: str, held: Sets, test: Sets, worse: list[MemoryLoader], seed: int
) -> Iterator[dict[str, Any]]:
    """The network as it was trained, and the best file for each size."""
    begin = time.perf_counter()
    model, loader = trained(a, kind, held, seed)
    with tempfile.TemporaryDirectory() as folder:
        size = pb.save(model, Path(folder) / "whole.pocket").bytes
    yield {"row": "as trained", "bytes": size} | measured(a, model, test, worse)
    found = pb.compress(
        model, loader, held.test, target_bytes=min(a.bytes), seed=seed, num_samples=a.samples,
        compile=not a.no_compile, one_pass=False,
    )  # fmt: skip
    spent = {"train_seconds": time.perf_counter() - begin}  # evaluating has "seconds" of its own
    for most in sorted(a.bytes):
        fitting = [c for c in found.front if c.bytes <= most]
        best = min(fitting, key=lambda c: c.record.nll, default=None)
        if best is not None and math.isfinite(best.record.nll):
            said = {"row": "compressed", "most_bytes": most, "bytes": best.bytes}
            said |= {"what": best.what, "density": best.density, "held_nll": best.record.nll}
            yield said | spent | measured(a, best.model(), test, worse)


def trained(
    a: argparse.Namespace, kind: str, held: Sets, seed: int
) -> tuple[torch.nn.Module, MemoryLoader]:
    torch.manual_seed(seed)
    loader = MemoryLoader(held.train, a.batch, shuffle=True)
    options = {"seed": seed, "progress": False, "compile": not a.no_compile}
    model = pb.bayesianize_(network(a, held))
    return pb.fit(model, loader, KINDS[kind](), epochs=a.epochs, **options).model, loader


def corrupted_sets(test: Sets) -> Iterator[MemoryLoader]:
    """The test images under each corruption at each severity."""
    for name in _CORRUPTIONS:
        for severity in _SEVERITIES:
            yield in_batches(made_worse(test.test.dataset, name, severity, seed=0))


def measured(
    a: argparse.Namespace, model: torch.nn.Module, test: Sets, worse: list[MemoryLoader]
) -> dict[str, Any]:
    """The record on test images, and the means over all that is corrupted."""

    def record(loader: MemoryLoader, outside: MemoryLoader | None = None) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(0)
        return pb.evaluate(model, loader, a.samples, outside, generator).to_dict()

    found = record(test.test, test.outside)
    bent = [record(loader) for loader in worse]
    for name in ("accuracy", "nll", "ece"):
        found[f"corrupted_{name}"] = sum(one[name] for one in bent) / len(bent)
    return found


if __name__ == "__main__":
    main()
