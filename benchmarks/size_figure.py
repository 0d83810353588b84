"""Draws accuracy against the bytes of the file: ResNet-18 on CIFAR-10, ours and the papers'.

    python benchmarks/size_figure.py

Writes docs/images/accuracy_against_bytes.svg and .png from the headline rows that have a file, and
the published figures in pages/published.py. Colours are the milliseconds of one prediction of one
image on two cores of a CPU: of a pruned file one pass of the C engine, else torch, by the draws of
its row. Labels find their own places.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation, Text
from pages.headline import RESNET_18
from pages.published import PUBLISHED
from pages.render import Line, mean, results, rows_of

from pocketbayes.report.words import bytes_in_words

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "accuracy_against_bytes"
DOTS = 150  # per inch
ACCURACIES = (89.7, 96.6)  # of the axis
REFERENCES = {"float32 network": 44.7e6, "float32 posterior": 89.4e6}

SHAPES = {
    "deterministic": "X", "mean-field": "o", "Subspace": "v", "Sharing": "s", "chain": "*",
    "pruned": "P", "ensemble": "p",
}  # fmt: skip
COLOURS, MILLISECONDS = mpl.colormaps["plasma"], LogNorm(2, 5000)
WORDS = "0.15"
PAPERS = "0.45"
LEFT_OUT = ("larger learning rate", "fresh seeds")  # lie where the same without does
DISTANCES = (8, 14, 22, 32, 44, 58)  # points from a mark to its label
BAR = (0.12, 0.27, 0.33, 0.025)  # of the colours: left, bottom, width, height
MARGIN = 9  # pixels around a mark that labels leave free
ANGLES = np.radians([0, 180, 90, 270, 45, 135, 225, 315])
GROUND = {"facecolor": "white", "edgecolor": "none", "pad": 0.3}  # hides lines behind words


@dataclass(frozen=True)
class Mark:
    """A file: its name, mean bytes and accuracy in percent, and how it is drawn."""

    name: str
    size: float
    accuracy: float
    shape: str
    milliseconds: float | None = None
    is_ours: bool = True

    @property
    def colour(self) -> Any:
        """By its milliseconds; grey where nobody measured them."""
        known = self.milliseconds
        return PAPERS if known is None else COLOURS(MILLISECONDS(known))


def main() -> None:
    """Draws, writes and lists what is shown."""
    write_figure()
    for mark in ours():
        print(f"{mark.size:>12,.0f} bytes  {mark.accuracy:.2f}%  {mark.name}")


def ours() -> list[Mark]:
    """One mark for each headline row whose file was measured."""
    marks: dict[str, Mark] = {}
    for line in RESNET_18:
        found = rows_of(line)
        sizes = [row["file_bytes"] for row in found if "file_bytes" in row]
        if not sizes or line.words[0] in marks or line.words[0].endswith(LEFT_OUT):
            continue
        shape = next(shape for name, shape in SHAPES.items() if line.words[0].startswith(name))
        accuracy = 100 * mean([row["accuracy"] for row in found])
        marks[line.words[0]] = Mark(
            line.words[0], mean(sizes), accuracy, shape, milliseconds_of(line)
        )
    return list(marks.values())


def milliseconds_of(line: Line) -> float | None:
    """Of one prediction of one image, as the row predicts; of a pruned file by one pass."""
    name, by = line.words[0], line.words[2]
    files = {row["about"]: row for row in results("runtime_files") if row["batch"] == 1}
    ways = {row["row"]: row for row in results("passes") if _is_measured(row)}
    plain = [row["plain_ms"] for row in files.values() if row["cores"] == 2]
    pruned = files.get(f"ResNet-18, {name[name.find('pruned') :]}")
    if not plain:
        return None
    if name.startswith("deterministic"):
        return mean(plain)
    if name.startswith(("pruned", "ensemble")):
        members = 3 if name.startswith("ensemble") else 1
        return members * pruned["ratio"] * mean(plain) if pruned else None
    way = ways.get(f"30 draws, {by}")
    return way["ratio"] * mean(plain) if way else None


def _is_measured(row: dict[str, Any]) -> bool:
    return row["network"] == "resnet18" and row["batch"] == 1


def published() -> list[Mark]:
    """One mark for each published result."""
    return [Mark(p.name, p.size, p.accuracy, "D", is_ours=False) for p in PUBLISHED]


def write_figure(path: Path = PICTURE) -> None:
    """Writes the picture in both formats; the same results give the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "pocketbayes"}):
        figure = drawn([*ours(), *published()])
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None, "Creator": None})
        figure.savefig(path.with_suffix(".png"), dpi=DOTS, metadata={"Software": None})


def drawn(marks: Sequence[Mark]) -> Figure:
    """The whole picture."""
    figure = Figure(figsize=(9, 5.2), dpi=DOTS)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.07, 0.11, 0.915, 0.82))
    set_axes(axes, marks)
    explain_colours(figure)
    for mark in marks:
        draw(axes, mark)
    place_labels(axes, marks)
    return figure


def explain_colours(figure: Figure) -> None:
    """A bar of them, where no mark is."""
    into = figure.add_axes(BAR)
    bar = figure.colorbar(ScalarMappable(MILLISECONDS, COLOURS), into, orientation="horizontal")
    bar.ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f} ms")
    bar.ax.tick_params(labelsize=8)
    bar.ax.set_title("one prediction of one image, two CPU cores", fontsize=8.5, loc="left")


def set_axes(axes: Any, marks: Sequence[Mark]) -> None:
    """Limits, ticks and titles; labels are placed by them, so they come first."""
    sizes = [*REFERENCES.values(), *(mark.size for mark in marks)]
    low, high = min(sizes) / 3, max(sizes) * 1.5
    axes.set(xscale="log", xlim=(low, high), ylim=ACCURACIES)
    ticks = [n * 10**power for power in range(3, 9) for n in (1, 2, 5)]
    axes.set_xticks([tick for tick in ticks if low < tick < high])
    axes.xaxis.set_major_formatter(lambda value, _: bytes_in_words(value))
    axes.xaxis.minorticks_off()
    axes.grid(axis="y", color="0.92", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("file size (logarithmic)")
    axes.set_ylabel("test accuracy (%)")
    axes.set_title("ResNet-18 on CIFAR-10: accuracy against bytes", fontsize=11, loc="left")
    for name, size in REFERENCES.items():
        axes.axvline(size, color="0.6", linewidth=0.8, linestyle=(0, (4, 2)), zorder=0)
        axes.text(size, ACCURACIES[0] + 1.5, f" {name}", rotation=90, fontsize=7.5, ha="right")
    looks = {"linestyle": "none", "color": PAPERS, "marker": "D", "markersize": 4.5}
    grey = Line2D([], [], label="published by others; bytes derived from their counts", **looks)
    axes.legend(handles=[grey], loc="lower left", fontsize=8.5, frameon=False)


def draw(axes: Any, mark: Mark) -> None:
    """A file."""
    look = {"color": mark.colour, "marker": mark.shape, "linestyle": "none"}
    look |= {"markeredgecolor": WORDS, "markeredgewidth": 0.5} if mark.is_ours else {}
    axes.plot(mark.size, mark.accuracy, markersize=8 if mark.is_ours else 4.5, **look)


def place_labels(axes: Any, marks: Sequence[Mark]) -> list[Any]:
    """Writes every name where it covers least, ours first; the annotations."""
    notes: list[Any] = []
    points = in_pixels(axes, [(mark.size, mark.accuracy) for mark in marks])
    taken = [np.array([*point - MARGIN, *point + MARGIN]) for point in points]
    taken += [line_box(axes, size) for size in REFERENCES.values()]
    taken.append(axes.get_legend().get_window_extent().extents)
    for mark in marks:
        words = f"{mark.name}, {bytes_in_words(mark.size)}" if mark.is_ours else mark.name
        note = axes.annotate(
            words, (mark.size, mark.accuracy), xytext=(0, 0), textcoords="offset points",
            fontsize=8.5 if mark.is_ours else 7, ha="center", va="center",
            color=WORDS if mark.is_ours else PAPERS,
            bbox=GROUND, zorder=10 - len(notes) / 100,  # a line passes under earlier words
            arrowprops={"arrowstyle": "-", "color": PAPERS, "linewidth": 0.6},
        )  # fmt: skip
        box = box_of(note)
        moves = offsets(box)
        best = min(moves, key=lambda move: _cost(box + np.tile(move, 2), move, taken, axes))
        note.set_position(tuple(best * 72 / DOTS))
        taken.append(box + np.tile(best, 2))
        notes.append(note)
    return notes


def line_box(axes: Any, size: float) -> Any:
    """A vertical line."""
    (x, _), (_, low, _, high) = in_pixels(axes, [(size, ACCURACIES[0])])[0], axes.bbox.extents
    return np.array([x - MARGIN / 2, low, x + MARGIN / 2, high])


def box_of(note: Annotation) -> Any:
    """The words of an annotation, without its line."""
    note.update_positions(note.figure.canvas.get_renderer())
    return Text.get_window_extent(note).extents


def in_pixels(axes: Any, places: Sequence[tuple[float, float]]) -> Any:
    """Places of the data as they are drawn."""
    return axes.transData.transform(np.reshape(places, (-1, 2)))


def offsets(box: Any) -> list[Any]:
    """How far a label may be moved from its mark, the nearest first."""
    half = (box[2:] - box[:2]) / 2
    ways = np.round(np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1), 9)
    return [d * DOTS / 72 * way + np.sign(way) * half for d in DISTANCES for way in ways]


def _cost(box: Any, move: Any, taken: Sequence[Any], axes: Any) -> float:
    """Square pixels that a label covers or that lie outside, and a little for its distance."""
    area = float(np.prod(box[2:] - box[:2]))
    outside = area - overlap(box, axes.bbox.extents)
    return sum(overlap(box, other) for other in taken) + outside + 0.05 * float(np.hypot(*move))


def overlap(one: Any, other: Any) -> float:
    """Square pixels that two boxes have in common."""
    sides = np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2])
    return float(np.prod(np.maximum(sides, 0)))


if __name__ == "__main__":
    main()
