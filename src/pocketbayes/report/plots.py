"""Pictures of how good and how sure a model is; every function draws into given axes."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pocketbayes.errors import PocketBayesError, optional_module, printable

Numbers = NDArray[np.float64]
COLOURS = ("#3465a4", "#cc6600", "#4e9a06", "#a40000", "#75507b", "#2e8b8b", "#8f5902")


def new_figure(panels: int) -> tuple[Any, Sequence[Any]]:
    """A figure with panels side by side, and their axes; no window is opened."""
    figures = optional_module("matplotlib.figure", "report")
    figure = figures.Figure(figsize=(4.4 * panels, 3.8), layout="constrained")
    return figure, figure.subplots(1, panels, squeeze=False)[0]


def save_figure(figure: Any, path: Path) -> None:
    """Writes a picture, in the format that the file's name says."""
    try:
        figure.savefig(path, dpi=110)
    except ValueError as error:  # an unknown ending
        raise PocketBayesError(f"cannot draw {path}: {error}") from error


def as_label(name: str) -> str:
    """A name as matplotlib shows it: not as a formula, not hidden, not longer than a picture."""
    shown = shortened(printable(name)).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def shortened(name: str, most: int = 28) -> str:
    """A long name with its middle left out."""
    return name if len(name) <= most else f"{name[: most // 2]}…{name[-(most // 2 - 1) :]}"


def draw_reliability(axes: Any, confidences: Mapping[str, tuple[Numbers, Numbers]]) -> None:
    """Accuracy against confidence in ten bins, one line per model; the diagonal is perfect.

    Args:
        axes: where to draw.
        confidences: by model, the confidence of each prediction and whether it was right.
    """
    axes.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--")
    for (name, (confidence, right)), colour in zip(
        confidences.items(), itertools.cycle(COLOURS), strict=False
    ):
        middle, accuracy = _binned(confidence, right)
        axes.plot(middle, accuracy, marker="o", markersize=4, label=as_label(name), color=colour)
    axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="confidence", ylabel="accuracy")
    axes.set_title("Is it right as often as it says?", fontsize=10)
    axes.legend(frameon=False, fontsize=8)


def _binned(confidence: Numbers, right: Numbers, bins: int = 10) -> tuple[Numbers, Numbers]:
    """Mean confidence and accuracy of every bin that holds at least ten predictions."""
    place = np.clip((confidence * bins).astype(int), 0, bins - 1)
    counts = np.bincount(place, minlength=bins)
    full = counts >= 10
    sums = [np.bincount(place, values, minlength=bins)[full] for values in (confidence, right)]
    return sums[0] / counts[full], sums[1] / counts[full]


def draw_entropies(axes: Any, entropies: Mapping[str, tuple[Numbers, Numbers]]) -> None:
    """Share of inputs below each predictive entropy: solid what a model knows, dashed what not.

    Args:
        axes: where to draw.
        entropies: by model, those of data like its training data, and of other data, in nats.
    """
    for (name, pair), colour in zip(entropies.items(), COLOURS, strict=False):
        for values, style, kind in zip(pair, ("-", "--"), ("known", "unknown"), strict=True):
            share = np.arange(1, len(values) + 1) / len(values)
            label = as_label(f"{name}, {kind} inputs")
            axes.plot(np.sort(values), share, style, color=colour, label=label)
    axes.set(xlabel="predictive entropy (nats)", ylabel="share of inputs below", ylim=(0, 1.02))
    axes.set_title("Does it know what it does not know?", fontsize=10)
    below = (0.5, -0.18)
    axes.legend(frameon=False, fontsize=8, ncol=2, loc="upper center", bbox_to_anchor=below)


def draw_sizes(axes: Any, points: Mapping[str, tuple[int, float]]) -> None:
    """Accuracy against the bytes of the file on disk, one point per model."""
    for number, ((name, (size, accuracy)), colour) in enumerate(
        zip(points.items(), COLOURS, strict=False)
    ):
        place = (size / 1000, 100 * accuracy)
        axes.plot(*place, marker="o", color=colour)
        axes.annotate(  # neighbours of the list are often neighbours here: above and below
            as_label(name), place, xytext=(0, -14 if number % 2 else 8),
            textcoords="offset points", fontsize=8, ha="center",
        )  # fmt: skip
    axes.margins(x=0.35, y=0.35)
    axes.set(xlabel="file on disk (kB)", ylabel="test accuracy (%)")
    axes.set_title("How big, how good?", fontsize=10)
