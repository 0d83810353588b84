"""Weight sharing on CIFAR-10: one mean-field parent per seed, and every variant made of it.

    python benchmarks/sharing.py --root DATA --model resnet20 --weights DATA/weights/FILE
        --normalize imagenet --pretrain-epochs 20 --epochs 10 --seeds 0 1 2
    python benchmarks/sharing.py ... --vary none merge=none "blend_beyond=none outlier_mean=none"
    python benchmarks/sharing.py ... --quantize 4 2 1

The parent is trained by mean-field VI, from given weights or from the start. Each variant is a copy
of it that was shared, trained on, stored, loaded back from its file, and then measured.
"""

import argparse
import copy
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from cifar import Sets, measure, open_sets, parser, reopened, settings
from record import append_result

import pocketbayes as pb
from pocketbayes.checkpoints import NAME
from pocketbayes.commands.opening import normalised_as, with_weights
from pocketbayes.data import MemoryLoader
from pocketbayes.flags import options_in
from pocketbayes.models import build_network


def main() -> None:
    made = parser(__doc__)
    made.set_defaults(epochs=10)
    made.add_argument("--weights", help="safetensors file of the plain network to start from")
    made.add_argument("--normalize", default="data")
    made.add_argument("--optimizer", default="sgd", choices=("sgd", "adamw"))
    made.add_argument("--pretrain-epochs", type=int, default=20)
    made.add_argument("--estimator", default="weight")
    made.add_argument("--seeds", nargs="+", type=int, default=[0])
    made.add_argument("--set", nargs="+", default=[], help="field=value for every variant")
    made.add_argument(
        "--vary", nargs="+", default=["none"], help='"field=value ..." of one variant'
    )
    made.add_argument("--quantize", nargs="*", type=int, default=[], help="bits of the stds")
    made.add_argument("--parent", help="store the parents here, and take them from here")
    made.add_argument("--predictives", nargs="+", default=["weight", "lrt"])
    made.add_argument("--table", default="sharing")
    a = made.parse_args()
    sets = normalised(open_sets(a), a.normalize)
    for seed in a.seeds:
        parent, cost = trained_parent(a, sets, seed)
        known = {"model": a.model, "seed": seed, "settings": settings(a)}
        known |= {"measured_on": "validation" if a.validation else "test"}
        report(a, sets, parent, known | {"row": "mean-field"} | cost)
        for bits in a.quantize:
            model = copy.deepcopy(parent)
            done = vars(pb.quantize_(model, std_bits=bits))
            report(a, sets, model, known | {"row": f"int8, {bits} bits"} | {"packed": done})
        for change in a.vary:
            share(a, sets, parent, known | {"row": "sharing", "change": change}, change)


def normalised(sets: Sets, how: str) -> Sets:
    """The sets with the means and stds that the given weights were trained with."""
    train = normalised_as(sets.train, how)
    loaders = {
        name: MemoryLoader(normalised_as(loader.dataset, how), 500)
        for name in ("test", "outside")
        if (loader := getattr(sets, name)) is not None
    }
    return replace(sets, train=train, **loaders)


def trained_parent(
    a: argparse.Namespace, sets: Sets, seed: int
) -> tuple[torch.nn.Module, dict[str, Any]]:
    """The mean-field model that everything is made of."""
    torch.manual_seed(seed)
    net = build_network(a.model)
    if a.weights:
        net = with_weights(net, a.weights)
    net = net.to(sets.device, memory_format=torch.channels_last)
    model = pb.bayesianize_(net, prior_std=a.prior_std, std_init=a.std_init, estimator=a.estimator)
    method = pb.MeanField(
        optimizer=a.optimizer, lr=a.lr, weight_decay=a.weight_decay, beta=a.beta, std_lr=a.std_lr
    )
    loader = MemoryLoader(sets.train, a.batch, shuffle=True, augment=True)
    out = f"{a.parent}-{seed}" if a.parent else None
    begin = time.perf_counter()
    result = pb.fit(
        model, loader, method, epochs=a.pretrain_epochs, seed=seed, progress=False, out=out,
        resume=out is not None and (Path(out) / NAME).exists(), compile=not a.no_compile,
    )  # fmt: skip
    return result.model, {"train_seconds": time.perf_counter() - begin}


def share(
    a: argparse.Namespace, sets: Sets, parent: torch.nn.Module, known: dict[str, Any], change: str
) -> None:
    """One variant: what sharing took, and what it gives before and after training on."""
    method = configured(a, [*a.set, *([] if change == "none" else change.split())])
    loader = MemoryLoader(sets.train, a.batch, shuffle=True, augment=True)
    options = {"seed": known["seed"], "progress": False}
    model = copy.deepcopy(parent)
    begin = time.perf_counter()
    pb.fit(model, loader, method, epochs=0, **options)
    known |= {"share_seconds": time.perf_counter() - begin, "method": method.settings()}
    counts = pb.sharing_summary(model).to_dict()
    report(a, sets, model, known | {"stage": "shared"} | counts)
    if a.epochs:
        model = copy.deepcopy(parent)
        begin = time.perf_counter()
        pb.fit(model, loader, method, epochs=a.epochs, compile=not a.no_compile, **options)
        cost = {"train_seconds": time.perf_counter() - begin}
        counts = pb.sharing_summary(model).to_dict()
        report(a, sets, model, known | {"stage": "trained on"} | counts | cost)


def configured(a: argparse.Namespace, pairs: list[str]) -> pb.Sharing:
    flags = options_in(pb.Sharing)
    given: dict[str, Any] = {"beta": a.beta}
    for field, value in (pair.split("=", 1) for pair in pairs):
        flag = flags[field]
        given[field] = None if value == "none" and field != "merge" else flag.kind(value)
    return pb.Sharing(**given)


def report(
    a: argparse.Namespace, sets: Sets, model: torch.nn.Module, known: dict[str, Any]
) -> None:
    stored, size = reopened(model, sets.device)
    for estimator in a.predictives:
        append_result(
            a.table, **known, file_bytes=size.bytes, **measure(a, stored, sets, estimator)
        )


if __name__ == "__main__":
    main()
