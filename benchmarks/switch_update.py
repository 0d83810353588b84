"""What the inclusion update takes, as a share of a training step.

    python benchmarks/switch_update.py

The time in `SpikeSlab.after_step`, which holds nothing but that update, against the whole of
training, data included; every inclusion variable moves in every step.
"""

import argparse
import time
from dataclasses import dataclass
from typing import Any

import torch
from record import append_result

import pocketbayes as pb
from pocketbayes.models import build_network

NETWORKS: dict[str, tuple[dict[str, Any], tuple[int, ...], int]] = {
    "mlp": ({"hidden": (300, 100), "input_shape": (784,)}, (784,), 128),
    "resnet20": ({}, (3, 32, 32), 32),
}
spent = [0.0]


@dataclass(frozen=True, kw_only=True)
class Timed(pb.SpikeSlab):
    """Spike-and-slab that notes how long its updates take."""

    def after_step(self, model: torch.nn.Module, moment: Any) -> bool:
        """The update, timed."""
        wait()
        begin = time.perf_counter()
        done = super().after_step(model, moment)
        wait()
        spent[0] += time.perf_counter() - begin
        return done


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=NETWORKS)
    made.add_argument("--steps", type=int, default=20)
    made.add_argument("--repeats", type=int, default=3)
    a = made.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for name in a.networks:
        options, shape, batch = NETWORKS[name]
        for granularity in ("weight", "output"):
            shares = sorted(share(options, shape, batch, granularity, device, name, a.steps)
                            for _ in range(a.repeats))  # fmt: skip
            append_result(
                "switch_update", network=name, granularity=granularity, batch=batch,
                median_share=shares[a.repeats // 2], steps=a.steps,
            )  # fmt: skip


def share(
    options: dict[str, Any],
    shape: tuple[int, ...],
    batch: int,
    granularity: str,
    device: str,
    name: str,
    steps: int,
) -> float:
    """The update's share of the time of these steps, the first few not counted."""
    model = pb.bayesianize_(build_network(name, **options).to(device))
    data = [(torch.randn(batch, *shape, device=device), torch.randint(10, (batch,), device=device))]
    method = Timed(granularity=granularity, hold=0.0, warmup=0.0)
    fitting = {"progress": False, "dataset_size": 60_000}
    pb.fit(model, data, method, epochs=3, **fitting)
    spent[0], begin = 0.0, time.perf_counter()
    pb.fit(model, data * steps, method, epochs=1, **fitting)
    return spent[0] / (time.perf_counter() - begin)


if __name__ == "__main__":
    main()
