"""Are inclusion probabilities probabilities? 50 features of which 5 matter, all defaults.

    python benchmarks/false_features.py --seeds 20

`pb.SpikeSlab(granularity="input")` on an MLP of 32 and 32 units, 1,000 rows in batches of 32: on
Friedman's function, and on two classes whose log-odds hold three features and one product.
"""

import argparse
import math
import time
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from record import append_result
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.data.simulated import friedman_mean

PROBLEMS = ("friedman-50", "two-classes")


def problem(name: str, seed: int, rows: int = 1000) -> tuple[Tensor, Tensor]:
    """Standardised inputs and targets; the first five of 50 features matter."""
    rng = np.random.default_rng([seed, 50])
    if name == "friedman-50":
        u = rng.random((rows, 50))
        y = friedman_mean(u) + rng.standard_normal(rows)
        x, y = (u - 0.5) * math.sqrt(12), (y - y.mean()) / y.std()
        return torch.tensor(x).float(), torch.tensor(y).float()[:, None]
    x = rng.standard_normal((rows, 50))
    log_odds = 4 * x[:, 0] - 4 * x[:, 1] + 3 * x[:, 2] + 3 * x[:, 3] * x[:, 4]
    return torch.tensor(x).float(), torch.tensor(
        rng.random(rows) < 1 / (1 + np.exp(-log_odds))
    ).long()


def outcome(job: tuple[str, int]) -> dict[str, Any]:
    """What one problem and seed come to."""
    name, seed = job
    x, y = problem(name, seed)
    values = y.is_floating_point()
    torch.manual_seed(seed)
    layers = [nn.Linear(50, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU()]
    model = pb.bayesianize_(nn.Sequential(*layers, nn.Linear(32, 1 if values else 2)))
    likelihood, begin = "gaussian" if values else "categorical", time.perf_counter()
    loader = DataLoader(TensorDataset(x, y), 32, shuffle=True)
    method = pb.SpikeSlab(granularity="input")
    options = {"likelihood": likelihood, "seed": seed, "progress": False, "device": "cpu"}
    result = pb.fit(model, loader, method, **options)
    chosen = {int(name.split()[1]) for name in pb.feature_report(result.model).chosen()}
    true, spent = set(range(5)), time.perf_counter() - begin
    known = {"problem": name, "seed": seed, "seconds": spent}
    return known | {"found": len(chosen & true), "false": len(chosen - true)}


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--problems", nargs="+", default=list(PROBLEMS), choices=PROBLEMS)
    made.add_argument("--seeds", type=int, default=20)
    made.add_argument("--processes", type=int, default=1)
    a = made.parse_args()
    jobs = [(name, seed) for seed in range(100, 100 + a.seeds) for name in a.problems]
    with get_context("spawn").Pool(a.processes, torch.set_num_threads, (1,)) as pool:
        for row in pool.imap_unordered(outcome, jobs, chunksize=1):
            append_result("false_features", **row)


if __name__ == "__main__":
    main()
