"""How long it takes to share the weights of ResNet-18: clustering, merging, blending, packing.

    python benchmarks/stage_two.py

The posterior is drawn, like that of a trained network, most weights at the prior; so are the
gradients, whose pass over the data is no part of the time.
"""

import argparse
import time

import torch
from record import append_result

import pocketbayes as pb
from pocketbayes.methods import StartContext
from pocketbayes.models import build_network


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--model", default="resnet18")
    made.add_argument("--components", type=int, default=2000)
    a = made.parse_args()
    methods = {
        "mixture": pb.Sharing(components=a.components),
        "rate_distortion": pb.Sharing(components=a.components, objective="rate_distortion"),
        "target_bytes": pb.Sharing(
            components=a.components, objective="rate_distortion", target_bytes=1_000_000
        ),
    }
    for name, method in methods.items():
        model = pb.bayesianize_(build_network(a.model))
        gradients = drawn_(model)
        known = (lambda gradients=gradients: gradients, {}, lambda: None, lambda *_: {}, None)
        begin = time.perf_counter()
        method.begin(model, StartContext(*known))
        seconds = time.perf_counter() - begin
        counts = pb.sharing_summary(model).to_dict()
        append_result("stage_two", model=a.model, row=name, seconds=seconds, **counts)


@torch.no_grad()
def drawn_(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Gives the model's weights means and stds of a trained one; returns gradients to go with."""
    generator = torch.Generator().manual_seed(0)
    gradients = {}
    for name, q in pb.named_posteriors(model):
        noise = torch.randn(3, *q.shape, generator=generator)
        learned = torch.rand(q.shape, generator=generator) < 0.2
        q.mean.copy_(torch.where(learned, 0.02, 0.003) * noise[0])
        q.log_std.copy_(torch.where(learned, 0.01, 0.045).log() + 0.3 * noise[1])
        gradients[name] = noise[2].abs() * q.mean.abs()
    return gradients


if __name__ == "__main__":
    main()
