"""What being Bayesian costs, against the deterministic model in the same run, on the CPU.

    python benchmarks/costs.py            # writes benchmarks/results/costs.jsonl

Ratios of medians, the models taking turns. A training step is forward, loss (with KL),
backward and the optimiser's step: SGD with momentum for the deterministic model; the same for
means plus Adam for log-stds for the Bayesian one, as `fit` does. Memory is the peak of tensors
allocated during forward and backward, above what lay there before.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from record import append_result
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import pocketbayes as pb
from pocketbayes.models import MODELS
from pocketbayes.training.optimizers import make_optimizers


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "resnet20": (MODELS["resnet20"], (3, 32, 32)),
    "mlp": (mlp, (784,)),
}


def seconds_of(actions: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of each action.

    The actions take turns, so that all see the same machine, each running for about a second
    after one pass that does not count, so that none pays for the caches another has emptied.
    """
    times: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(repeats):
        for name, action in actions.items():
            action()
            begin = time.perf_counter()
            while time.perf_counter() - begin < 1:
                start = time.perf_counter()
                action()
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def training_step(model: nn.Module, x: Tensor, y: Tensor) -> Callable[[], None]:
    bayesian = any(True for _ in pb.named_posteriors(model))
    if bayesian:
        optimizers = make_optimizers(model, pb.MeanField(optimizer="sgd"))
    else:
        optimizers = [
            torch.optim.SGD(model.parameters(), 3e-3, momentum=0.9, nesterov=True, fused=True)
        ]

    def step() -> None:
        loss = F.cross_entropy(model(x), y)
        if bayesian:
            loss = loss + pb.kl(model) / 50_000
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return step


def peak_bytes(model: nn.Module, x: Tensor, y: Tensor) -> int:
    """Peak of tensor memory during forward and backward, without the optimiser."""
    bayesian = any(True for _ in pb.named_posteriors(model))

    def run() -> None:
        loss = F.cross_entropy(model(x), y)
        if bayesian:
            loss = loss + pb.kl(model) / 50_000
        loss.backward()

    run()
    model.zero_grad(set_to_none=True)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
        run()
    model.zero_grad(set_to_none=True)
    level = highest = 0
    for event in sorted(
        (e for e in trace.profiler.kineto_results.events() if e.name() == "[memory]"),
        key=lambda e: e.start_ns(),
    ):
        level += event.nbytes()
        highest = max(highest, level)
    return highest


def measure_training(name: str, repeats: int) -> None:
    make, shape = NETWORKS[name]
    x, y = torch.randn(64, *shape), torch.randint(10, (64,))
    plain = make()
    models = {"deterministic": plain} | {
        e: pb.bayesianize_(copy.deepcopy(plain), estimator=e) for e in ("weight", "lrt", "flipout")
    }
    steps = {kind: training_step(model, x, y) for kind, model in models.items()}
    seconds = seconds_of(steps, repeats)
    memory = {kind: peak_bytes(model, x, y) for kind, model in models.items()}
    for kind in ("weight", "lrt", "flipout"):
        append_result(
            "costs",
            task="training step",
            network=name,
            batch=64,
            estimator=kind,
            seconds=seconds[kind],
            deterministic_seconds=seconds["deterministic"],
            time_ratio=seconds[kind] / seconds["deterministic"],
            peak_bytes=memory[kind],
            deterministic_peak_bytes=memory["deterministic"],
            memory_ratio=memory[kind] / memory["deterministic"],
        )


def measure_prediction(name: str, repeats: int) -> None:
    make, shape = NETWORKS[name]
    x = torch.randn(256, *shape)
    plain = make().eval()
    model = pb.bayesianize_(copy.deepcopy(plain))

    def deterministic() -> Tensor:
        with torch.no_grad():
            return plain(x)

    def bayesian(estimator: str) -> Callable[[], object]:
        return lambda: pb.predict(model, x, num_samples=10, estimator=estimator)

    actions: dict[str, Callable[[], object]] = {"deterministic": deterministic}
    actions |= {estimator: bayesian(estimator) for estimator in ("weight", "lrt")}
    seconds = seconds_of(actions, repeats)
    for kind in ("weight", "lrt"):
        append_result(
            "costs",
            task="prediction, 10 samples against one pass",
            network=name,
            batch=256,
            estimator=kind,
            seconds=seconds[kind],
            deterministic_seconds=seconds["deterministic"],
            time_ratio=seconds[kind] / seconds["deterministic"],
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    for name in NETWORKS:
        measure_training(name, arguments.repeats)
        measure_prediction(name, arguments.repeats)


if __name__ == "__main__":
    main()
