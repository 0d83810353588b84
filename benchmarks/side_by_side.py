"""Every method beside every other: one network, one data set, one number of epochs.

    python benchmarks/side_by_side.py --root DATA --model resnet18 --epochs 200 --seeds 0 1 2
    python benchmarks/side_by_side.py --root DATA --data mnist --model lenet5 --optimizer adamw
        --lr 0.002 --epochs 30 --families mean-field chain

A family is one training and what is made of it: the mean-field network is also quantised, pruned
and shared in two ways; the chain is a sparse subspace that is pruned step by step and then shares
its weights. Each model is stored (for good with `--files`, so that prediction.py can time it
elsewhere), loaded back from its file, timed and measured; the record is that of the last epoch, and
the test set chooses nothing: settings are chosen with `--validation`, whose rows go to a table of
their own. Seconds of training are those of the whole way.
"""

import argparse
import re
from pathlib import Path
from typing import Any

import torch
from cifar import Sets, fitted, measure, network, network_name, open_sets, parser, settings
from families import FAMILIES, Bench, Made, add_arguments
from record import append_result, peak_memory
from stored import reopened
from timing import own_prediction_seconds
from torch import nn

from pocketbayes.data import MemoryLoader
from pocketbayes.methods import Method

WORTH_COMPILING = 10  # epochs; that takes half a minute


def main() -> None:
    a = arguments()
    sets = open_sets(a)
    for seed in a.seeds:
        for family in a.families:
            if sets.device == "cuda":
                torch.cuda.reset_peak_memory_stats()  # a family's rows count its whole way
            for made in FAMILIES[family](bench(a, sets, seed)):
                report(a, sets, made, {"family": family, "row": made.row, "seed": seed})


def arguments() -> argparse.Namespace:
    made = parser(__doc__)
    add_arguments(made)
    made.add_argument("--seeds", nargs="+", type=int, default=[0])
    made.add_argument("--tune-epochs", type=int, default=20, help="after each pruning")
    made.add_argument("--share-epochs", type=int, default=5)
    made.add_argument("--timed-images", type=int, default=1024)
    made.add_argument("--files", type=Path, help="folder where the models stay")
    a = made.parse_args()
    if a.files:
        a.files.mkdir(exist_ok=True, parents=True)
    return a


def bench(a: argparse.Namespace, sets: Sets, seed: int) -> Bench:
    """Networks for these images, and how they are trained."""

    def build(**options: Any) -> nn.Module:
        return network(a, sets, **options)

    def fit(model: nn.Module, method: Method, epochs: int) -> nn.Module:
        torch.compiler.reset()  # compiled code fits one kind of weights
        eager = a.no_compile or epochs < WORTH_COMPILING
        known = argparse.Namespace(**vars(a) | {"no_compile": eager})
        return fitted(known, sets, model, method, epochs, seed).model

    return Bench(a, seed, build, fit, sets.device)


def report(a: argparse.Namespace, sets: Sets, made: Made, known: dict[str, Any]) -> None:
    """One line for each way to predict."""
    name = file_name(a, made.row, known["seed"])
    path = a.files / name if a.files else None
    stored, size = reopened(made.model, sets.device, path, made.net)
    stored = stored.to(memory_format=torch.channels_last)
    known |= peak_memory()  # of training: before what measuring takes
    known |= {"file": name, "settings": settings(a), "model": network_name(a), "data": a.data}
    known |= {"measured_on": "validation" if a.validation else "test"}
    known |= {"weights": size.weights, "active_weights": size.active_weights}
    known |= {"file_bytes": size.bytes, "train_seconds": made.seconds}
    table = "side_by_side_search" if a.validation else "side_by_side"
    x = next(iter(MemoryLoader(sets.test.dataset, a.timed_images)))[0]
    for predictive in made.predictives:
        spent = own_prediction_seconds(stored, x, a.samples, predictive)
        found = measure(a, stored, sets, predictive, by_block=True)
        append_result(table, **known, predict_seconds=spent, **found)


def file_name(a: argparse.Namespace, row: str, seed: int) -> str:
    """Of a row's model, without signs that a shell would take for its own."""
    plain = re.sub(r"[^a-z0-9.]+", "-", row.lower())
    return f"{network_name(a)}-{a.data}-{plain}-{seed}{'-search' * a.validation}.pocket"


if __name__ == "__main__":
    import recurrent  # noqa: F401  (adds the network "lstm")

    main()
