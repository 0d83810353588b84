"""What it would buy to store one draw of the weights instead of means and stds.

    python benchmarks/one_draw.py --root DATA --files 600000-100.pocket 200000-100.pocket

A coder that both sides know the prior of can store a draw in KL(q || p) / ln 2 bits, and a little
more. Here p is a Gaussian for each layer whose variance is the mean of m^2 + s^2:

    KL / ln 2 = sum_i log2(s_p / s_i).

For each file: bytes of its means and stds, that bound, and the quality of draws and of the mean.
"""

import copy
import math
from pathlib import Path

import torch
from cifar import open_sets, parser
from record import append_result

import pocketbayes as pb
from pocketbayes.layers import named_posteriors, set_head


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--files", nargs="+", type=Path, required=True)
    made.add_argument("--draws", type=int, default=3)
    made.set_defaults(no_ood=True)
    a = made.parse_args()
    test = open_sets(a).test
    for path in a.files:
        model = pb.load(path)
        set_head(model, None)
        facts = {"file": path.stem, "limit": a.limit, "file_bytes": path.stat().st_size}
        facts |= {"now_bytes": means_and_stds(path), "draw_bytes": entropy(model) / 8}
        for seed in range(-1, a.draws):
            row, network = ("mean", model) if seed < 0 else ("draw", drawn(model, seed))
            record = pb.evaluate(network, test, estimator="mean").to_dict()
            append_result("one_draw", row=row, seed=max(seed, 0), **facts, **record)


def means_and_stds(path: Path) -> int:
    roles = ("/mean", "/log_std")
    return sum(s.bytes for s in pb.inspect(path).sections if s.name.endswith(roles))


@torch.no_grad()
def entropy(model: torch.nn.Module) -> float:
    """KL(q || p) / ln 2, in bits."""
    total = 0.0
    for _, q in named_posteriors(model):
        variance = q.log_std.double().mul(2).exp()
        prior = (q.mean.double().square() + variance).mean()
        total += float((prior / variance).log().sum() / 2 / math.log(2))
    return total


@torch.no_grad()
def drawn(model: torch.nn.Module, seed: int) -> torch.nn.Module:
    """A copy whose means are a draw."""
    generator, model = torch.Generator().manual_seed(seed), copy.deepcopy(model)
    for _, q in named_posteriors(model):
        q.mean += q.log_std.exp() * torch.randn(q.mean.shape, generator=generator)
    return model


if __name__ == "__main__":
    main()
