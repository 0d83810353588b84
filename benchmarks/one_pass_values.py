"""What one pass keeps of the draws of a regression: all sets, one network for each split.

    python benchmarks/one_pass_values.py --data DATA/regression.npz --processes 2

The network is that of intervals.py, trained and distilled with nothing said; rows are its draws
(30, by the layers' own estimator), moments, the mean network and one pass, on the same test rows.
"""

import argparse
import warnings
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from intervals import batch_size, network
from record import append_result
from regression_sets import SPLITS, opened, set_names
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb

TABLE = "one_pass_values"
WAYS = ("lrt", "moments", "mean", "one_pass")
FIGURES = ("nll", "rmse", "coverage_90", "crps")


def done(job: tuple[Path, str, int, argparse.Namespace]) -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False  # slow for small products on ARM
    warnings.simplefilter("ignore")
    path, name, split, a = job
    part = opened(path, name, split, a.validation)
    model = pb.bayesianize_(network(part.x.shape[1], split))
    loader = DataLoader(TensorDataset(part.x, part.y), batch_size(len(part.x)), shuffle=True)
    pb.fit(
        model, loader, likelihood="gaussian", seed=split, device="cpu", progress=False,
        epochs=a.train_epochs,
    )  # fmt: skip
    pb.distill_(model, loader, seed=split)
    test = DataLoader(TensorDataset(part.x_test, part.y_test), 4096)
    rows = []
    for way in WAYS:
        record = pb.evaluate(
            model, test, 30, generator=torch.Generator().manual_seed(0), estimator=way
        )
        figures = {name: float(getattr(record, name)) for name in FIGURES}
        rows.append({"set": name, "split": split, "rows": len(part.x), "row": way} | figures)
    return rows


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--data", type=Path, required=True)
    made.add_argument("--sets", nargs="*")
    made.add_argument("--splits", type=int, default=3, choices=range(1, SPLITS + 1))
    made.add_argument("--processes", type=int, default=1)
    made.add_argument("--train-epochs", type=int, help="for a dry run")
    made.add_argument("--validation", action="store_true", help="on rows of no test part")
    a = made.parse_args()
    names = a.sets or sorted(set_names(a.data), key=lambda n: -len(opened(a.data, n, 0, False).x))
    jobs = [(a.data, name, split, a) for name in names for split in range(a.splits)]
    table = TABLE + "_search" * a.validation
    with get_context("spawn").Pool(a.processes) as pool:
        for rows in pool.imap_unordered(done, jobs, chunksize=1):
            for row in rows:
                append_result(table, **row)


if __name__ == "__main__":
    main()
