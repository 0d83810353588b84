"""What the `tolerance` of `save` costs in NLL and coverage, and what it saves in bytes.

    python benchmarks/tolerance.py --root DATA
    python benchmarks/tolerance.py --root DATA --files FILE ... --data cifar10
    python benchmarks/tolerance.py --root DATA --choose

Small networks are trained with the library's defaults (but in fewer steps), stored losslessly
and at each tolerance, loaded back and measured on validation rows that chose nothing else; no test
part is opened. DATA has regression.npz, classes.npz (`regression_sets.py`, `class_sets.py`) and the
folders mnist and fashion-mnist. `--files` are stored losslessly, of networks trained on the images
of `--data` without their last 5,000. `--keep FOLDER` keeps what was trained, and takes from
there what it has.

The default is chosen by this rule, stated before these results were measured: the largest tolerance
at which, and below which, against lossless storage and averaged over splits,

- NLL rises by at most 0.001 nats on average over networks and 0.005 for each, or not by more than
  two standard errors of that rise (paired over validation rows, of which some sets have few);
- the 90% coverage of each moves away from 90% by at most a point, or two of the validation rows.

`--choose` applies it to the results.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from cifar import in_batches, open_sets, parser
from defaults import labelled
from record import RESULTS, append_result
from regression_sets import Part, opened
from torch import Tensor, nn

import pocketbayes as pb
from pocketbayes.data import ImageSet, MemoryLoader
from pocketbayes.estimators.rows import RowLoader
from pocketbayes.methods import Method
from pocketbayes.models import build_network
from pocketbayes.prediction.evaluation import Answers, answered, record_of
from pocketbayes.prediction.scores import mixture_log_density
from pocketbayes.training.defaults import suitable_batch_size

TOLERANCES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
REGRESSIONS = (
    "yacht", "energy", "production", "naval-propulsion-plant", "concrete", "friedman", "computers",
    "crime",
)  # fmt: skip
CLASSES = ("wine", "digits", "heating", "pima")
MEAN_RISE, EACH_RISE, COVERAGE, ROWS = 0.001, 0.005, 0.01, 2

Loader = Iterable[tuple[Tensor, Tensor]]


class Trained(NamedTuple):
    """A network, which one of its kind, and the validation rows."""

    name: str
    split: int
    model: nn.Module
    held: Loader


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--files", nargs="+", type=Path)
    made.add_argument("--keep", type=Path)
    made.add_argument("--only", nargs="+", help="names of networks")
    made.add_argument("--splits", type=int, default=2)
    made.add_argument("--steps", type=int, default=3000, help="of regressions")
    made.add_argument("--held", type=int, default=2000, help="images to measure on")
    made.add_argument("--choose", action="store_true")
    made.set_defaults(limit=12_500, epochs=10, validation=True, samples=20)
    a = made.parse_args()
    torch.set_num_threads(1)
    if a.choose:
        print(chosen([json.loads(line) for line in (RESULTS / "tolerance.jsonl").open()]))
        return
    for each in from_files(a) if a.files else trained(a):
        report(a, each)


def from_files(a: argparse.Namespace) -> Iterator[Trained]:
    """Stored networks, with images that they were not trained on."""
    a.limit = None
    sets = open_sets(a)
    for path in a.files:
        yield Trained(path.stem, 0, pb.load(path).to(sets.device), sets.test)


def trained(a: argparse.Namespace) -> Iterator[Trained]:
    """All small networks, or those that were asked for."""
    for name, split, prepared in [*of_images(a), *of_tables(a)]:
        if a.only is None or name in a.only:
            train, held = prepared(name, split)
            kept = a.keep and a.keep / f"{name}-{split}.pocket"
            model = pb.load(kept) if kept and kept.exists() else train()
            if kept and not kept.exists():
                a.keep.mkdir(parents=True, exist_ok=True)
                pb.save(model, kept, lossless=True)
            yield Trained(name, split, model, held)


Prepared = tuple[Callable[[], nn.Module], Loader]
Job = tuple[str, int, Callable[[str, int], Prepared]]


def of_tables(a: argparse.Namespace) -> Iterator[Job]:
    """MLPs, dense ones and with inclusion variables."""

    def values(name: str, split: int) -> Prepared:
        part = opened(a.root / "regression.npz", name.removesuffix(", spike-slab"), split, True)
        method = pb.SpikeSlab() if name.endswith("spike-slab") else None
        return partial(fitted, part, method, "gaussian", split, a.steps), [
            (part.x_test, part.y_test)
        ]

    def classes(name: str, split: int) -> Prepared:
        part = labelled(a.root / "classes.npz", name, split, True)
        part = part._replace(y=part.y[:, 0].long(), y_test=part.y_test[:, 0].long())
        return partial(fitted, part, None, "categorical", split), [(part.x_test, part.y_test)]

    for split in range(a.splits):
        for name in (*REGRESSIONS, "energy, spike-slab"):
            yield name, split, values
        for name in CLASSES:
            yield name, split, classes


def fitted(
    part: Part, method: Method | None, likelihood: str, seed: int, steps: int | None = None
) -> nn.Module:
    """As `BayesRegressor` and `BayesClassifier` do."""
    torch.manual_seed(seed)
    outputs = 1 if likelihood == "gaussian" else int(part.y.max()) + 1
    shape = (part.x.shape[1],)
    net = build_network("mlp", input_shape=shape, num_outputs=outputs, hidden=(64, 64))
    loader = RowLoader(part.x, part.y, torch.ones(len(part.x)), suitable_batch_size(len(part.x)))
    options = {"likelihood": likelihood, "seed": seed, "progress": False}
    epochs = None if steps is None else -(-steps // len(loader))
    return pb.fit(pb.bayesianize_(net), loader, method, epochs=epochs, **options).model


def of_images(a: argparse.Namespace) -> Iterator[Job]:
    """A convolutional network, and an MLP that gets sparse, pruned and shared."""

    def images(name: str, split: int) -> Prepared:
        data, *words = name.split(", ")
        sets = open_sets(argparse.Namespace(**vars(a) | {"data": data}))
        held = in_batches(sets.test.dataset.subset(range(a.held)))
        return partial(of_words, words, sets.train, a.epochs, split), held

    for name in (
        "mnist, lenet5", "mnist, mlp", "mnist, mlp, sparse", "mnist, mlp, sparse, pruned",
        "mnist, mlp, shared", "fashion-mnist, lenet5", "fashion-mnist, mlp, sparse, pruned",
    ):  # fmt: skip
        yield name, 0, images


def of_words(words: list[str], images: ImageSet, epochs: int, seed: int) -> nn.Module:
    """A network, and what is done with it."""
    loader = MemoryLoader(images, 128, shuffle=True)

    def fit(model: nn.Module, method: Method | None, epochs: int) -> nn.Module:
        return pb.fit(model, loader, method, epochs=epochs, seed=seed, progress=False).model

    torch.manual_seed(seed)
    net = build_network(words[0], input_shape=images.preprocess["shape"])
    sparse = pb.Subspace(density=0.1) if "sparse" in words else None
    model = fit(pb.bayesianize_(net), sparse, epochs)
    if "pruned" in words:
        model = fit(pb.prune_(model, 0.05), None, epochs // 2)
    if "shared" in words:
        model = fit(model, pb.Sharing(), 2)
    return model


def report(a: argparse.Namespace, each: Trained) -> None:
    """One line for lossless storage, and one for each tolerance."""
    ways: list[dict[str, Any]] = [{"lossless": True}, *({"tolerance": t} for t in TOLERANCES)]
    device = next(each.model.parameters()).device
    before: Tensor | None = None
    with tempfile.TemporaryDirectory() as folder:
        for options in ways:
            path = Path(folder) / "model.pocket"
            size = pb.save(each.model, path, **options)
            generator = torch.Generator().manual_seed(0)
            stored = pb.load(path).to(device)
            answers = answered(stored, each.held, a.samples, generator=generator)
            record, nll = record_of(answers).to_dict(), nll_of_rows(answers)
            before = nll if before is None else before
            names = ("nll", "accuracy", "rmse", "coverage_90", "num_examples", "estimator")
            append_result(
                "tolerance", network=each.name, split=each.split,
                tolerance=options.get("tolerance", 0.0), bytes=size.bytes,
                weights=size.active_weights, kl=size.kl,
                stored_within=size.stored_within, rise=float((nll - before).mean()),
                rise_error=float((nll - before).std() / len(nll) ** 0.5),
                **{name: record[name] for name in names if name in record},
            )  # fmt: skip


def nll_of_rows(answers: Answers) -> Tensor:
    """-log p(y) of each validation row."""
    pairs = list(zip(answers.predictions, answers.targets, strict=True))
    if hasattr(pairs[0][0], "probs"):
        rows = [-p.probs.double().gather(1, y.long()[:, None]).log()[:, 0] for p, y in pairs]
    else:
        rows = [-mixture_log_density(p.parts.log_prob(y)).double().flatten() for p, y in pairs]
    return torch.cat(rows).cpu()


class Change(NamedTuple):
    """What a tolerance does to one network, averaged over its splits."""

    rise: float
    error: float
    share: float
    off: float
    rows: int


def chosen(rows: list[dict[str, Any]]) -> str:
    """What each tolerance does to all networks, and the default by the rule above."""
    lines, best, still = [], None, True
    for tolerance in TOLERANCES:
        found = {name: change(rows, name, tolerance) for name in {row["network"] for row in rows}}
        rise = fmean(each.rise for each in found.values())
        error = sum(each.error**2 for each in found.values()) ** 0.5 / len(found)
        broken = sorted(name for name, each in found.items() if breaks(each))
        still = still and not broken and rise <= max(MEAN_RISE, 2 * error)
        best = tolerance if still else best
        share = fmean(each.share for each in found.values())
        lines.append(
            f"{tolerance:g}: {share:.1%} of the bytes at {TOLERANCES[0]:g}, "
            f"NLL {rise:+.5f} (standard error {error:.5f}), "
            + (f"beyond the rule: {'; '.join(broken)}" if broken else "within the rule")
        )
    return "\n".join([*lines, f"default: {best}"])


def breaks(each: Change) -> bool:
    """Whether one network is changed by more than the rule allows."""
    return each.rise > max(EACH_RISE, 2 * each.error) or each.off > max(COVERAGE, ROWS / each.rows)


def change(rows: list[dict[str, Any]], name: str, tolerance: float) -> Change:
    own, before, first = (
        [row for row in rows if (row["network"], row["tolerance"]) == (name, t)]
        for t in (tolerance, 0.0, TOLERANCES[0])
    )
    held = sum(row["num_examples"] for row in own)
    return Change(
        fmean(row["rise"] for row in own),
        sum(row["rise_error"] ** 2 for row in own) ** 0.5 / len(own),
        sum(row["bytes"] for row in own) / sum(row["bytes"] for row in first),
        abs(covered(own) - 0.9) - abs(covered(before) - 0.9),
        held,
    )


def covered(rows: list[dict[str, Any]]) -> float:
    """The 90% coverage of the validation rows of all splits; classes have none."""
    held = sum(row["num_examples"] for row in rows)
    return float(sum(row.get("coverage_90", 0.9) * row["num_examples"] for row in rows) / held)


if __name__ == "__main__":
    main()
