"""What the demo trains, in the order of its table, each line from a file of one before it."""

import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from pocketbayes.codec import load
from pocketbayes.compression import prune_
from pocketbayes.data import MemoryLoader
from pocketbayes.distillation import distill_
from pocketbayes.layers import bayesianize_
from pocketbayes.methods import Deterministic, MeanField, Method
from pocketbayes.models import build_network
from pocketbayes.training import fit

_HIDDEN = (100, 100)


@dataclass(frozen=True)
class Step:
    """One line of the demo's table: how its network is made.

    Attributes:
        method: how it is trained; None: it is distilled.
        parent: the line whose file it goes on from; None: a fresh network.
        density: the share of weights that is kept before training.
        part: it gets one of so many parts of the epochs.
        tolerance: nats a weight by which storing may change it.
    """

    method: Method | None
    parent: str | None = None
    density: float | None = None
    part: int = 1
    tolerance: float = 0.01

    def epochs(self, all_epochs: int) -> int:
        """Passes over the data, at least one."""
        return max(1, all_epochs // self.part)


# Few epochs need a larger learning rate than the default. Rates, sizes and epochs were chosen on
# training digits of writers held back, those of the plain network, too.
SHOWN: dict[str, Step] = {
    "deterministic": Step(Deterministic(lr=0.01)),
    "mean-field": Step(MeanField(lr=0.01)),
    "pruned": Step(
        MeanField(lr=0.005, warmup=0.0), "mean-field", density=0.3, part=4, tolerance=0.1
    ),
    "one-pass": Step(None, "pruned", part=8, tolerance=0.1),
}


def trained(
    step: Step, loader: MemoryLoader, directory: Path, epochs: int, seed: int
) -> tuple[nn.Module, float]:
    """The network, and the seconds that it took beyond the one it goes on from."""
    model = _begun(step, directory, seed)
    if step.method is None:
        begin = time.perf_counter()
        distill_(model, loader, step.epochs(epochs), seed=seed)
        return model, time.perf_counter() - begin
    result = fit(
        model, loader, step.method, epochs=step.epochs(epochs), seed=seed, device="cpu",
        progress=False,
    )  # fmt: skip
    return result.model, result.seconds


def _begun(step: Step, directory: Path, seed: int) -> nn.Module:
    if step.parent is None:
        torch.manual_seed(seed)
        net = build_network("mlp", input_shape=(1, 8, 8), num_outputs=10, hidden=_HIDDEN)
        return bayesianize_(net, estimator="weight")
    model = load(directory / f"{step.parent}.pocket")
    return model if step.density is None else prune_(model, step.density)
