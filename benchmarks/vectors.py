"""What it costs that `compress` rounds biases and norms, and what it saves.

    python benchmarks/vectors.py --root DATA --model resnet32 --weights weights/resnet32.safetensors

Networks that were published for CIFAR-10, as they are and with these numbers alone in the steps of
each tolerance: accuracy and NLL of the mean network on test images, and the bytes of these numbers.
The steps were chosen with the ResNet-20, on training images.
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from cifar import Sets, network, open_sets, parser, settings
from record import append_result
from sharing import normalised

import pocketbayes as pb
from pocketbayes.commands.opening import with_weights
from pocketbayes.compression.vectors import round_vectors_

TOLERANCES = (0.01, 0.1, 0.3, 1.0)


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--weights", type=Path, required=True)
    made.set_defaults(no_ood=True)
    a = made.parse_args()
    sets = normalised(open_sets(a), "imagenet")
    for facts in rows(a, sets):
        append_result(
            "vectors", model=a.model, data=a.data, measured_on="test", settings=settings(a), **facts
        )


def rows(a: argparse.Namespace, sets: Sets) -> Iterator[dict[str, Any]]:
    for tolerance in (None, *TOLERANCES):
        model = pb.bayesianize_(with_weights(network(a, sets), a.weights), std_init=1e-3)
        if tolerance is not None:
            round_vectors_(model, tolerance)
        known = {"tolerance": tolerance, "bytes": bytes_of_vectors(model)}
        yield known | pb.evaluate(model, sets.test, estimator="mean").to_dict()


def bytes_of_vectors(model: torch.nn.Module) -> int:
    with tempfile.TemporaryDirectory() as folder:
        size = pb.save(model, Path(folder) / "model.pocket")
    return sum(s.bytes for s in size.sections if s.name.startswith("state/"))


if __name__ == "__main__":
    main()
