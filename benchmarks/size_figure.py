"""Draws accuracy against the bytes of the file: ResNet-18 on CIFAR-10, ours and the papers'.

    python benchmarks/size_figure.py

Writes docs/images/accuracy_against_bytes.svg and .png from the JSON lines under benchmarks/results/
and the published figures in benchmarks/pages/published.py. New results need no change here: they
are named after their fields, and labels find their own places.
"""

from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from label_places import Boxes, Label, box_of, boxes_along, no_boxes, place_labels
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pages.common import grouped
from pages.published import PUBLISHED, Published
from pages.size_points import Files, deterministic_network, measured_files

from pocketbayes.report.words import bytes_in_words

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "accuracy_against_bytes"

DOTS = 150  # per inch
ACCURACIES = (89.7, 95.9)  # of the axis; what lies outside is named in the picture
REFERENCES = {"float32 network": 44.7e6, "float32 posterior": 89.4e6}

# Okabe and Ito's colours, which the colour-blind can tell apart; shapes say the same again.
COLOURS = {"mean-field": "#0072B2", "subspace": "#D55E00", "pruned": "#007A5A"}
OTHER, PAPERS = "#8A3B6C", "0.35"
SHAPES = {"trained": "o", "pruned": "v", "shared": "s"}
STEPS = {
    "trained": "file, as trained",
    "pruned": "pruned",
    "shared": "weights share a table; small: trained on",
}


def main() -> None:
    """Draws, writes and lists what is shown."""
    files = measured_files()
    write_figure(files)
    for kind in files:
        print(f"{kind.size:>12,.0f} bytes  {kind.accuracy:.2f}%  {kind.name}")


def write_figure(files: Sequence[Files] | None = None, path: Path = PICTURE) -> None:
    """Writes the picture in both formats; the same results give the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "pocketbayes"}):
        figure = drawn(measured_files() if files is None else files)
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None, "Creator": None})
        figure.savefig(path.with_suffix(".png"), dpi=DOTS, metadata={"Software": None})


def drawn(files: Sequence[Files]) -> Figure:
    """The whole picture."""
    figure = Figure(figsize=(9, 5.6), dpi=DOTS)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.07, 0.2, 0.915, 0.73))
    network = deterministic_network()
    everything = [*files, *([network] if network else [])]
    inside = [kind for kind in everything if is_inside(kind.accuracy)]
    published = [point for point in PUBLISHED if is_inside(point.accuracy)]
    set_axes(axes, inside, published)
    marks = [
        draw_references(axes),
        *(draw_published(axes, point) for point in published),
        *(draw_files(axes, kind) for kind in inside),
        *(draw_series(axes, series) for series in in_series(inside)),
        draw_absent(axes, everything),
    ]
    place_labels(axes, [*labels_of(inside), *map(label_of_published, published)], np.vstack(marks))
    draw_legend(figure, {kind.step for kind in inside}, all(kind.is_coded for kind in inside))
    return figure


def is_inside(accuracy: float) -> bool:
    """Whether the axis goes there."""
    return ACCURACIES[0] < accuracy < ACCURACIES[1]


def set_axes(axes: Any, files: Sequence[Files], published: Sequence[Published]) -> None:
    """Limits, ticks and titles; labels are placed by them, so they come first."""
    sizes = [*REFERENCES.values(), *(p.size for p in published)]
    sizes += [size for kind in files for size in (kind.limit or kind.size, kind.size)]
    axes.set(xscale="log", xlim=(min(sizes) / 1.5, max(sizes) * 1.5), ylim=ACCURACIES)
    ticks = [n * 10**power for power in range(3, 9) for n in (1, 2, 5)]
    axes.set_xticks([t for t in ticks if min(sizes) / 1.5 < t < max(sizes) * 1.5])
    axes.xaxis.set_major_formatter(lambda value, _: bytes_in_words(value))
    axes.xaxis.minorticks_off()
    axes.tick_params(labelsize=8.5)
    axes.grid(axis="y", color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("file size (logarithmic)", fontsize=9.5)
    axes.set_ylabel("test accuracy (%)", fontsize=9.5)
    axes.set_title("ResNet-18 on CIFAR-10: accuracy against bytes", fontsize=11, loc="left")


def draw_references(axes: Any) -> Boxes:
    """What the numbers take as they are."""
    marks = []
    for name, size in REFERENCES.items():
        axes.axvline(size, color="0.6", linewidth=0.8, linestyle=(0, (4, 2)), zorder=0)
        words = axes.text(
            size, ACCURACIES[0] + 0.95, f" {name}, {bytes_in_words(size)}", rotation=90,
            fontsize=7.5, color="0.35", ha="right", va="bottom",
        )  # fmt: skip
        marks += [box_of(words), boxes_along(axes, [(size, y) for y in ACCURACIES], 1)]
    return np.vstack(marks)


def draw_published(axes: Any, point: Published) -> Boxes:
    """A paper's point: full if it is the paper's own method."""
    face = PAPERS if point.own else "white"
    look = {"marker": "D", "markersize": 5 if point.own else 4, "color": PAPERS}
    axes.plot(point.size, point.accuracy, markerfacecolor=face, markeredgewidth=0.8, **look)
    return boxes_along(axes, [(point.size, point.accuracy)], 3.5)


def draw_files(axes: Any, kind: Files) -> Boxes:
    """Files of one kind: mean and range, the bits-back limit, and what came of training on."""
    colour, shape = colour_of(kind), SHAPES[kind.step]
    face = colour if kind.is_coded else lighter(colour)
    size, accuracy = kind.size, kind.accuracy
    marks = [boxes_along(axes, [(size, accuracy)], 4.5)]
    if kind.after:
        places = [(kind.after.size, kind.after.accuracy), (size, accuracy)]
        axes.plot(*zip(*places, strict=True), color=colour, linewidth=0.8, linestyle=":")
        axes.plot(*places[0], shape, color=lighter(colour), markersize=3.5)
        marks += [boxes_along(axes, places, 1), boxes_along(axes, places[:1], 2.5)]
    if kind.limit:
        axes.plot([kind.limit, size], [accuracy] * 2, color=colour, linewidth=0.7, zorder=1)
        axes.plot(kind.limit, accuracy, shape, color=colour, markerfacecolor="white", markersize=5)
        marks.append(boxes_along(axes, [(kind.limit, accuracy), (size, accuracy)], 1))
        marks.append(boxes_along(axes, [(kind.limit, accuracy)], 3.5))
    if len(kind.accuracies) > 1:
        ends = [(size, min(kind.accuracies)), (size, max(kind.accuracies))]
        axes.plot(*zip(*ends, strict=True), "_-", color=colour, linewidth=1, markersize=5)
        wide = [min(kind.all_bytes), max(kind.all_bytes)]
        axes.plot(wide, [accuracy] * 2, color=colour, linewidth=1)
        marks.append(boxes_along(axes, ends, 2.5))
    look = {"color": colour, "markerfacecolor": face, "markersize": 7 if kind.is_coded else 6}
    axes.plot(size, accuracy, shape, markeredgewidth=0.8, zorder=3, **look)
    return np.vstack(marks)


def colour_of(kind: Files) -> str:
    """By the method that trained the network; a pruned one has its own."""
    return COLOURS["pruned"] if kind.is_pruned else COLOURS.get(kind.origin, OTHER)


def lighter(colour: str) -> tuple[float, ...]:
    """The same mixed with twice as much white."""
    return tuple(1 - (1 - part) / 3 for part in mpl.colors.to_rgb(colour))


def in_series(files: Sequence[Files]) -> list[list[Files]]:
    """Kinds of one name together, the smallest first: they differ by their wanted size."""
    groups = grouped(files, lambda kind: (kind.name, kind.is_coded)).values()
    return [sorted(group, key=lambda kind: kind.size) for group in groups]


def draw_series(axes: Any, series: Sequence[Files]) -> Boxes:
    """A line through files of one name."""
    places = [(kind.size, kind.accuracy) for kind in series]
    axes.plot(*zip(*places, strict=True), color=colour_of(series[0]), linewidth=1.2, alpha=0.6)
    return boxes_along(axes, places, 1)


def labels_of(files: Sequence[Files]) -> list[Label]:
    """Name and size of coded files, names of others; a series is named once.

    Coded files come first: theirs are the best places.
    """
    labels = []
    for series in sorted(in_series(files), key=lambda series: not series[0].is_coded):
        for kind in series:
            name = kind.name if kind is series[0] else ""
            words = [name, bytes_in_words(kind.size)] if kind.is_coded else [name]
            style = {"color": colour_of(kind), "fontsize": 8.5 if kind.is_coded else 7}
            labels.append(Label(", ".join(filter(None, words)), kind.size, kind.accuracy, style))
    return [label for label in labels if label.words]


def label_of_published(point: Published) -> Label:
    """Its name."""
    style = {"fontsize": 8 if point.own else 7, "color": PAPERS}
    return Label(point.name, point.size, point.accuracy, style)


def draw_absent(axes: Any, files: Sequence[Files]) -> Boxes:
    """Names what lies outside the axis."""
    all_stages = [stage for kind in files for stage in (kind, kind.after) if stage]
    absent = [kind for kind in all_stages if not is_inside(kind.accuracy)]
    if not absent:
        return no_boxes()
    lines = [f"{kind.name}: {bytes_in_words(kind.size)}, {kind.accuracy:.1f}%" for kind in absent]
    words = "\n".join(["outside the axis:", *lines])
    note = axes.text(0.01, 0.02, words, transform=axes.transAxes, fontsize=7, color="0.35")
    return box_of(note)


def draw_legend(figure: Figure, steps: Set[str], all_coded: bool) -> None:
    """What marks mean, under the axes, where no point can be."""
    older = {} if all_coded else {"file of plain float32 (older format)": _key("o", "0.75")}
    marks = {words: _key(SHAPES[step]) for step, words in STEPS.items() if step in steps} | {
        "its bits-back limit, KL / ln 2": _key("o", "white", linestyle="-", linewidth=0.7),
        **older,
        "mean and range of seeds": _key("|", markersize=9),
        "published, bytes derived": _key("D", PAPERS, color=PAPERS, markersize=5),
        "quoted in those papers": _key("D", "white", color=PAPERS, markersize=4),
    }
    figure.legend(
        list(marks.values()), list(marks), loc="lower center", ncol=3, frameon=False, fontsize=8,
        columnspacing=2.0, handletextpad=0.6,
    )  # fmt: skip


def _key(marker: str, face: str = "0.2", **look: Any) -> Line2D:
    style = {"color": "0.2", "linestyle": "none", "markerfacecolor": face} | look
    return Line2D([], [], marker=marker, **style)


if __name__ == "__main__":
    main()
