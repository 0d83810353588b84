"""What one pass keeps of thirty draws: stored networks, distilled on their training images.

    python benchmarks/distillation.py --root DATA --files A.pocket B.pocket
    python benchmarks/distillation.py --root DATA --files A.pocket --cutout --seeds 0 1 2

The files are of `side_by_side.py --families bayes-by-backprop`, with `--cutout --epochs 60
--weight-decay .001 --beta .003` for the ResNet-18, `--optimizer adamw --lr .002 --weight-decay 0
--prior-std .2 --beta .03 --epochs 30` for LeNet-5 and `--model lstm`, and `--cutout --optimizer
adamw --lr .001 --weight-decay .05 --beta .003 --std-lr .001 --epochs 40` for the ViT.

For each file and seed: draws, the mean network and one pass, on clean images (with scores for
images from elsewhere), and the means over all corruptions.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from cifar import SHUFFLED, Sets, in_batches, open_sets
from corruptions import file_facts, made_worse, opened
from record import append_result

import pocketbayes as pb
from pocketbayes.data import CORRUPTIONS, ImageSet, MemoryLoader
from pocketbayes.layers.bayesian import estimator_of
from pocketbayes.layers.description import describe

TABLE = "one_pass"
SOME = ("gaussian_noise", "motion_blur", "fog", "brightness", "contrast", "jpeg_compression")
SHOWN = ("accuracy", "nll", "ece", "auroc_entropy", "auroc_epistemic", "auroc_max_prob")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--root", type=Path, required=True)
    made.add_argument("--files", type=Path, nargs="+", required=True)
    made.add_argument("--data", default="cifar10", choices=SHUFFLED)
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
            for row in summed(list(rows(a, model, sets, test))):
                append_result(TABLE, **facts, **row)
                numbers = "  ".join(f"{key} {row[key]:.4f}" for key in SHOWN if key in row)
                print(
                    f"{path.name} seed {seed} {row['images']:<12} {row['estimator']:<8} {numbers}"
                )


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
            with half(sets.device):
                record = pb.evaluate(
                    model, loader, a.samples, outside if severity == 0 else None,
                    torch.Generator().manual_seed(0), estimator,
                )  # fmt: skip
            yield {"severity": severity} | record.to_dict()


def fitted(model: torch.nn.Module, images: ImageSet) -> ImageSet:
    """The images as this model was trained to see them."""
    preprocess = describe(model).preprocess
    return images if preprocess is None else images.fitted(preprocess)


def half(device: str) -> torch.autocast:
    return torch.autocast(device, torch.bfloat16, enabled=device == "cuda")


def summed(found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """For each estimator the clean images, and the means over the corrupted sets."""
    for clean in (True, False):
        some = [row for row in found if (row["severity"] == 0) == clean]
        for estimator in dict.fromkeys(row["estimator"] for row in some):
            mine = [row for row in some if row["estimator"] == estimator]
            known = [key for key in SHOWN if key in mine[0]]
            means = {key: sum(row[key] for row in mine) / len(mine) for key in known}
            images = "clean" if clean else f"{len(mine)} corrupted"
            samples = mine[0]["num_samples"]
            yield {"images": images, "estimator": estimator, "num_samples": samples} | means


if __name__ == "__main__":
    import recurrent  # noqa: F401  (adds the network "lstm")

    main()
