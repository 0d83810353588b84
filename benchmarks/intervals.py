"""Can default intervals be trusted? Fifteen regressions, five splits, the test rows read once.

    python benchmarks/intervals.py --data DATA/regression.npz --processes 2

`pocketbayes` is `pb.fit(pb.bayesianize_(net), loader, likelihood="gaussian")` with nothing else
said; the network is an MLP of 64 and 64 units, batches as the command line makes them. Its rivals:
the plain network and an ensemble of five by Adam, each stopped early on a tenth of the training
rows, whose errors are the noise; scikit-learn's Gaussian process (a length scale for each input,
fitted on 500 rows, conditioned on 4,000), Bayesian ridge and gradient boosting with the noise of
its cross-validated residuals. Figures are those of standardised targets.
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
_MOST_EPOCHS, _PATIENCE = 200, 20


def network(inputs: int, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    widths = [inputs, 64, 64]
    layers = [(nn.Linear(i, o), nn.ReLU()) for i, o in itertools.pairwise(widths)]
    return nn.Sequential(*itertools.chain.from_iterable(layers), nn.Linear(64, 1))


def batch_size(rows: int) -> int:
    """As the command line makes them."""
    return max(16, min(128, 1 << max(0, (rows // 20).bit_length() - 1)))


def bayesian(part: Part, seed: int) -> Figures:
    model = pb.bayesianize_(network(part.x.shape[1], seed))
    size, options = batch_size(len(part.x)), {"device": "cpu", "progress": False}
    loader = DataLoader(TensorDataset(part.x, part.y), size, shuffle=True)
    pb.fit(model, loader, likelihood="gaussian", seed=seed, **options)
    return {"pocketbayes": of_model(model, part)}


def ensemble(part: Part, seed: int) -> Figures:
    """Five networks side by side, each stopped early; the first is the plain network."""
    order = torch.randperm(len(part.x), generator=torch.Generator().manual_seed(seed))
    held, kept = order[: len(order) // 10], order[len(order) // 10 :]
    x, y, x_held, y_held = part.x[kept], part.y[kept], part.x[held], part.y[held]
    layers = stacked([network(part.x.shape[1], 5 * seed + k) for k in range(5)])
    best = stopped_early(layers, x, y, x_held, y_held, seed)
    found = {}
    for row, members in {"plain network": 1, "ensemble of 5": 5}.items():
        chosen = [(w[:members], b[:members]) for w, b in best]
        with torch.no_grad():
            noise = (y_held - outputs(chosen, x_held)).square().mean().sqrt()
            means = outputs(chosen, part.x_test)[..., 0].double()
        found[row] = of_mixture(means, float(noise), part)
    return found


Layers = list[tuple[Tensor, Tensor]]  # weights (members, in, out) and biases (members, 1, out)


def stacked(networks: list[nn.Module]) -> Layers:
    linear = [[m for m in net.modules() if isinstance(m, nn.Linear)] for net in networks]
    return [
        (
            torch.stack([m.weight.detach().T for m in same]).requires_grad_(),
            torch.stack([m.bias.detach()[None] for m in same]).requires_grad_(),
        )
        for same in zip(*linear, strict=True)
    ]


def outputs(layers: Layers, x: Tensor) -> Tensor:
    """(members, rows, 1)."""
    x = x.expand(len(layers[0][0]), *x.shape[-2:])
    for number, (weight, bias) in enumerate(layers):
        x = torch.baddbmm(bias, x, weight)
        x = x.relu() if number < len(layers) - 1 else x
    return x


def stopped_early(
    layers: Layers, x: Tensor, y: Tensor, x_held: Tensor, y_held: Tensor, seed: int
) -> Layers:
    """Adam on the squared error, each member with batches of its own, until none has improved."""
    tensors = [tensor for pair in layers for tensor in pair]
    optimizer = torch.optim.Adam(tensors, 1e-3)
    generator = torch.Generator().manual_seed(seed)
    size = batch_size(len(x))
    least, waited = torch.full((5,), math.inf), torch.zeros(5)
    best = [tensor.detach().clone() for tensor in tensors]
    for _ in range(_MOST_EPOCHS):
        order = torch.stack([torch.randperm(len(x), generator=generator) for _ in range(5)])
        for rows in order.split(size, 1):
            optimizer.zero_grad()
            (y[rows] - outputs(layers, x[rows])).square().mean((1, 2)).sum().backward()
            optimizer.step()
        with torch.no_grad():
            error = (y_held - outputs(layers, x_held)).square().mean((1, 2))
            better = error < least
            least, waited = torch.where(better, error, least), torch.where(better, 0, waited + 1)
            for kept, tensor in zip(best, tensors, strict=True):
                kept[better] = tensor[better]
        if bool((waited >= _PATIENCE).all()):
            break
    return list(zip(best[::2], best[1::2], strict=True))


def of_mixture(means: Tensor, noise: float, part: Part) -> dict[str, float]:
    """Figures of an equal mixture of N(mean, noise^2) over members, for each row."""
    y = part.y_test[:, 0].double()
    z = (y - means) / noise
    density = -z.square() / 2 - math.log(noise * math.sqrt(2 * math.pi))
    rank = torch.special.ndtr(z).mean(0)
    spread = expected_distance(means[:, None] - means, noise * math.sqrt(2)).mean((0, 1))
    return {
        "nll": float(math.log(len(means)) - density.logsumexp(0).mean()),
        "rmse": float((y - means.mean(0)).square().mean().sqrt()),
        "coverage_90": float(((rank - 0.5).abs() <= 0.45).double().mean()),
        "crps": float((expected_distance(y - means, noise).mean(0) - spread / 2).mean()),
    }


def expected_distance(mean: Tensor, std: float) -> Tensor:
    """E|N(mean, std^2)|."""
    z = mean / std
    density = (-z.square() / 2).exp() / math.sqrt(2 * math.pi)
    return mean * (2 * torch.special.ndtr(z) - 1) + 2 * std * density


def of_model(model: nn.Module, part: Part) -> dict[str, float]:
    loader = DataLoader(TensorDataset(part.x_test, part.y_test), 4096)
    record = pb.evaluate(model, loader, 100, generator=torch.Generator().manual_seed(0))
    names = ("nll", "rmse", "coverage_90", "crps")
    return {name: float(getattr(record, name)) for name in names}


def of_normal(mean: Any, std: Any, part: Part) -> dict[str, float]:
    """Figures of one Gaussian for each row."""
    mean, std = (torch.as_tensor(np.broadcast_to(v, len(part.y_test)).copy()) for v in (mean, std))
    z = (part.y_test[:, 0].double() - mean) / std
    nll = z.square() / 2 + std.log() + math.log(2 * math.pi) / 2
    density = (-z.square() / 2).exp() / math.sqrt(2 * math.pi)
    crps = std * (z * (2 * torch.special.ndtr(z) - 1) + 2 * density - 1 / math.sqrt(math.pi))
    reach = float(torch.special.ndtri(torch.tensor(0.95, dtype=torch.float64)))
    found = {"nll": nll, "coverage_90": (z.abs() <= reach).double(), "crps": crps}
    rmse = float((z * std).square().mean().sqrt())
    return {name: float(values.mean()) for name, values in found.items()} | {"rmse": rmse}


def process(part: Part, seed: int) -> Figures:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    rows = np.random.default_rng(seed).permutation(len(part.x))
    x, y = part.x.double().numpy(), part.y[:, 0].double().numpy()
    scales = np.full(x.shape[1], math.sqrt(x.shape[1]))
    kernel = ConstantKernel() * RBF(scales, (1e-2, 1e4)) + WhiteKernel(0.1, (1e-6, 1e2))
    first = GaussianProcessRegressor(kernel).fit(x[rows[:500]], y[rows[:500]])
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
    from sklearn.model_selection import KFold, cross_val_predict

    x, y = part.x.double().numpy(), part.y[:, 0].double().numpy()
    model = GradientBoostingRegressor(random_state=seed)
    folds = KFold(5, shuffle=True, random_state=seed)
    noise = np.sqrt(np.mean((y - cross_val_predict(model, x, y, cv=folds)) ** 2))
    found = model.fit(x, y).predict(part.x_test.double().numpy())
    return {"gradient boosting": of_normal(found, noise, part)}


JOBS: dict[str, Callable[[Part, int], Figures]] = {
    "ensemble": ensemble, "bayesian": bayesian, "process": process, "ridge": ridge,
    "boosting": boosting,
}  # fmt: skip


def done(job: tuple[Path, str, int, str]) -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False  # slow for small products on ARM
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
