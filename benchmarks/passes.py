"""What a prediction costs, in passes of the plain network in the same process.

    python benchmarks/passes.py --networks mlp lenet5 resnet20 resnet18

A row is the median of ratios to the plain forward pass that was timed just before, on one thread
and in processor time, which other processes hardly disturb. Rows with `--compile` are of code that
was compiled beforehand.
Images are drawn, and weights are as they were initialised: time depends on sizes only.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from record import append_result
from torch import Tensor, nn

import pocketbayes as pb
from pocketbayes.models import build_network

SHAPES = {"mlp": (1, 28, 28), "lenet5": (1, 28, 28)}
WAYS = {
    "one pass": {"estimator": "one_pass"},
    "moments": {"estimator": "moments"},
    "mean": {"estimator": "mean"},
    "30 draws, lrt": {"estimator": "lrt"},
    "30 draws, weight": {"estimator": "weight"},
}


def models(name: str) -> tuple[nn.Module, nn.Module]:
    """The plain network, and a Bayesian one with a head for one pass."""
    torch.manual_seed(0)
    shape = SHAPES.get(name, (3, 32, 32))
    plain, net = (build_network(name, input_shape=shape, num_outputs=10) for _ in "ab")
    model = pb.bayesianize_(net)
    x, y = torch.randn(64, *shape), torch.randint(10, (64,))
    pb.distill_(model, [(x, y)], epochs=1)
    return plain.eval(), model.eval()


def ratio(work: Callable[[], object], plain: Callable[[], object], budget: float) -> float:
    """The median of seconds of `work` over those of `plain`, taking turns."""
    work(), plain()
    found, end = list[float](), time.perf_counter() + budget
    while len(found) < 5 or time.perf_counter() < end:
        found.append(seconds(work) / seconds(plain))
    return statistics.median(found)


def seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--networks", nargs="+", default=["mlp", "lenet5", "resnet20", "resnet18"])
    made.add_argument("--batches", nargs="+", type=int, default=[1, 256])
    made.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    made.add_argument("--compile", action="store_true", help="rows of compiled predictions")
    made.add_argument("--budget", type=float, default=5.0, help="seconds for each row")
    a = made.parse_args()
    torch.set_num_threads(1)
    for name in a.networks:
        for batch in a.batches:
            plain, model = models(name)  # compiled code of a second size would be for all sizes
            x = torch.randn(batch, *SHAPES.get(name, (3, 32, 32)))
            for way in a.ways:
                work = partial(predicted, model, x, way, a.compile)
                found = ratio(work, partial(passed, plain, x), a.budget)
                row = f"{way}, compiled" if a.compile else way
                append_result("passes", network=name, batch=batch, row=row, ratio=found)


def predicted(model: nn.Module, x: Tensor, way: str, compile: bool) -> object:  # noqa: A002
    return pb.predict(model, x, **WAYS[way], single=False, compile=compile)


@torch.inference_mode()
def passed(plain: nn.Module, x: Tensor) -> Tensor:
    return plain(x).softmax(1)


if __name__ == "__main__":
    main()
