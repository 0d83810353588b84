"""Other libraries on the same task: network, data, epochs, prior and weight of the KL.

    pip install --no-deps --target FOLDER -r benchmarks/peers/requirements.txt
    PYTHONPATH=FOLDER python benchmarks/peers/compare.py --root DATA --epochs 60

One row each: accuracy, NLL, ECE, OOD, bytes of what must be stored (ours: the file), seconds of a
training step and of a prediction of 1,024 images x 30 samples. Peers run uncompiled, as their
examples do; so do our rows, but for those called compiled. "Weights drawn" is the way of
bayesian-torch and torch-uncertainty.
"""

import argparse
import io
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from cifar import Sets, measure, open_sets, parser, settings, train
from contestants import CONTESTANTS, Plain, Setting
from record import append_result
from stored import reopened
from timing import own_prediction_seconds, prediction_seconds, wait
from torch import Tensor

import pocketbayes as pb
from pocketbayes.data import MemoryLoader
from pocketbayes.methods import lr_scale
from pocketbayes.models import build_network
from pocketbayes.prediction.predicting import metrics

# By row: the estimator, and whether it is compiled.
OURS = {
    "pocketbayes": ("lrt", False),
    "pocketbayes, weights drawn": ("weight", False),
    "pocketbayes, compiled": ("lrt", True),
    "pocketbayes, weights drawn, compiled": ("weight", True),
}
WARMUP = 0.05


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--rows", nargs="+", default=[*OURS, *CONTESTANTS])
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--timed-images", type=int, default=1024)
    a = made.parse_args()
    sets = open_sets(a)
    for row in a.rows:
        try:
            found = ours(a, sets, row) if row in OURS else theirs(a, sets, row)
        except ImportError as error:
            print(f"{row} cannot be had: {error}", file=sys.stderr)
            continue
        known = {"row": row, "model": a.model, "data": a.data, "seed": a.seed}
        table = "peers_search" if a.validation else "peers"
        append_result(table, **known, settings=settings(a), **found)


def ours(a: argparse.Namespace, sets: Sets, row: str) -> dict[str, Any]:
    estimator, compiled = OURS[row]
    a = argparse.Namespace(**vars(a) | {"no_compile": not compiled})
    method = pb.MeanField(
        optimizer="sgd", lr=a.lr, weight_decay=a.weight_decay, beta=a.beta, std_lr=a.std_lr
    )
    result, cost = train(a, method, sets, a.seed, estimator)
    model, size = reopened(result.model, sets.device)
    x = first_images(sets, a.timed_images)
    steps = len(sets.train) // a.batch
    return {
        "stored_bytes": size.bytes,
        "train_seconds": cost["train_seconds"],
        "step_seconds": cost["seconds_per_epoch"] / steps,
        "predict_seconds": own_prediction_seconds(model, x, a.samples),
        **measure(a, model, sets),
    }


def theirs(a: argparse.Namespace, sets: Sets, row: str) -> dict[str, Any]:
    torch.manual_seed(a.seed)
    net = build_network(a.model, input_shape=sets.train.preprocess["shape"]).to(sets.device)
    setting = Setting(a.lr, a.weight_decay, a.beta, a.prior_std, a.std_init, len(sets.train))
    peer = CONTESTANTS[row](net, setting)
    begin = time.perf_counter()
    step = trained(peer, a, sets)
    peer.finish(lambda: MemoryLoader(sets.train, a.batch))
    spent = time.perf_counter() - begin
    peer.model.eval()
    x = first_images(sets, a.timed_images)
    return {
        "stored_bytes": stored_bytes(peer),
        "train_seconds": spent,
        "step_seconds": step,
        "predict_seconds": prediction_seconds(
            lambda count: peer.probs(x, count), a.samples, sets.device
        ),
        **scores(peer, a, sets),
    }


def trained(peer: Plain, a: argparse.Namespace, sets: Sets) -> float:
    """Trains with a cosine schedule after a short warm-up; seconds per step of the later half."""
    loader = MemoryLoader(sets.train, a.batch, shuffle=True, augment=True)
    total, number, begin, timed_from = a.epochs * len(loader), 0, 0.0, 0
    peer.model.train()
    for _ in range(a.epochs):
        for x, y in loader:
            if number == total // 2:
                wait(sets.device)
                begin, timed_from = time.perf_counter(), number
            for group in peer.optimizer.param_groups:
                group["lr"] = a.lr * lr_scale(number / total, WARMUP)
            peer.step(x, y)
            number += 1
    wait(sets.device)
    return (time.perf_counter() - begin) / max(1, number - timed_from)


def scores(peer: Plain, a: argparse.Namespace, sets: Sets) -> dict[str, float]:
    pairs = [(peer.probs(x, a.samples), y) for x, y in sets.test]
    probs, labels = (torch.cat(parts).float() for parts in zip(*pairs, strict=True))
    labels = labels.long()
    found = {
        "accuracy": metrics.accuracy(probs, labels),
        "nll": metrics.negative_log_likelihood(probs, labels),
        "ece": metrics.expected_calibration_error(probs, labels),
        "brier": metrics.brier_score(probs, labels),
    }
    if sets.outside is not None:
        outside = torch.cat([peer.probs(x, a.samples).float() for x, _ in sets.outside])
        found["auroc_entropy"] = metrics.auroc(entropy(probs), entropy(outside))
    return found


def entropy(probs: Tensor) -> Tensor:
    return torch.special.entr(probs.double()).sum(1)


def stored_bytes(peer: Plain) -> int:
    file = io.BytesIO()
    torch.save(peer.stored(), file)
    return file.tell()


def first_images(sets: Sets, count: int) -> Tensor:
    return torch.cat(list(_until(count, (x for x, _ in sets.test))))[:count]


def _until(count: int, batches: Iterator[Tensor]) -> Iterator[Tensor]:
    seen = 0
    for batch in batches:
        yield batch
        seen += len(batch)
        if seen >= count:
            return


if __name__ == "__main__":
    main()
