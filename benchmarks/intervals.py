"""Can default intervals be trusted? Fifteen regressions, five splits, the test rows read once.

    python benchmarks/intervals.py --data DATA/regression.npz --processes 2

`pocketbayes` is `pb.fit(pb.bayesianize_(net), loader, likelihood="gaussian")` with nothing else
said; the network is an MLP of 64 and 64 units, batches as the command line makes them. Its rivals:
the plain network and an ensemble of five, stopped early on a tenth of the training rows, whose
noise is that of these rows; scikit-learn's Gaussian process (a length scale for each input, fitted
on 1,000 rows, conditioned on 4,000), Bayesian ridge and gradient boosting with the noise of its
cross-validated residuals. Figures are those of standardised targets.
"""

import argparse
import itertools
import math
import time
import warnings
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import append_result
from regression_sets import SPLITS, Part, opened, set_names
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb

Figures = dict[str, dict[str, float]]  # by row of the table


def network(inputs: int, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    widths = [inputs, 64, 64]
    layers = [(nn.Linear(i, o), nn.ReLU()) for i, o in itertools.pairwise(widths)]
    return nn.Sequential(*itertools.chain.from_iterable(layers), nn.Linear(64, 1))


def batches(x: Tensor, y: Tensor, shuffle: bool = True) -> Any:
    size = max(16, min(128, 1 << max(0, (len(x) // 20).bit_length() - 1)))
    return DataLoader(TensorDataset(x, y), size, shuffle=shuffle)


def bayesian(part: Part, seed: int) -> Figures:
    model = pb.bayesianize_(network(part.x.shape[1], seed))
    loader, options = batches(part.x, part.y), {"device": "cpu", "progress": False}
    pb.fit(model, loader, likelihood="gaussian", seed=seed, **options)
    return {"pocketbayes": of_model(model, part)}


def ensemble(part: Part, seed: int) -> Figures:
    """And its first member, which is the plain network of this seed."""
    order = torch.randperm(len(part.x), generator=torch.Generator().manual_seed(seed))
    held, kept = order[: len(order) // 10], order[len(order) // 10 :]
    loader, watched = (batches(part.x[rows], part.y[rows]) for rows in (kept, held))
    stopping = {"val_loader": watched, "keep_best": True, "patience": 20, "epochs": 200}
    options = {"device": "cpu", "progress": False, "likelihood": "gaussian"}
    model = pb.bayesianize_(network(part.x.shape[1], seed))
    five = pb.fit(model, loader, pb.DeepEnsemble(), seed=seed, **stopping, **options).model
    found = {"plain network": five.members[0], "ensemble of 5": five}
    return {k: of_model(pb.refresh_noise_(m, watched), part) for k, m in found.items()}


def of_model(model: nn.Module, part: Part) -> dict[str, float]:
    loader = DataLoader(TensorDataset(part.x_test, part.y_test), 4096)
    record = pb.evaluate(model, loader, 100, generator=torch.Generator().manual_seed(0))
    names = ("nll", "rmse", "coverage_90", "crps", "interval_score_90")
    return {name: float(getattr(record, name)) for name in names}


def of_normal(mean: Any, std: Any, part: Part) -> dict[str, float]:
    """Figures of one Gaussian for each row."""
    mean, std = (torch.as_tensor(np.broadcast_to(v, len(part.y_test)).copy()) for v in (mean, std))
    z = (part.y_test[:, 0].double() - mean) / std
    nll = z.square() / 2 + std.log() + math.log(2 * math.pi) / 2
    density = (-z.square() / 2).exp() / math.sqrt(2 * math.pi)
    crps = std * (z * (2 * torch.special.ndtr(z) - 1) + 2 * density - 1 / math.sqrt(math.pi))
    reach = float(torch.special.ndtri(torch.tensor(0.95, dtype=torch.float64)))
    score = 2 * reach * std + 20 * std * (z.abs() - reach).clamp_min(0)
    found = {"nll": nll, "coverage_90": (z.abs() <= reach).double(), "crps": crps}
    found |= {"interval_score_90": score}
    return {k: float(v.mean()) for k, v in found.items()} | {
        "rmse": float((z * std).square().mean().sqrt())
    }


def process(part: Part, seed: int) -> Figures:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    rows = np.random.default_rng(seed).permutation(len(part.x))
    x, y = part.x.double().numpy(), part.y[:, 0].double().numpy()
    scales = np.full(x.shape[1], math.sqrt(x.shape[1]))
    kernel = ConstantKernel() * RBF(scales, (1e-2, 1e4)) + WhiteKernel(0.1, (1e-6, 1e2))
    first = GaussianProcessRegressor(kernel).fit(x[rows[:1000]], y[rows[:1000]])
    fixed = GaussianProcessRegressor(first.kernel_, optimizer=None)
    fixed.fit(x[rows[:4000]], y[rows[:4000]])
    found = fixed.predict(part.x_test.double().numpy(), return_std=True)
    return {"Gaussian process": of_normal(*found, part)}


def ridge(part: Part, seed: int) -> Figures:
    from sklearn.linear_model import BayesianRidge

    model = BayesianRidge().fit(part.x.double().numpy(), part.y[:, 0].double().numpy())
    found = model.predict(part.x_test.double().numpy(), return_std=True)
    return {"Bayesian ridge": of_normal(*found, part)}


def boosting(part: Part, seed: int) -> Figures:
    from sklearn.ensemble import GradientBoostingRegressor
    from sklearn.model_selection import cross_val_predict

    x, y = part.x.double().numpy(), part.y[:, 0].double().numpy()
    model = GradientBoostingRegressor(random_state=seed)
    noise = np.sqrt(np.mean((y - cross_val_predict(model, x, y, cv=5)) ** 2))
    found = model.fit(x, y).predict(part.x_test.double().numpy())
    return {"gradient boosting": of_normal(found, noise, part)}


JOBS: dict[str, Callable[[Part, int], Figures]] = {
    "ensemble": ensemble, "bayesian": bayesian, "process": process, "ridge": ridge,
    "boosting": boosting,
}  # fmt: skip


def done(job: tuple[Path, str, int, str]) -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    path, name, split, kind = job
    part, begin = opened(path, name, split, validation=False), time.perf_counter()
    found = JOBS[kind](part, split)
    known = {"set": name, "split": split, "rows": len(part.x)}
    spent = {"seconds": time.perf_counter() - begin}
    return [known | {"row": row} | figures | spent for row, figures in found.items()]


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--data", type=Path, required=True)
    made.add_argument("--sets", nargs="*")
    made.add_argument("--jobs", nargs="+", default=list(JOBS), choices=JOBS)
    made.add_argument("--splits", type=int, default=SPLITS)
    made.add_argument("--processes", type=int, default=1)
    a = made.parse_args()
    names = a.sets or sorted(set_names(a.data), key=lambda n: -len(opened(a.data, n, 0, False).x))
    jobs = [(a.data, n, k, job) for n in names for job in a.jobs for k in range(a.splits)]
    with get_context("spawn").Pool(a.processes) as pool:
        for rows in pool.imap_unordered(done, jobs, chunksize=1):
            for row in rows:
                append_result("intervals", **row)


if __name__ == "__main__":
    main()
