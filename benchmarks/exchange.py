"""What an exchange of weights takes, and what sparse training holds: ResNet-18 on the CPU.

    python benchmarks/exchange.py --density 0.05

Selection and re-packing (index, means, log-stds and the states of SGD and Adam) are timed without
the gradient pass that feeds them. Memory is that of parameters, places and optimiser states.
"""

import argparse
import time

import torch
from record import append_result
from torch.optim import SGD, Adam

import pocketbayes as pb
from pocketbayes.methods import StepContext
from pocketbayes.models import build_network
from pocketbayes.posteriors import Packed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--density", type=float, default=0.05)
    parser.add_argument("--allocation", default="erk")
    parser.add_argument("--repeats", type=int, default=9)
    a = parser.parse_args()
    torch.manual_seed(0)
    model = pb.bayesianize_(build_network(a.model))
    dense_bytes = 4 * 5 * sum(q.shape.numel() for _, q in pb.named_posteriors(model))
    method = pb.Subspace(density=a.density, allocation=a.allocation, update_every=1)
    method.start(model)
    optimizers = stepped_optimizers(model)
    held = held_bytes(model, optimizers)
    seconds = [timed_exchange(model, method, optimizers) for _ in range(a.repeats)]
    append_result(
        "exchange",
        model=a.model,
        density=a.density,
        allocation=a.allocation,
        active_weights=sum(q.num_active for _, q in pb.named_posteriors(model)),
        median_ms=1e3 * sorted(seconds)[len(seconds) // 2],
        all_ms=[round(1e3 * s, 1) for s in seconds],
        held_bytes=held,
        dense_posterior_bytes=dense_bytes,
    )


def stepped_optimizers(model: torch.nn.Module) -> list[torch.optim.Optimizer]:
    """SGD with momentum and Adam after one step, so that their states exist."""
    stds = [p for _, q in pb.named_posteriors(model) for p in q.std_parameters()]
    rest = [p for p in model.parameters() if id(p) not in set(map(id, stds))]
    made = [SGD(rest, 0.1, momentum=0.9), Adam(stds, 1e-3)]
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter) * 1e-3
    for optimizer in made:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return made


def held_bytes(model: torch.nn.Module, optimizers: list[torch.optim.Optimizer]) -> int:
    tensors = list(model.state_dict().values())
    tensors += [t for o in optimizers for s in o.state.values() for t in s.values()]
    return sum(t.numel() * t.element_size() for t in tensors)


def timed_exchange(
    model: torch.nn.Module, method: pb.Subspace, optimizers: list[torch.optim.Optimizer]
) -> float:
    """Seconds from dense gradients, already there, to the new places."""
    posteriors = dict(pb.named_posteriors(model))
    packed = {n: torch.randn(q.shape) for n, q in posteriors.items() if isinstance(q, Packed)}
    moment = StepContext(1, 0.0, optimizers, lambda estimator: packed, {}, 50_000, 1.0)
    begin = time.perf_counter()
    method.after_step(model, moment)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
