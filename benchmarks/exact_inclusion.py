"""How near inclusion probabilities come to the truth: all 64 models of a regression summed up.

    python benchmarks/exact_inclusion.py

100 examples, 6 inputs of equal correlation, three of them with an effect. `long` is training as
one would for an answer (1,500 steps, larger rates, stds that start at their order of size),
`short` 400 steps with the defaults. The truth is computed at the noise that training found.
"""

import argparse
import itertools
import math

import torch
from record import append_result
from torch import Tensor, nn

import pocketbayes as pb

EFFECTS = (1.0, -0.5, 0.25, 0.0, 0.0, 0.0)
SLAB, PRIOR = 0.7, 0.3


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--seeds", type=int, default=5)
    made.add_argument("--correlations", nargs="+", type=float, default=[0.0, 0.4, 0.6, 0.9])
    a = made.parse_args()
    torch.set_num_threads(1)
    for training, correlation, granularity in itertools.product(
        ("long", "short"), a.correlations, ("weight", "input")
    ):
        for seed in range(a.seeds):
            found, exact = compared(training, correlation, granularity, seed)
            append_result(
                "exact_inclusion", training=training, correlation=correlation, seed=seed,
                granularity=granularity, found=found.tolist(), exact=exact.tolist(),
                largest_error=float((found - exact).abs().max()),
                same_median_model=bool(((found > 0.5) == (exact > 0.5)).all()),
            )  # fmt: skip


def regression(correlation: float, seed: int, rows: int = 100) -> tuple[Tensor, Tensor]:
    """Inputs that share a part of their noise, and a target with noise of std 1/2."""
    generator = torch.Generator().manual_seed(seed)
    size = len(EFFECTS)
    own = torch.randn(rows, size, generator=generator, dtype=torch.float64)
    common = torch.randn(rows, 1, generator=generator, dtype=torch.float64)
    x = math.sqrt(1 - correlation) * own + math.sqrt(correlation) * common
    noise = torch.randn(rows, generator=generator, dtype=torch.float64)
    return x, x @ torch.tensor(EFFECTS, dtype=torch.float64) + 0.5 * noise


def compared(
    training: str, correlation: float, granularity: str, seed: int
) -> tuple[Tensor, Tensor]:
    """Inclusion probabilities as trained, and as they are."""
    x, y = regression(correlation, seed)
    torch.manual_seed(seed)
    long = training == "long"
    net = nn.Linear(len(EFFECTS), 1, bias=False).double()
    model = pb.bayesianize_(net, prior_std=SLAB, std_init=0.05 if long else 1e-3)
    own = {"warmup": 0.2, "hold": 0.2, "lr": 1e-2, "std_lr": 1e-2} if long else {}
    method = pb.SpikeSlab(inclusion=PRIOR, granularity=granularity, beta=1.0, **own)
    options = {"likelihood": "gaussian", "progress": False, "dataset_size": len(y)}
    pb.fit(model, [(x, y[:, None])] * 10, method, epochs=150 if long else 40, **options)
    posterior = dict(pb.named_posteriors(model))["weight"]
    noise = float(model.noise_log_std.detach().exp())
    return posterior.inclusion.detach().flatten(), exact_inclusion(x, y, noise)


def exact_inclusion(x: Tensor, y: Tensor, noise: float) -> Tensor:
    """Posterior inclusion probabilities, summed over all models."""
    weights, inside = [], []
    for model in itertools.product((0, 1), repeat=x.shape[1]):
        keep = torch.tensor(model, dtype=torch.bool)
        eye = torch.eye(len(y), dtype=torch.float64)
        covariance = noise**2 * eye + SLAB**2 * x[:, keep] @ x[:, keep].T
        density = torch.distributions.MultivariateNormal(torch.zeros_like(y), covariance)
        chance = sum(math.log(PRIOR if k else 1 - PRIOR) for k in model)
        weights.append(float(density.log_prob(y)) + chance)
        inside.append(keep.double())
    return torch.softmax(torch.tensor(weights, dtype=torch.float64), 0) @ torch.stack(inside)


if __name__ == "__main__":
    main()
