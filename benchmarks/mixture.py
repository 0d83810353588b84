"""Fitting and assigning a mixture in the (mean, std) plane, beside k-means of faiss.

    python benchmarks/mixture.py --points 11.7e6 --components 2000

The cloud is synthetic: 20 layers whose means have the scale of their fan-in and long tails within
0.2 of zero, with stds that fall with the size of the mean. Likelihoods are those of 200,000 points
in units of the cloud's standard deviations, all components counted. faiss (not a dependency; `pip
install faiss-cpu`) clusters a sample of 256 points per component, as it does by default, assigns
all points to their nearest centre, and each cluster gets its own covariance.
"""

import argparse
import resource
import time
from typing import Any

import numpy as np
import torch
from record import append_result

from pocketbayes.sharing.histogram import Array, chunks
from pocketbayes.sharing.merging import merged
from pocketbayes.sharing.mixture import Mixture, assigned, fitted_mixture, log_densities


def cloud(points: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Means, all within 0.2 of zero, and stds of a network's weights."""
    generator = torch.Generator().manual_seed(seed)
    fan_in = torch.logspace(1.43, 3.66, 20)
    share = fan_in**1.5 / (fan_in**1.5).sum()
    ends = [0, *(points * share.double().cumsum(0)).round().long().tolist()[:-1], points]
    x, y = torch.empty(points), torch.empty(points)
    for layer, width in enumerate(fan_in.tolist()):
        for begin in range(ends[layer], ends[layer + 1], 1 << 22):
            part = slice(begin, min(begin + (1 << 22), ends[layer + 1]))
            mean = torch.randn(x[part].shape, generator=generator).mul_(0.5).exp_()
            mean.mul_(0.7 / width**0.5)
            mean.mul_(torch.randn(mean.shape, generator=generator))
            x[part] = mean.div_(0.2).tanh_().mul_(0.2)
            certain = (x[part].abs() / 0.05).clamp_(max=1)
            log_std = 0.3 * torch.randn(mean.shape, generator=generator) - 3.1 - 1.5 * certain
            y[part] = log_std.exp_()
    return x, y


def likelihood(x: torch.Tensor, y: torch.Tensor, mixture: Mixture, scale: Array) -> float:
    """Mean log-density of a sample, in units of `scale`."""
    sample = torch.randint(0, len(x), (200_000,), generator=torch.Generator().manual_seed(1))
    plane = torch.stack([x[sample], y[sample]], 1).double().numpy()
    total = 0.0
    for part in np.array_split(plane, 400):
        near = np.broadcast_to(np.arange(len(mixture.weight)), (len(part), len(mixture.weight)))
        total += np.logaddexp.reduce(log_densities(part, mixture, near), 1).sum()
    return float(total / len(plane) + np.log(scale).sum())


def rms_error(x: torch.Tensor, y: torch.Tensor, labels: torch.Tensor, mixture: Mixture) -> float:
    """How far a weight's mean lies from its component's, in stds of the weight."""
    means = torch.from_numpy(mixture.mean[:, 0]).float()
    total = 0.0
    for part in chunks(len(x)):
        error = (x[part] - means[labels[part].long()]) / y[part]
        total += float(error.square().sum(dtype=torch.float64))
    return float((total / len(x)) ** 0.5)


def by_faiss(x: torch.Tensor, y: torch.Tensor, components: int, scale: Array) -> dict[str, Any]:
    try:
        import faiss
    except ImportError:
        return {}
    begin = time.perf_counter()
    plane = np.ascontiguousarray(torch.stack([x / scale[0], y / scale[1]], 1).float().numpy())
    means = faiss.Kmeans(2, components, niter=20, seed=1)
    means.train(plane)
    labels = means.index.search(plane, 1)[1][:, 0]
    points = torch.stack([x, y], 1).double().numpy()

    def average(values: Array) -> Array:
        return np.bincount(labels, values, components) / np.maximum(size, 1)

    size = np.bincount(labels, minlength=components)
    mean = np.stack([average(points[:, i]) for i in range(2)], 1)
    apart = points - mean[labels]
    second = [average(apart[:, i] * apart[:, j]) for i, j in ((0, 0), (0, 1), (1, 1))]
    covariance = np.stack(second, 1)
    covariance[:, [0, 2]] += 1e-6 * scale**2
    seconds = time.perf_counter() - begin
    kept = size > 0
    mixture = Mixture(size[kept] / size.sum(), mean[kept], covariance[kept])
    return {"faiss_seconds": seconds, "faiss_nats": likelihood(x, y, mixture, scale)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=float, default=11.7e6)
    parser.add_argument("--components", type=int, default=2000)
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--merge", type=float, default=0.01, help="threshold of W2^2")
    parser.add_argument("--no-faiss", action="store_true")
    a = parser.parse_args()
    x, y = cloud(int(a.points))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    mixture, grid, bins = fitted_mixture(x, y, a.components, a.side, a.iterations)
    fitted = time.perf_counter()
    labels = assigned(x, y, mixture, grid, bins)
    done = time.perf_counter()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    inner = mixture._replace(
        mean=mixture.mean / grid.width,
        covariance=mixture.covariance / np.outer(grid.width, grid.width)[[0, 0, 1], [0, 1, 1]],
    )
    merge_begin = time.perf_counter()
    smaller, _ = merged(inner, a.merge)
    merge_seconds = time.perf_counter() - merge_begin
    other = {} if a.no_faiss else by_faiss(x, y, a.components, grid.width)
    append_result(
        "mixture",
        points=len(x),
        components=len(mixture.weight),
        side=a.side,
        bins=len(bins.size),
        fit_seconds=fitted - begin,
        assign_seconds=done - fitted,
        nats=likelihood(x, y, mixture, grid.width),
        rms_error_in_stds=rms_error(x, y, labels, mixture),
        merge_threshold=a.merge,
        merge_seconds=merge_seconds,
        merged_to=len(smaller.weight),
        peak_bytes=1024 * after,
        bytes_before=1024 * before,
        **other,
    )


if __name__ == "__main__":
    main()
