"""Sparse networks on UCI regressions: spike-and-slab at a tenth of the weights against dense VI.

    python benchmarks/uci.py --root DATA --splits 5

DATA/uci_regression.npz holds the nine sets with Gal's splits, as NAME/data, NAME/features,
NAME/target and NAME/test_K (row numbers). Both rows train one network as long at the same beta; the
sparse one gets inclusion variables on the way, is pruned to `--density` and then fine-tuned.
`--validation` measures on a fifth of the training rows, not the test rows: for choosing settings.
"""

import argparse
import itertools
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from record import append_result
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb

ROWS = ("mean-field", "spike-slab")


class Split(NamedTuple):
    """Standardised tensors, and the target's standard deviation."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    scale: float


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--root", type=Path, required=True)
    made.add_argument("--sets", nargs="*")
    made.add_argument("--splits", type=int, default=5)
    made.add_argument("--from-split", type=int, default=0, help="leave out those before")
    made.add_argument("--density", type=float, default=0.1)
    made.add_argument("--hidden", nargs="+", type=int, default=[400, 400])
    made.add_argument("--rows", nargs="+", default=list(ROWS), choices=ROWS)
    made.add_argument("--first", type=float, default=0.5, help="part of the steps of dense VI")
    made.add_argument("--tune", type=float, default=0.4, help="part of the steps after pruning")
    made.add_argument("--through", nargs="*", type=float, default=[], help="densities before")
    made.add_argument(
        "--select-beta", type=float, default=0.3, help="while inclusion variables move"
    )
    made.add_argument("--select-lr", type=float, default=3e-3)
    made.add_argument("--optimum", default="density", choices=("gradient", "density"))
    made.add_argument("--steps", type=int, default=3000, help="optimiser steps, about")
    made.add_argument("--beta", type=float, default=0.3)
    made.add_argument("--prior-std", type=float, default=0.3)
    made.add_argument("--inclusion", type=float, default=0.1)
    made.add_argument("--lr", type=float, default=1e-2)
    made.add_argument("--std-lr", type=float, default=1e-2)
    made.add_argument("--validation", action="store_true")
    made.add_argument("--table", default="uci")
    a = made.parse_args()
    torch.set_num_threads(1)
    arrays = np.load(a.root / "uci_regression.npz")
    names = a.sets or sorted({key.split("/")[0] for key in arrays.files})
    for name in names:
        for number in range(a.from_split, a.splits):
            split = opened(arrays, name, number, a.validation)
            known = {"set": name, "split": number, "rows": len(split.train[0])}
            known |= {"measured_on": "validation" if a.validation else "test"}
            known |= {"settings": {k: v for k, v in vars(a).items() if k != "root"}}
            for row in a.rows:
                begin = time.perf_counter()
                model = (dense if row == "mean-field" else sparse)(a, split, number)
                spent = time.perf_counter() - begin
                append_result(a.table, **known, row=row, seconds=spent, **scores(model, split))


def opened(arrays: Any, name: str, number: int, validation: bool) -> Split:
    data = arrays[f"{name}/data"]
    columns, target = (arrays[f"{name}/{k}"].astype(int).ravel() for k in ("features", "target"))
    outside = arrays[f"{name}/test_{number}"].astype(int).ravel()
    inside = np.setdiff1d(np.arange(len(data)), outside)
    if validation:
        order = np.random.default_rng(number).permutation(inside)
        inside, outside = order[len(order) // 5 :], order[: len(order) // 5]
    x, y = data[:, columns], data[:, target[0]]
    spread = x[inside].std(0)
    x = (x - x[inside].mean(0)) / np.where(spread > 0, spread, 1)
    centre, scale = y[inside].mean(), y[inside].std()
    pairs = [
        (torch.tensor(x[rows]).float(), torch.tensor((y[rows] - centre) / scale).float()[:, None])
        for rows in (inside, outside)
    ]
    return Split(pairs[0], pairs[1], float(scale))


def network(a: argparse.Namespace, split: Split, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    inputs = split.train[0].shape[1]
    widths = [inputs, *a.hidden]
    layers = [(nn.Linear(i, o), nn.ReLU()) for i, o in itertools.pairwise(widths)]
    net = nn.Sequential(*itertools.chain.from_iterable(layers), nn.Linear(widths[-1], 1))
    return pb.bayesianize_(net, prior_std=a.prior_std)


def trained(
    a: argparse.Namespace, split: Split, model: nn.Module, method: Any, part: float, seed: int
) -> nn.Module:
    """The model after this part of all steps."""
    rows = len(split.train[0])
    size = min(256, max(32, rows // 20))
    epochs = max(1, round(part * a.steps / (rows // size)))
    loader = DataLoader(TensorDataset(*split.train), size, shuffle=True, drop_last=True)
    options = {"likelihood": "gaussian", "seed": seed, "progress": False}
    return pb.fit(model, loader, method, epochs=epochs, **options).model


def dense(a: argparse.Namespace, split: Split, seed: int) -> nn.Module:
    method = pb.MeanField(beta=a.beta, lr=a.lr, std_lr=a.std_lr)
    return trained(a, split, network(a, split, seed), method, 1.0, seed)


def sparse(a: argparse.Namespace, split: Split, seed: int) -> nn.Module:
    """Dense VI, then inclusion variables on the network that it found, then what is left of it."""
    rates = {"lr": a.lr, "std_lr": a.std_lr, "beta": a.beta}
    selecting = rates | {"lr": a.select_lr, "beta": a.select_beta, "warmup": 0.0, "hold": 0.0}
    model = network(a, split, seed)
    model = trained(a, split, model, pb.MeanField(**rates), a.first, seed)
    method = pb.SpikeSlab(inclusion=a.inclusion, optimum=a.optimum, **selecting)
    model = trained(a, split, model, method, 1 - a.first - a.tune, seed)
    densities = [*a.through, a.density]
    for density in densities:
        pb.prune_(model, density)
        tuning = pb.MeanField(warmup=0.0, **rates)
        model = trained(a, split, model, tuning, a.tune / len(densities), seed)
    return model


def scores(model: nn.Module, split: Split) -> dict[str, Any]:
    """In the target's own units."""
    loader = DataLoader(TensorDataset(*split.test), 4096)
    record = pb.evaluate(model, loader, 100, generator=torch.Generator().manual_seed(0))
    posteriors = [q for _, q in pb.named_posteriors(model)]
    there, weights = sum(q.num_active for q in posteriors), sum(q.shape.numel() for q in posteriors)
    return {
        "rmse": float(record.rmse) * split.scale,
        "nll": float(record.nll) + float(np.log(split.scale)),
        "coverage_90": float(record.coverage_90),
        "density": there / weights,
    }


if __name__ == "__main__":
    main()
