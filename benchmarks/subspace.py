"""Sparse subspace VI and RigL on CIFAR-10: one row per method, density and seed.

    python benchmarks/subspace.py --root DATA --density 0.05 --seeds 0 1 2 --epochs 200
    python benchmarks/subspace.py --root DATA --set criterion=magnitude --set new_std=eps
    python benchmarks/subspace.py --root DATA --vary criterion=snr std_init=0.01 growth=mean

`--set` changes every run; `--vary` makes one run more per change (`none` is the run as it is), in
one process, so that they share compiled code. Each model is stored, loaded back from its file, and
then measured with both predictives.
"""

import argparse
import itertools

import torch
from cifar import Sets, measure, open_sets, parser, settings, train
from record import append_result
from stored import reopened

import pocketbayes as pb
from pocketbayes.commands.flags import options_in
from pocketbayes.methods import METHODS, Method


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--methods", nargs="+", default=["subspace"], choices=("subspace", "rigl"))
    made.add_argument("--density", nargs="+", type=float, default=[0.05])
    made.add_argument("--seeds", nargs="+", type=int, default=[0])
    made.add_argument("--estimator", default="weight")
    made.add_argument("--set", nargs="+", default=[], action="extend", help="field=value")
    made.add_argument("--vary", nargs="+", default=["none"], help="field=value, one run each")
    made.add_argument("--predictives", nargs="+", default=["weight", "lrt"])
    made.add_argument("--table", default="subspace")
    a = made.parse_args()
    sets = open_sets(a)
    for density in a.density:
        for name in a.methods:
            torch.compiler.reset()  # compiled code fits one density
            for change, seed in itertools.product(a.vary, a.seeds):
                b = changed(a, change)
                run(b, sets, method(b, name, density), seed)


def changed(a: argparse.Namespace, change: str) -> argparse.Namespace:
    """The arguments with one of them, or one field of the method, set anew."""
    b = argparse.Namespace(**vars(a))
    field, _, value = change.partition("=")
    if change == "none":
        pass
    elif field in vars(a):
        setattr(b, field, type(getattr(a, field))(value))
    else:
        b.set = [*a.set, change]
    return b


def method(a: argparse.Namespace, name: str, density: float) -> Method:
    known = {"density": density, "optimizer": "sgd", "lr": a.lr, "weight_decay": a.weight_decay}
    if name == "subspace":
        known |= {"beta": a.beta, "std_lr": a.std_lr, "std_init": a.std_init}
    flags = options_in(METHODS[name])
    for field, value in (pair.split("=", 1) for pair in a.set):
        flag = flags[field]
        simple = flag.kind is str or flag.shape != "single"
        known[field] = flag.parsed(value if simple else flag.kind(value), "--set ")
    return METHODS[name](**known)


def run(a: argparse.Namespace, sets: Sets, method: Method, seed: int) -> None:
    result, cost = train(a, method, sets, seed, a.estimator)
    stored, size = reopened(result.model, sets.device)
    posteriors = [q for _, q in pb.named_posteriors(result.model)]
    known = {
        "method": type(method).__name__,
        "density": method.density,  # type: ignore[attr-defined]
        "active_weights": size.active_weights,
        "weights": size.weights,
        "file_bytes": size.bytes,
        "seed": seed,
        "settings": settings(a) | method.settings(),
        "measured_on": "validation" if a.validation else "test",
    }
    random = any(q.is_random for q in posteriors)
    for estimator in a.predictives if random else ("mean",):
        append_result(a.table, **known, **cost, **measure(a, stored, sets, estimator))


if __name__ == "__main__":
    main()
