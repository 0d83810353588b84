"""`pb.compress` as a user calls it beside the best of many settings, at the same accuracy.

    python benchmarks/compressing.py --root DATA --data mnist --model mlp --target-bytes 8000
    python benchmarks/compressing.py --root DATA --data fashion-mnist --model lenet5
        --target-bytes 12000
    python benchmarks/compressing.py --root DATA --model resnet20 --target-bytes 60000

The network is trained with the library's defaults. Images held back choose: the best setting and
its file of at most `--target-bytes`, by NLL; and the file that `compress` gives with nothing said
for a fifth more. The test set is read once for each of the two.
"""

import argparse
import time
from dataclasses import replace
from typing import Any

import torch
from cifar import Sets, network, open_sets, parser, settings
from record import append_result

import pocketbayes as pb
from pocketbayes.compression.traits import tuning_of
from pocketbayes.data import MemoryLoader

_MORE = 1.2  # bytes that defaults may take for each that tuned settings take
_RATES, _LENGTHS = (1e-3, 3e-3, 1e-2), (1, 3)  # learning rates; trainings, in default lengths


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--target-bytes", type=int, required=True)
    made.add_argument("--seeds", nargs="+", type=int, default=[100])
    made.set_defaults(validation=True, epochs=12, batch=128, samples=20)
    a = made.parse_args()
    sets = open_sets(a)
    test = open_sets(argparse.Namespace(**vars(a) | {"validation": False, "no_ood": True})).test
    for seed in a.seeds:
        known = {"seed": seed, "settings": settings(a), "model": a.model, "data": a.data}
        model, loader = trained(a, sets, seed)
        known |= {"target_bytes": a.target_bytes, "dense": measured(a, model, test)}
        own = compressed(a, sets, model, loader, round(_MORE * a.target_bytes), seed)
        append_result("compressing", **known | {"row": "defaults"} | told(a, own, test))
        tried = [
            compressed(a, sets, model, loader, a.target_bytes, seed, **options)
            for options in searched(a, model, len(loader))
        ]
        best = min(tried, key=lambda found: found[0].chosen.record.nll)
        append_result(
            "compressing", **known | {"row": "tuned", "trials": len(tried)} | told(a, best, test)
        )


def searched(a: argparse.Namespace, model: torch.nn.Module, batches: int) -> list[dict[str, Any]]:
    """Rates and lengths of training on labels, and one that learns from the model as well."""
    length = max(-(-a.epochs // 4), -(-500 // batches))
    by_labels = [
        {"epochs": times * length, "method": replace(tuning_of(model), lr=rate)}
        for times in _LENGTHS
        for rate in _RATES
    ]
    return [*by_labels, {"epochs": max(_LENGTHS) * length, "teacher": model}]


def trained(a: argparse.Namespace, sets: Sets, seed: int) -> tuple[torch.nn.Module, MemoryLoader]:
    torch.manual_seed(seed)
    loader = MemoryLoader(sets.train, a.batch, shuffle=True, augment=a.data == "cifar10")
    model = pb.bayesianize_(network(a, sets))
    options = {"seed": seed, "progress": False, "compile": not a.no_compile}
    return pb.fit(model, loader, epochs=a.epochs, **options).model, loader


def compressed(
    a: argparse.Namespace, sets: Sets, model: torch.nn.Module, loader: MemoryLoader, target: int,
    seed: int, **options: Any,
) -> tuple[pb.Compression, dict[str, Any]]:  # fmt: skip
    begin = time.perf_counter()
    found = pb.compress(
        model, loader, sets.test, target_bytes=target, seed=seed, num_samples=a.samples,
        compile=not a.no_compile, one_pass=False, **options,
    )  # fmt: skip
    said = {"epochs": found.chosen.rung.epochs, "taught": options.get("teacher") is not None}
    said |= {"lr": options["method"].lr} if "method" in options else {}
    return found, said | {"compress_seconds": time.perf_counter() - begin}


def told(
    a: argparse.Namespace, found: tuple[pb.Compression, dict[str, Any]], test: MemoryLoader
) -> dict[str, Any]:
    chosen = found[0].chosen
    return found[1] | {
        "bytes": chosen.bytes, "what": chosen.what, "density": chosen.density,
        "tolerance": chosen.tolerance, "held_nll": chosen.record.nll,
    } | measured(a, found[0].model, test)  # fmt: skip


def measured(a: argparse.Namespace, model: torch.nn.Module, test: MemoryLoader) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    return pb.evaluate(model, test, a.samples, generator=generator).to_dict()


if __name__ == "__main__":
    main()
