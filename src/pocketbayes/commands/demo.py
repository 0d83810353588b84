"""`pocketbayes demo`: everything at once, on digits that scikit-learn brings along."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from rich.table import Table
from torch import Tensor

from pocketbayes.codec import load, prepare_directory, save
from pocketbayes.commands.predict import CONFIDENCE_THRESHOLD
from pocketbayes.commands.runs import write_text
from pocketbayes.data import ImageSet, MemoryLoader, open_dataset
from pocketbayes.layers import bayesianize_
from pocketbayes.methods import Deterministic, MeanField, Method, Sharing, Subspace
from pocketbayes.models import build_network
from pocketbayes.prediction import ClassPrediction, Record, evaluate, predict, why_unsure
from pocketbayes.report import (
    console,
    draw_entropies,
    draw_reliability,
    draw_sizes,
    new_figure,
    rows_table,
    save_figure,
)
from pocketbayes.training import fit

# What the demo trains, in the order of its table: by one method after another.
SHOWN: dict[str, tuple[Method, ...]] = {
    "deterministic": (Deterministic(),),
    "mean-field": (MeanField(),),
    "subspace": (Subspace(density=0.1),),
    "sharing": (MeanField(), Sharing(objective="rate_distortion", components=256)),
}
_LATER = 6  # every method but the first gets this part of the epochs
_SHADES = " ░▒▓█"


@dataclass(frozen=True)
class DemoOptions:
    """Options of `demo`.

    Attributes:
        out: directory for the files, the table and the plots.
        epochs: passes over the data, for each network.
        seed: determines everything.
    """

    out: Path = Path("runs/demo")
    epochs: int = 60
    seed: int = 0


@dataclass(frozen=True)
class Outcome:
    """One trained, stored and reloaded network, and what it says of digits and of photographs."""

    name: str
    record: Record
    bytes: int
    weights: int
    seconds: float
    inside: ClassPrediction
    outside: ClassPrediction

    def row(self) -> dict[str, Any]:
        """Its line of the table."""
        r = self.record
        return {
            "method": self.name,
            "accuracy": r.accuracy,
            "nll": r.nll,
            "ece": r.ece,
            "ood_auroc": r.auroc_entropy,
            "weights_kept": self.weights,
            "file_bytes": self.bytes,
            "seconds": self.seconds,
        }


def run_demo(options: DemoOptions, as_json: bool) -> None:
    """Trains each network of the demo, then writes and shows what came of it."""
    directory = prepare_directory(options.out)
    train, test = (_digits(split) for split in ("train", "test"))
    photos = open_dataset("photo-patches", "test")
    assert isinstance(photos, ImageSet)
    photos = photos.fitted(train.preprocess)
    outcomes = [
        _outcome(name, methods, (train, test, photos), directory, options)
        for name, methods in SHOWN.items()
    ]
    rows = [outcome.row() for outcome in outcomes]
    result = {"data": "digits", "ood": "photo-patches", "seed": options.seed, "rows": rows}
    write_text(directory / "table.json", json.dumps(result, indent=2) + "\n")
    _draw(outcomes, test.labels, directory / "demo.png")
    last = outcomes[-1]
    chosen = three_digits(last.inside)
    pictures = _write_pictures(test, chosen, directory)
    if as_json:
        print(json.dumps(result))
        return
    title = f"{len(test)} test digits of other writers; OOD: {len(photos)} pieces of photographs"
    console().print(rows_table(title, rows))
    console().print(_digit_table(test, chosen, last.inside))
    print(
        f"\nfiles, table.json and demo.png are in {directory}. Try:\n"
        f"  pocketbayes inspect {directory / last.name}.pocket\n"
        f"  pocketbayes predict {directory / last.name}.pocket {' '.join(map(str, pictures))}"
    )


def three_digits(pred: ClassPrediction) -> list[int]:
    """The surest digit, the surest of another class, and the most ambiguous one."""
    order = pred.entropy.argsort()
    surest = int(order[0])
    other = next(int(i) for i in order if pred.label[i] != pred.label[surest])
    return [surest, other, int(order[-1])]


def _digits(split: str) -> ImageSet:
    found = open_dataset("digits", split)
    assert isinstance(found, ImageSet)
    return found


def _outcome(
    name: str,
    methods: Sequence[Method],
    data: tuple[ImageSet, ImageSet, ImageSet],
    directory: Path,
    options: DemoOptions,
) -> Outcome:
    """Trains one network, stores it, and measures what comes back out of the file."""
    train, test, photos = data
    torch.manual_seed(options.seed)
    net = build_network("mlp", input_shape=train.images.shape[1:], num_outputs=len(train.classes))
    loader = MemoryLoader(train, 64, shuffle=True)
    model, seconds = bayesianize_(net), 0.0
    for number, method in enumerate(methods):
        epochs = options.epochs if number == 0 else max(1, options.epochs // _LATER)
        result = fit(model, loader, method, epochs=epochs, seed=options.seed, device="cpu")
        model, seconds = result.model, seconds + result.seconds
    size = save(model, directory / f"{name}.pocket")
    model = load(directory / f"{name}.pocket")
    known, unknown = MemoryLoader(test, 500), MemoryLoader(photos, 500)
    generator = torch.Generator().manual_seed(options.seed)
    record = evaluate(model, known, ood_loader=unknown, generator=generator)
    inside, outside = (predict(model, x, generator=generator) for x in (known, unknown))
    assert isinstance(inside, ClassPrediction)
    assert isinstance(outside, ClassPrediction)
    return Outcome(name, record, size.bytes, size.active_weights, seconds, inside, outside)


def _draw(outcomes: Sequence[Outcome], labels: Tensor, path: Path) -> None:
    figure, axes = new_figure(3)
    draw_reliability(
        axes[0],
        {
            o.name: (
                o.inside.confidence.double().numpy(),
                (o.inside.label == labels).double().numpy(),
            )
            for o in outcomes
        },
    )
    entropies = {
        o.name: (o.inside.entropy.double().numpy(), o.outside.entropy.double().numpy())
        for o in outcomes
    }
    draw_entropies(axes[1], entropies)
    draw_sizes(axes[2], {o.name: (o.bytes, o.record.accuracy or 0.0) for o in outcomes})
    save_figure(figure, path)


def _write_pictures(test: ImageSet, chosen: list[int], directory: Path) -> list[Path]:
    paths = [directory / f"digit-{number}.png" for number in range(1, 4)]
    for path, index in zip(paths, chosen, strict=True):
        Image.fromarray(test.images[index, 0].numpy()).save(path)
    return paths


def _digit_table(test: ImageSet, chosen: list[int], pred: ClassPrediction) -> Table:
    table = Table(title="Three test digits and how sure the network is", title_justify="left")
    for index in chosen:
        table.add_column(f"written as {test.classes[int(test.labels[index])]}")
    table.add_row(*(as_characters(test.images[index, 0]) for index in chosen))
    table.add_row(*(_caption(pred, index, test.classes) for index in chosen))
    return table


def as_characters(image: Tensor) -> str:
    """A small grey picture in shades that any terminal has."""
    shades = (image.float() / 255 * (len(_SHADES) - 1)).round().int()
    return "\n".join("".join(_SHADES[int(value)] * 2 for value in row) for row in shades)


def _caption(pred: ClassPrediction, index: int, classes: tuple[str, ...]) -> str:
    lines = []
    for label in pred.probs[index].argsort(descending=True)[:3].tolist():
        share = float(pred.probs[index, label])
        lines.append(f"{classes[label]} {'█' * round(10 * share):<10} {100 * share:5.1f} %")
    aleatoric, epistemic = float(pred.aleatoric[index]), float(pred.epistemic[index])
    sure = bool(pred.confidence[index] >= CONFIDENCE_THRESHOLD)
    verdict = "sure" if sure else why_unsure(aleatoric, epistemic, pred)
    return "\n".join([*lines, f"aleatoric {aleatoric:.2f}, epistemic {epistemic:.2f}", verdict])
