"""`pocketbayes demo`: everything at once, on digits that scikit-learn brings along."""

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from torch import Tensor, nn

from pocketbayes.codec import load, prepare_directory
from pocketbayes.commands.demo_steps import SHOWN, trained
from pocketbayes.commands.portable import saved_portably
from pocketbayes.commands.predict import CONFIDENCE_THRESHOLD
from pocketbayes.commands.runs import write_text
from pocketbayes.data import ImageSet, MemoryLoader, open_dataset
from pocketbayes.deploy import export
from pocketbayes.layers import one_thread
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

_BATCH, _EXAMPLES = 128, 64
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
    epochs: int = 32
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
            "aurc": r.aurc,
            "ood_auroc": r.auroc_entropy,
            "weights_kept": self.weights,
            "file_bytes": self.bytes,
            "passes": 1 if r.estimator in ("none", "one_pass") else r.num_samples,
            "training_s": self.seconds,
        }


class CountedLoader(MemoryLoader):
    """A `MemoryLoader` that says when a pass over the data begins."""

    def __init__(self, dataset: ImageSet, batch_size: int, on_pass: Callable[[], None]) -> None:
        super().__init__(dataset, batch_size, shuffle=True)
        self.on_pass = on_pass

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        self.on_pass()
        return super().__iter__()


def run_demo(options: DemoOptions, as_json: bool) -> None:
    """Trains each network of the demo, then writes and shows what came of it."""
    directory = prepare_directory(options.out)
    train, test = with_shifts(_digits("train")), _digits("test")
    photos = open_dataset("photo-patches", "test")
    assert isinstance(photos, ImageSet)
    data = train, test, photos.fitted(train.preprocess)
    with one_thread():
        outcomes = _outcomes(data, directory, options)
    rows = [outcome.row() for outcome in outcomes]
    result = {"data": "digits", "ood": "photo-patches", "seed": options.seed, "rows": rows}
    write_text(directory / "table.json", json.dumps(result, indent=2) + "\n")
    _draw(outcomes, test.labels, directory / "demo.png")
    last = outcomes[-1]
    chosen = three_digits(last.inside)
    pictures = _write_pictures(test, chosen, directory)
    page = _write_page(test, chosen, last.name, directory)
    if as_json:
        print(json.dumps(result))
        return
    title = (
        f"{len(test)} test digits of other writers; OOD: {len(photos)} pieces of photographs\n"
        f"(accuracies are uncertain by {_accuracy_error(outcomes[0].record):.1%}, one std)"
    )
    console().print(rows_table(title, rows))
    console().print(_digit_table(test, chosen, last.inside))
    print(what_next(last, chosen[-1], directory, pictures))
    print(f"Draw digits for it, in a browser, without network: {page}")


def what_next(kept: Outcome, refused: int, directory: Path, pictures: Sequence[Path]) -> str:
    """The digit that the network refuses to judge, the file to keep, and two commands to try."""
    path, sure = directory / f"{kept.name}.pocket", float(kept.inside.confidence[refused])
    answer = "refuses to judge" if sure < CONFIDENCE_THRESHOLD else "is least sure of"
    return (
        f"\nIt {answer} {pictures[-1].name}: {sure:.0%} sure, and its doubt is "
        f"{_reason(kept.inside, refused)}.\n"
        f"Yours to keep: {path}, {kept.bytes:,} bytes; all else is beside it. Try:\n"
        f"  pocketbayes inspect {path}\n"
        f"  pocketbayes predict {path} {' '.join(map(str, pictures))}"
    )


def _accuracy_error(record: Record) -> float:
    """One standard error of an accuracy a measured on N examples: sqrt(a (1 - a) / N)."""
    accuracy = record.accuracy or 0.0
    return math.sqrt(accuracy * (1 - accuracy) / record.num_examples)


def _reason(pred: ClassPrediction, index: int) -> str:
    return why_unsure(float(pred.aleatoric[index]), float(pred.epistemic[index]), pred)


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


def with_shifts(digits: ImageSet) -> ImageSet:
    """The digits, and each of them shifted by one pixel to the four sides."""
    height, width = digits.images.shape[2:]
    framed = nn.functional.pad(digits.images, (1, 1, 1, 1))
    places = ((1, 1), (0, 1), (2, 1), (1, 0), (1, 2))
    images = [framed[:, :, y : y + height, x : x + width] for y, x in places]
    return replace(digits, images=torch.cat(images), labels=digits.labels.repeat(len(places)))


def _outcomes(
    data: tuple[ImageSet, ImageSet, ImageSet], directory: Path, options: DemoOptions
) -> list[Outcome]:
    """One network after another, under one bar over the epochs of all."""
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(),
        console=Console(file=sys.stderr), transient=True,
    )  # fmt: skip
    epochs = {name: step.epochs(options.epochs) for name, step in SHOWN.items()}
    outcomes, done = [], 0
    with bar:
        task = bar.add_task("", total=sum(epochs.values()))
        for name in SHOWN:
            bar.update(task, description=f"training {name}", completed=done)
            loader = CountedLoader(data[0], _BATCH, lambda: bar.advance(task))
            model, seconds = trained(SHOWN[name], loader, directory, options.epochs, options.seed)
            outcomes.append(_measured(name, model, seconds, data, directory, options.seed))
            done += epochs[name]
    return outcomes


def _measured(
    name: str,
    model: nn.Module,
    seconds: float,
    data: tuple[ImageSet, ImageSet, ImageSet],
    directory: Path,
    seed: int,
) -> Outcome:
    """Stores a network, and measures what comes back out of the file."""
    example, tolerance = data[0].batch([0])[0], SHOWN[name].tolerance
    size = saved_portably(model, directory / f"{name}.pocket", example, tolerance=tolerance)
    model = load(directory / f"{name}.pocket")
    known, unknown = (MemoryLoader(part, 500) for part in data[1:])
    generator = torch.Generator().manual_seed(seed)
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


def _write_page(test: ImageSet, chosen: list[int], name: str, directory: Path) -> Path:
    """The page that asks the network, with these digits and some others to choose from."""
    examples = test.batch([*chosen, *range(_EXAMPLES)])[0]
    return export(
        directory / f"{name}.pocket", directory / "demo.html", "web", example=examples
    ).path


def _digit_table(test: ImageSet, chosen: list[int], pred: ClassPrediction) -> Table:
    table = Table(title="Three test digits, judged by one-pass", title_justify="left")
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
    verdict = "sure" if sure else _reason(pred, index)
    return "\n".join([*lines, f"aleatoric {aleatoric:.2f}, epistemic {epistemic:.2f}", verdict])
