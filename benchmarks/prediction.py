"""How long the models in files take to predict 1,024 images x 30 samples on this machine.

    python benchmarks/prediction.py A.pocket B.pocket
    python benchmarks/prediction.py FOLDER --predictives lrt weight

A folder stands for all its files. Each is loaded, warmed up with two samples, and timed `--repeats`
times; the fastest counts. A model without random weights is timed once, whatever the predictives.
Images are drawn: time depends on sizes only. Nothing else should run meanwhile.
"""

import argparse
from pathlib import Path

import torch
from record import append_result
from timing import own_prediction_seconds
from torch import nn

import pocketbayes as pb
from pocketbayes.prediction.predictives import predictive_of


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("paths", nargs="+", type=Path)
    made.add_argument("--images", type=int, default=1024)
    made.add_argument("--samples", type=int, default=30)
    made.add_argument("--repeats", type=int, default=2)
    made.add_argument("--predictives", nargs="+", choices=("lrt", "weight"))
    made.add_argument("--table", default="prediction")
    a = made.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for path in [file for given in a.paths for file in files(given)]:
        model = pb.load(path).to(device, memory_format=torch.channels_last)
        is_random = predictive_of(model, None) != "none"
        for predictive in (a.predictives if is_random else None) or [None]:
            report(a, path, model, device, predictive)


def files(path: Path) -> list[Path]:
    return sorted(path.glob("*.pocket")) if path.is_dir() else [path]


def report(
    a: argparse.Namespace, path: Path, model: nn.Module, device: str, predictive: str | None
) -> None:
    """One line."""
    summary = pb.inspect(path)
    x = torch.randn(a.images, *summary.options["input_shape"], device=device)
    spent = own_prediction_seconds(model, x, a.samples, predictive, repeats=a.repeats)
    append_result(
        a.table, file=path.name, model=summary.network, estimator=predictive_of(model, predictive),
        families=summary.families, file_bytes=summary.bytes, images=a.images,
        samples=a.samples, predict_seconds=spent,
    )  # fmt: skip


if __name__ == "__main__":
    main()
