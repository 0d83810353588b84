"""What one pass keeps of thirty draws: stored networks, distilled on their training images.

    python benchmarks/distillation.py --root DATA --files A.pocket B.pocket
    python benchmarks/distillation.py --root DATA --files A.pocket --cutout --seeds 0 1 2

For each file and seed: rows of draws, of the mean network and of one pass, on clean images (with
scores for images from elsewhere) and on corrupted ones; then the means over corruptions.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from cifar import OUTSIDE, Sets, in_batches, open_sets
from corruptions import file_facts, made_worse, opened
from record import append_result

import pocketbayes as pb
from pocketbayes.data import CORRUPTIONS, ImageSet, MemoryLoader
from pocketbayes.layers.bayesian import estimator_of
from pocketbayes.layers.description import describe

TABLE = "distillation"
SOME = ("gaussian_noise", "motion_blur", "fog", "brightness", "contrast", "jpeg_compression")
SHOWN = ("accuracy", "nll", "ece", "auroc_entropy", "auroc_epistemic", "auroc_max_prob")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--root", type=Path, required=True)
    made.add_argument("--files", type=Path, nargs="+", required=True)
    made.add_argument("--data", default="cifar10", choices=OUTSIDE)
    made.add_argument("--epochs", type=int, default=5)
    made.add_argument("--batch", type=int, default=512)
    made.add_argument("--draws", type=int, default=8, help="of the network for each batch")
    made.add_argument("--lr", type=float, default=1e-2)
    made.add_argument("--seeds", type=int, nargs="+", default=[0])
    made.add_argument("--samples", type=int, default=30)
    made.add_argument("--names", nargs="*", default=list(SOME), choices=CORRUPTIONS)
    made.add_argument("--severities", type=int, nargs="+", default=[2, 5])
    made.add_argument("--cutout", action="store_true", help="blank a square of training images")
    made.add_argument("--limit", type=int, help="images per set, for a dry run")
    made.add_argument("--validation", action="store_true", help="on 5,000 training images")
    made.set_defaults(crop_digits=False, no_ood=False)
    return made


def main() -> None:
    a = parser().parse_args()
    sets = open_sets(a)
    test = sets.test.dataset
    for path in a.files:
        for seed in a.seeds:
            model = opened(path, sets.device)
            facts = file_facts(path, model) | {"data": a.data, "limit": a.limit}
            facts |= taught(a, model, sets, seed)
            found = list(rows(a, model, sets, test))
            for row in found:
                append_result(TABLE, **facts, **row)
            show(path, seed, found)


def taught(a: argparse.Namespace, model: torch.nn.Module, sets: Sets, seed: int) -> dict[str, Any]:
    """Distils the model; what that took, in time and bytes."""
    images = fitted(model, sets.train)
    loader = MemoryLoader(images, a.batch, shuffle=True, augment=True)
    begin = time.perf_counter()
    with half(sets.device):
        pb.distill_(model, loader, a.epochs, num_samples=a.draws, lr=a.lr, seed=seed)
    seconds = time.perf_counter() - begin
    with tempfile.TemporaryDirectory() as folder:
        sections = pb.save(model, Path(folder) / "model.pocket").sections
    head = sum(s.bytes for s in sections if s.name.startswith("state/one_pass_"))
    return {
        "seed": seed, "epochs": a.epochs, "batch": a.batch, "draws": a.draws, "lr": a.lr,
        "cutout": a.cutout, "distill_seconds": seconds, "head_bytes": head,
        "one_pass": describe(model).one_pass,
    }  # fmt: skip


def rows(
    a: argparse.Namespace, model: torch.nn.Module, sets: Sets, test: ImageSet
) -> Iterator[dict[str, Any]]:
    """One for each estimator on each kind of images; severity 0 are the images as they are."""
    cases = [("none", 0), *((name, severity) for name in a.names for severity in a.severities)]
    outside = sets.outside
    if outside is not None:
        outside = in_batches(fitted(model, outside.dataset))
    for name, severity in cases:
        images = test if severity == 0 else made_worse(test, name, severity, 0)
        loader = in_batches(fitted(model, images))
        for estimator in (estimator_of(model), "mean", "one_pass"):
            begin = time.perf_counter()
            with half(sets.device):
                record = pb.evaluate(
                    model, loader, a.samples, outside if severity == 0 else None,
                    torch.Generator().manual_seed(0), estimator,
                )  # fmt: skip
            seconds = time.perf_counter() - begin
            what = {"corruption": name, "severity": severity, "evaluate_seconds": seconds}
            yield what | record.to_dict()


def fitted(model: torch.nn.Module, images: ImageSet) -> ImageSet:
    """The images as this model was trained to see them."""
    preprocess = describe(model).preprocess
    return images if preprocess is None else images.fitted(preprocess)


def half(device: str) -> torch.autocast:
    return torch.autocast(device, torch.bfloat16, enabled=device == "cuda")


def show(path: Path, seed: int, found: list[dict[str, Any]]) -> None:
    """Clean images, and means over corruptions, by estimator."""
    for clean in (True, False):
        some = [row for row in found if (row["severity"] == 0) == clean]
        for estimator in dict.fromkeys(row["estimator"] for row in some):
            mine = [row for row in some if row["estimator"] == estimator]
            means = {
                key: sum(row[key] for row in mine) / len(mine) for key in SHOWN if key in mine[0]
            }
            numbers = "  ".join(f"{key} {value:.4f}" for key, value in means.items())
            kind = "clean" if clean else "corrupted"
            print(f"{path.name} seed {seed} {kind:<9} {estimator:<8} {numbers}")


if __name__ == "__main__":
    main()
