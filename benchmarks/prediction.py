"""How long the models in files take to predict 1,024 images x 30 samples on this machine.

    python benchmarks/prediction.py FOLDER/*.pocket

Each file is loaded, warmed up with two samples, and timed `--repeats` times; the fastest counts.
Images are drawn: time depends on sizes only. Nothing else should run meanwhile.
"""

import argparse
from pathlib import Path

import torch
from record import append_result
from timing import own_prediction_seconds

import pocketbayes as pb


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("paths", nargs="+", type=Path)
    made.add_argument("--images", type=int, default=1024)
    made.add_argument("--samples", type=int, default=30)
    made.add_argument("--repeats", type=int, default=2)
    made.add_argument("--table", default="prediction")
    a = made.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for path in a.paths:
        summary = pb.inspect(path)
        model = pb.load(path).to(device, memory_format=torch.channels_last)
        x = torch.randn(a.images, *summary.options["input_shape"], device=device)
        spent = own_prediction_seconds(model, x, a.samples, repeats=a.repeats)
        append_result(
            a.table, file=path.name, model=summary.network, estimator=summary.estimator,
            families=summary.families, file_bytes=summary.bytes, images=a.images,
            samples=a.samples, predict_seconds=spent,
        )  # fmt: skip


if __name__ == "__main__":
    main()
