"""Does spike-and-slab find the features that matter? Simulations whose support is known.

    python benchmarks/selection.py --problems sparse-linear friedman-50 friedman-500 sparse-mlp
        --seeds 20

Switches stand in front of the inputs of the first layer. What is on at the end is the support that
was found; the rest is pruned and the network fine-tuned. The oracle is the same network on the true
support alone, trained by mean-field VI for as many epochs at the same beta.
"""

import argparse
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from record import append_result
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.data import TableSet, open_dataset


@dataclass(frozen=True)
class Problem:
    """A simulation, the network for it, and how long it is trained."""

    data: str
    options: dict[str, Any]
    width: int
    batch: int
    epochs: int
    tuned: int
    method: dict[str, Any] = field(default_factory=dict)
    tune_lr: float = 1e-3


_USUAL = {"beta": 1.0, "inclusion": 0.1, "lr": 1e-2, "std_lr": 3e-3}
_PATIENT = _USUAL | {"hold": 0.5, "warmup": 0.9}  # what no linear fit shows takes longer to learn
PROBLEMS = {
    "sparse-linear": Problem("sparse-linear", {"rows": 500}, 0, 100, 150, 50, _USUAL),
    "friedman-50": Problem("friedman", {"features": 50, "rows": 1000}, 32, 100, 150, 100, _USUAL),
    "friedman-500": Problem("friedman", {"features": 500, "rows": 5000}, 64, 250, 80, 60, _USUAL),
    "friedman-500, 1,000 rows": Problem(
        "friedman", {"features": 500, "rows": 1000}, 64, 50, 200, 100, _PATIENT, 1e-2
    ),
    "sparse-mlp": Problem("sparse-mlp", {"rows": 1000}, 32, 100, 250, 150, _PATIENT, 1e-2),
    "sparse-mlp, 2,000 rows": Problem(
        "sparse-mlp", {"rows": 2000}, 32, 100, 250, 150, _PATIENT, 1e-2
    ),
}


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--problems", nargs="+", default=list(PROBLEMS), choices=PROBLEMS)
    made.add_argument("--seeds", type=int, default=20)
    made.add_argument("--first", type=int, default=0)
    a = made.parse_args()
    torch.set_num_threads(1)
    for name in a.problems:
        for seed in range(a.first, a.first + a.seeds):
            append_result("selection", problem=name, seed=seed, **outcome(PROBLEMS[name], seed))


def outcome(problem: Problem, seed: int) -> dict[str, Any]:
    """What was found, and the test error beside that of the oracle."""
    train, test = (
        open_dataset(problem.data, split, data_seed=seed, **problem.options)
        for split in ("train", "test")
    )
    inputs, targets = len(train.feature_names), list(train.support)
    begin = time.perf_counter()
    method = pb.SpikeSlab(granularity="input", layers="first", **problem.method)
    model = fitted(network(inputs, problem.width, seed), train, None, method, problem, seed)
    spent = time.perf_counter() - begin
    first = next(q for _, q in pb.named_posteriors(model))
    on = set((first.inclusion >= 0.5).nonzero().flatten().tolist())
    before = rmse(model, test, None)
    pb.prune_(model)
    tuning = dense(problem, problem.tuned, warmup=0.5, lr=problem.tune_lr)
    model = fitted(model, train, None, tuning[0], problem, seed, tuning[1])
    oracle = dense(problem, problem.epochs + problem.tuned)
    known = network(len(targets), problem.width, seed)
    known = fitted(known, train, targets, oracle[0], problem, seed, oracle[1])
    return {
        "options": problem.options,
        "features": inputs,
        "relevant": len(targets),
        "found": len(on & set(targets)),
        "false": len(on - set(targets)),
        "rmse_before_pruning": before,
        "rmse": rmse(model, test, None),
        "oracle_rmse": rmse(known, test, targets),
        "seconds": spent,
        "settings": method.settings()
        | {"width": problem.width, "epochs": problem.epochs}
        | {"tuned": problem.tuned, "tune_lr": problem.tune_lr},
    }


def network(inputs: int, width: int, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    if width == 0:
        return pb.bayesianize_(nn.Sequential(nn.Linear(inputs, 1)), prior_std=0.3)
    layers = [nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    return pb.bayesianize_(nn.Sequential(*layers, nn.Linear(width, 1)), prior_std=0.3)


def dense(problem: Problem, epochs: int, **changes: Any) -> tuple[pb.MeanField, int]:
    """Mean-field VI with the rates of the problem."""
    taken = {name: problem.method[name] for name in ("beta", "lr", "std_lr")}
    return pb.MeanField(**taken | changes), epochs


def fitted(
    model: nn.Module,
    train: TableSet,
    columns: list[int] | None,
    method: pb.SpikeSlab | pb.MeanField,
    problem: Problem,
    seed: int,
    epochs: int | None = None,
) -> nn.Module:
    loader = batches(train, columns, problem.batch, shuffle=True)
    options = {"likelihood": "gaussian", "seed": seed, "progress": False}
    return pb.fit(model, loader, method, epochs=epochs or problem.epochs, **options).model


def batches(
    data: TableSet, columns: list[int] | None, size: int, shuffle: bool = False
) -> DataLoader[Any]:
    x, y = data.batch(range(len(data)))
    chosen = TensorDataset(x if columns is None else x[:, columns], y)
    return DataLoader(chosen, size, shuffle=shuffle)


def rmse(model: nn.Module, test: TableSet, columns: list[int] | None) -> float:
    """In standard deviations of the target."""
    generator = torch.Generator().manual_seed(0)
    return float(pb.evaluate(model, batches(test, columns, 1000), 50, generator=generator).rmse)


if __name__ == "__main__":
    main()
