"""Accuracy against sparsity: spike-and-slab beside magnitude, SNR and variational dropout.

    python benchmarks/pruning.py --root DATA --data mnist --model mlp --hidden 300 100
        --density 0.1 0.05 0.02 0.01 0.005
    python benchmarks/pruning.py --root DATA --model vgg_like --density 0.05 --seeds 0 1 2

Each method trains one network; copies of it are pruned to every density over the whole network,
fine-tuned for `--tune-epochs`, stored, loaded back from their files, and then measured. Density 1
is the network before pruning.
"""

import argparse
import copy
import time
from typing import Any

import recurrent  # noqa: F401  (adds the network "lstm")
import torch
from cifar import Sets, fitted, measure, network, network_name, open_sets, parser, settings
from record import append_result
from stored import reopened

import pocketbayes as pb
from pocketbayes.methods import Method

ROWS = ("spike-slab", "magnitude", "snr", "variational-dropout")


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--hidden", nargs="+", type=int, help="widths, of an mlp")
    made.add_argument("--rows", nargs="+", default=list(ROWS), choices=ROWS)
    made.add_argument("--density", nargs="*", type=float, default=[0.05])
    made.add_argument("--seeds", nargs="+", type=int, default=[0])
    made.add_argument("--tune-epochs", type=int, default=20)
    made.add_argument("--through", nargs="*", type=float, default=[], help="densities before")
    made.add_argument("--tune-lr", type=float, default=0.02)
    made.add_argument("--tune-beta", type=float, help="beta after pruning")
    made.add_argument("--optimizer", default="sgd", choices=("sgd", "adamw"))
    made.add_argument("--dense-epochs", type=int, default=0, help="of mean-field VI before")
    made.add_argument("--select-beta", type=float, help="beta while inclusion variables move")
    made.add_argument("--select-lr", type=float, help="learning rate then, after dense epochs")
    made.add_argument("--optimum", default="gradient", choices=("gradient", "density"))
    made.add_argument("--inclusion", type=float, default=0.02)
    made.add_argument("--dropout-beta", type=float, default=0.1, help="of variational dropout")
    made.add_argument("--estimator", default="lrt")
    made.add_argument("--table", default="pruning")
    a = made.parse_args()
    sets = open_sets(a)
    for seed in a.seeds:
        for row in a.rows:
            run(a, sets, row, seed)


def run(a: argparse.Namespace, sets: Sets, row: str, seed: int) -> None:
    """One network and what is left of it at every density."""
    known = {
        "model": network_name(a),
        "data": a.data,
        "row": row,
        "seed": seed,
        "settings": settings(a),
    }
    known |= {"measured_on": "validation" if a.validation else "test"}
    begin = time.perf_counter()
    parent = converted(a, sets, seed)
    dense = a.dense_epochs if row == "spike-slab" else 0
    if dense:
        parent = fitted(a, sets, parent, first_method(a, "snr"), dense, seed).model
    parent = fitted(a, sets, parent, first_method(a, row), a.epochs - dense, seed).model
    report(a, sets, parent, known | {"density": 1.0, "train_seconds": time.perf_counter() - begin})
    for density in a.density:
        begin = time.perf_counter()
        model = pruned(a, sets, copy.deepcopy(parent), row, density, seed)
        spent = time.perf_counter() - begin
        report(a, sets, model, known | {"density": density, "train_seconds": spent})


def pruned(
    a: argparse.Namespace, sets: Sets, model: torch.nn.Module, row: str, density: float, seed: int
) -> torch.nn.Module:
    """What is left of the model, fine-tuned; by the way of larger densities, if asked to."""
    by = {"spike-slab": "inclusion", "magnitude": "magnitude"}.get(row, "snr")
    for step in [*(d for d in a.through if d > density), density]:
        torch.compiler.reset()  # compiled code fits one density
        model = pb.prune_(model, step, by=by)
        model = fitted(a, sets, model, second_method(a, row), a.tune_epochs, seed).model
        by = "magnitude" if row == "magnitude" else "snr"  # inclusion variables are gone
    return model


def converted(a: argparse.Namespace, sets: Sets, seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    options = {"hidden": tuple(a.hidden)} if a.hidden else {}
    net = network(a, sets, **options)
    return pb.bayesianize_(net, prior_std=a.prior_std, std_init=a.std_init, estimator=a.estimator)


def first_method(a: argparse.Namespace, row: str) -> Method:
    rates = {"optimizer": a.optimizer, "lr": a.lr, "weight_decay": a.weight_decay}
    stds = {"std_lr": a.std_lr, "std_init": a.std_init}
    if row == "magnitude":
        return pb.Deterministic(**rates)
    if row == "snr":
        return pb.MeanField(beta=a.beta, **rates, **stds)
    if row == "variational-dropout":
        return pb.VariationalDropout(beta=a.dropout_beta, **rates, **stds)
    if a.dense_epochs:  # the network fits already, so inclusion variables move at once
        rates |= {"lr": a.select_lr or a.lr, "warmup": 0.0, "hold": 0.0}
    variables = {"inclusion": a.inclusion, "optimum": a.optimum}
    return pb.SpikeSlab(beta=a.select_beta or a.beta, **variables, **rates, **stds)


def second_method(a: argparse.Namespace, row: str) -> Method:
    rates = {"optimizer": a.optimizer, "lr": a.tune_lr, "weight_decay": a.weight_decay}
    if row == "magnitude":
        return pb.Deterministic(**rates)
    beta = a.beta if a.tune_beta is None else a.tune_beta
    return pb.MeanField(beta=beta, warmup=0.0, std_lr=a.std_lr / 5, **rates)


def report(
    a: argparse.Namespace, sets: Sets, model: torch.nn.Module, known: dict[str, Any]
) -> None:
    stored, size = reopened(model, sets.device)
    is_random = any(q.is_random for _, q in pb.named_posteriors(model))
    found = measure(a, stored, sets, a.estimator if is_random else "mean")
    counts = {"active_weights": size.active_weights, "weights": size.weights}
    append_result(a.table, **known, **counts, file_bytes=size.bytes, **found)


if __name__ == "__main__":
    main()
