"""Every method beside every other on the UCI regressions: one network, as many steps.

    python benchmarks/side_by_side_uci.py --root DATA --splits 3
    python benchmarks/side_by_side_uci.py --root DATA --sets energy --families mean-field chain

The families are those of side_by_side.py, on a network of two hidden layers. Each model is stored,
loaded back from its file, timed and measured once: RMSE and NLL in the target's own units. A
prediction is one of 1,024 rows. With `--validation` 15% of the training rows are held back and
judge: for choosing settings.
"""

import argparse
import math
from pathlib import Path
from typing import Any

import torch
from families import FAMILIES, Bench, Made, add_arguments
from record import append_result
from stored import reopened
from timing import own_prediction_seconds
from torch import nn
from uci_sets import UCI_SETS, uci_tables

import pocketbayes as pb
from pocketbayes.data import MemoryLoader, TableSet, with_validation
from pocketbayes.methods import Method
from pocketbayes.models import build_network

TIMED_ROWS = 1024


def main() -> None:
    a = arguments()
    torch.set_num_threads(1)
    for name in a.sets:
        for split in range(a.from_split, a.splits):
            train, test = uci_tables(a.root, name, split)
            if a.validation:
                train, test = with_validation(train, 0.15)
            known = {"set": name, "split": split, "rows": len(train)}
            bench = of_table(a, train, split)
            for family in a.families:
                for made in FAMILIES[family](bench):
                    report(a, test, made, known | {"family": family, "row": made.row})


def arguments() -> argparse.Namespace:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--root", type=Path, required=True)
    made.add_argument("--sets", nargs="+", choices=UCI_SETS, default=UCI_SETS)
    made.add_argument("--splits", type=int, default=3)
    made.add_argument("--from-split", type=int, default=0, help="leave out those before")
    made.add_argument("--hidden", nargs="+", type=int, default=[100, 100])
    made.add_argument("--steps", type=int, default=3000, help="of the optimiser, about")
    made.add_argument("--tune-steps", type=int, default=1000, help="after each pruning")
    made.add_argument("--share-steps", type=int, default=300)
    made.add_argument("--lr", type=float, default=1e-2)
    made.add_argument("--std-lr", type=float, default=1e-2)
    made.add_argument("--weight-decay", type=float, default=0.0)
    made.add_argument("--beta", type=float, default=0.3)
    made.add_argument("--prior-std", type=float, default=0.3)
    made.add_argument("--std-init", type=float, default=1e-3)
    made.add_argument("--samples", type=int, default=30)
    made.add_argument("--validation", action="store_true")
    add_arguments(made)
    made.set_defaults(
        optimizer="adamw", tune_lr=1e-2, sparse_beta=0.3, chain_beta=0.3, inclusion=0.1,
        components=256, target_bytes=7_000, share_lr=1e-3, chain=[0.3, 0.2, 0.1],
        chain_bytes=5_500,
    )  # fmt: skip
    return made.parse_args()


def of_table(a: argparse.Namespace, train: TableSet, seed: int) -> Bench:
    """Networks for this table, and how they are trained."""
    batch = min(256, max(32, len(train) // 20))

    def epochs(steps: int) -> int:
        return max(1, round(steps / (len(train) // batch)))

    def build(**options: Any) -> nn.Module:
        columns = train.features.shape[1:]
        return build_network("mlp", input_shape=columns, num_outputs=1, hidden=a.hidden, **options)

    def fit(model: nn.Module, method: Method, epochs: int) -> nn.Module:
        loader = MemoryLoader(train, batch, shuffle=True)
        options = {"likelihood": "gaussian", "seed": seed, "progress": False}
        return pb.fit(model, loader, method, epochs=epochs, **options).model

    lengths = {"epochs": a.steps, "tune_epochs": a.tune_steps, "share_epochs": a.share_steps}
    found = {name: epochs(steps) for name, steps in lengths.items()}
    return Bench(argparse.Namespace(**vars(a) | found), seed, build, fit, "cpu")


def report(a: argparse.Namespace, test: TableSet, made: Made, known: dict[str, Any]) -> None:
    """One line for each way to predict."""
    stored, size = reopened(made.model, "cpu", net=made.net)
    x = torch.randn(TIMED_ROWS, test.features.shape[1])
    known |= {"settings": {k: v for k, v in vars(a).items() if k != "root"}}
    known |= {"measured_on": "validation" if a.validation else "test"}
    known |= {"weights": size.weights, "active_weights": size.active_weights}
    known |= {"file_bytes": size.bytes, "train_seconds": made.seconds}
    table = "side_by_side_uci_search" if a.validation else "side_by_side_uci"
    for predictive in made.predictives:
        spent = own_prediction_seconds(stored, x, a.samples, predictive)
        found = scores(stored, test, a.samples, predictive)
        append_result(table, **known, predict_seconds=spent, **found)


def scores(
    model: nn.Module, test: TableSet, samples: int, predictive: str | None
) -> dict[str, Any]:
    """RMSE and NLL in the target's own units."""
    scale = test.preprocess["target"]["std"]
    generator = torch.Generator().manual_seed(0)
    loader = MemoryLoader(test, 4096)
    record = pb.evaluate(model, loader, samples, generator=generator, estimator=predictive)
    found = record.to_dict()
    return {
        "rmse": found["rmse"] * scale,
        "nll": found["nll"] + math.log(scale),
        "coverage_90": found["coverage_90"],
        "estimator": found["estimator"],
    }


if __name__ == "__main__":
    main()
