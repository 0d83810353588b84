"""Weight sharing on images: one mean-field parent per seed, and every variant made of it.

    python benchmarks/sharing.py --root DATA --model resnet20 --weights DATA/weights/FILE
        --normalize imagenet --pretrain-epochs 20 --epochs 10 --seeds 0 1 2
    python benchmarks/sharing.py ... --vary none merge=none "blend_beyond=none outlier_mean=none"
    python benchmarks/sharing.py ... --quantize 4 2 1
    python benchmarks/sharing.py ... --validation --plain-epochs 60 --parents "lr=0.02 beta=0.003"

The parent is trained by mean-field VI, from given weights, from a plain network trained here, or
from the start. Each variant is a copy of it that was shared, fine-tuned, stored, loaded back from
its file, and then measured. Given weights have seen all training images, so that `--validation`
says nothing of them: settings are chosen with `--plain-epochs`.
"""

import argparse
import copy
import time
from dataclasses import replace
from typing import Any

import torch
from cifar import (
    Sets,
    fitted,
    in_batches,
    measure,
    network,
    network_name,
    open_sets,
    parser,
    settings,
)
from record import append_result
from stored import reopened

import pocketbayes as pb
from pocketbayes.commands.flags import options_in
from pocketbayes.commands.opening import normalised_as, with_weights


def main() -> None:
    made = parser(__doc__)
    made.set_defaults(epochs=10)
    made.add_argument("--weights", help="safetensors file of the plain network to start from")
    made.add_argument("--plain-epochs", type=int, default=0, help="train such a network instead")
    made.add_argument("--plain-lr", type=float, default=0.2)
    made.add_argument("--normalize", default="data")
    made.add_argument("--optimizer", default="sgd", choices=("sgd", "adamw"))
    made.add_argument("--pretrain-epochs", type=int, default=20)
    made.add_argument("--estimator", default="weight")
    made.add_argument("--seeds", nargs="+", type=int, default=[0])
    made.add_argument("--set", nargs="+", default=[], help="field=value for every variant")
    made.add_argument(
        "--vary", nargs="+", default=["none"], help='"field=value ..." of one variant'
    )
    made.add_argument(
        "--share-eagerly", action="store_true", help="compile the training of parents only"
    )
    made.add_argument("--quantize", nargs="*", type=int, default=[], help="bits of the stds")
    made.add_argument("--parents", nargs="+", default=["none"], help='"lr=... beta=..." of one')
    made.add_argument("--predictives", nargs="+", default=["weight", "lrt"])
    made.add_argument("--table", default="sharing")
    a = made.parse_args()
    sets = normalised(open_sets(a), a.normalize)
    for seed in a.seeds:
        plain = plain_network(a, sets, seed)
        for change in a.parents:
            family(changed(a, change), sets, copy.deepcopy(plain), seed)


def changed(a: argparse.Namespace, change: str) -> argparse.Namespace:
    """The arguments with some of them set anew."""
    pairs = [] if change == "none" else [pair.split("=", 1) for pair in change.split()]
    given = {field: type(getattr(a, field))(value) for field, value in pairs}
    return argparse.Namespace(**vars(a) | given)


def family(a: argparse.Namespace, sets: Sets, plain: torch.nn.Module, seed: int) -> None:
    """One parent, and everything that is made of it."""
    parent, cost = trained_parent(a, sets, plain, seed)
    known = {"model": network_name(a), "data": a.data, "seed": seed, "settings": settings(a)}
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
        name: in_batches(normalised_as(loader.dataset, how))
        for name in ("test", "outside")
        if (loader := getattr(sets, name)) is not None
    }
    return replace(sets, train=train, **loaders)


def plain_network(a: argparse.Namespace, sets: Sets, seed: int) -> torch.nn.Module:
    """The converted network before VI: new, with the given weights, or trained here."""
    torch.manual_seed(seed)
    net = network(a, sets)
    if a.weights:
        net = with_weights(net, a.weights)
    model = pb.bayesianize_(net, prior_std=a.prior_std, std_init=a.std_init, estimator=a.estimator)
    if a.plain_epochs:
        method = pb.Deterministic(optimizer="sgd", lr=a.plain_lr, weight_decay=a.weight_decay)
        fitted(a, sets, model, method, a.plain_epochs, seed)
    return model


def trained_parent(
    a: argparse.Namespace, sets: Sets, plain: torch.nn.Module, seed: int
) -> tuple[torch.nn.Module, dict[str, Any]]:
    """The mean-field model that everything is made of."""
    rates = {"lr": a.lr, "std_lr": a.std_lr, "weight_decay": a.weight_decay, "beta": a.beta}
    method = pb.MeanField(optimizer=a.optimizer, std_init=a.std_init, **rates)
    begin = time.perf_counter()
    result = fitted(a, sets, plain, method, a.pretrain_epochs, seed)
    return result.model, {"train_seconds": time.perf_counter() - begin}


def share(
    a: argparse.Namespace, sets: Sets, parent: torch.nn.Module, known: dict[str, Any], change: str
) -> None:
    """One variant: what sharing took, and what it gives before and after fine-tuning."""
    method = configured(a, [*a.set, *([] if change == "none" else change.split())])
    a = argparse.Namespace(**vars(a) | {"no_compile": a.no_compile or a.share_eagerly})
    model = copy.deepcopy(parent)
    begin = time.perf_counter()
    fitted(a, sets, model, method, 0, known["seed"])
    known |= {"share_seconds": time.perf_counter() - begin, "method": method.settings()}
    counts = pb.sharing_summary(model).to_dict()
    report(a, sets, model, known | {"stage": "shared"} | counts)
    if a.epochs:
        model = copy.deepcopy(parent)
        begin = time.perf_counter()
        fitted(a, sets, model, method, a.epochs, known["seed"])
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
