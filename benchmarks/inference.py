"""How long a prediction of 1,024 images x 30 samples takes: shared weights against their parent.

    python benchmarks/inference.py --model resnet18

Bayes by Backprop draws every weight anew for each sample; sharing draws as many numbers, or with
`draw="shared"` one per Gaussian of its codebook. The posterior is drawn as in stage_two.py: time
depends on sizes only. Rows alternate, so that a machine that slows down slows all of them.
"""

import argparse
import copy
from functools import partial

import torch
from record import append_result
from stage_two import drawn_
from timing import seconds

import pocketbayes as pb
from pocketbayes.layers import set_estimator
from pocketbayes.methods import StartContext
from pocketbayes.models import build_network


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--model", default="resnet18")
    made.add_argument("--images", type=int, default=1024)
    made.add_argument("--samples", type=int, default=30)
    made.add_argument("--repeats", type=int, default=3)
    a = made.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    models = {name: model.to(device) for name, model in variants(a.model).items()}
    x = torch.randn(a.images, 3, 32, 32, device=device)
    x = x.contiguous(memory_format=torch.channels_last)
    times: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(a.repeats + 1):
        for name, model in models.items():
            work = partial(pb.predict, model, x, a.samples)
            times[name].append(seconds(work, device))
    for name, found in times.items():
        append_result(
            "inference", model=a.model, row=name, images=a.images, samples=a.samples,
            median_seconds=sorted(found[1:])[a.repeats // 2],
        )  # fmt: skip


def variants(name: str) -> dict[str, torch.nn.Module]:
    torch.manual_seed(0)
    net = build_network(name).to(memory_format=torch.channels_last)
    parent = pb.bayesianize_(net, estimator="weight")
    gradients = drawn_(parent)
    made = {"bayes-by-backprop": parent}
    for draw in ("independent", "shared"):
        model = copy.deepcopy(parent)
        context = StartContext(lambda: gradients, {}, lambda: None, lambda *_: {}, None)
        pb.Sharing(draw=draw).begin(model, context)
        made[f"sharing, {draw} draws"] = model
    made["sharing, lrt"] = copy.deepcopy(made["sharing, independent draws"])
    set_estimator(made["sharing, lrt"], "lrt")
    return {row: model.eval() for row, model in made.items()}


if __name__ == "__main__":
    main()
