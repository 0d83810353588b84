"""Pictures of weights: the (mean, std) plane, densities by layer, confidence by class."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pocketbayes.report.plots import COLOURS, Numbers, as_label

_SHOWN = 20_000  # weights drawn as points
_OUTLIERS, _BLENDS, _INLIERS = "#cc0000", "#edd400", "#3465a4"


def draw_plane(
    axes: Any,
    weights: tuple[Numbers, Numbers],
    outliers: Sequence[int] | Numbers = (),
    blends: Sequence[int] | Numbers = (),
    components: tuple[Numbers, Numbers | None] | None = None,
) -> None:
    """Weights in the (mean, std) plane, with the components that they share.

    Args:
        axes: where to draw.
        weights: mean and std of each.
        outliers: their positions; red.
        blends: places of those between two components; yellow.
        components: their means [K, 2], and covariances (xx, xy, yy) for ellipses of 1 (solid) and
            2 (dotted) standard deviations, or None.
    """
    kinds = np.zeros(len(weights[0]), dtype=np.int8)
    kinds[np.asarray(blends, dtype=np.int64)] = 1
    kinds[np.asarray(outliers, dtype=np.int64)] = 2
    generator = np.random.default_rng(0)
    named = (("shared", _INLIERS), ("blended", _BLENDS), ("outliers", _OUTLIERS))
    for kind, (name, colour) in enumerate(named):
        place = np.flatnonzero(kinds == kind)
        shown = place if len(place) <= _SHOWN else generator.choice(place, _SHOWN, replace=False)
        if len(place):
            axes.plot(
                weights[0][shown], weights[1][shown], ".", color=colour, markersize=2,
                alpha=0.25 if kind == 0 else 0.7, rasterized=True, label=f"{name}: {len(place):,}",
            )  # fmt: skip
    if components is not None:
        _draw_components(axes, *components)
    axes.set(xlabel="mean of a weight", ylabel="its standard deviation")
    axes.set_title("Which weights share, which stand out?", fontsize=10)
    axes.legend(frameon=False, fontsize=8, markerscale=4)


def _draw_components(axes: Any, centers: Numbers, covariances: Numbers | None) -> None:
    axes.plot(
        centers[:, 0], centers[:, 1], ".", color="black", markersize=2.5,
        label=f"components: {len(centers):,}",
    )  # fmt: skip
    if covariances is None:
        return
    angle = np.linspace(0, 2 * np.pi, 49)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    for times, style in ((1, "-"), (2, ":")):
        lines = [center[:, None] + times * _root(c) @ circle
                 for center, c in zip(centers, covariances, strict=True)]  # fmt: skip
        gap = np.full((2, 1), np.nan)  # one line with gaps is drawn far faster than many
        joined = np.concatenate([np.concatenate([line, gap], 1) for line in lines], 1)
        axes.plot(*joined, style, color="black", linewidth=0.5, alpha=0.6)


def _root(covariance: Numbers) -> Numbers:
    xx, xy, yy = covariance
    values, vectors = np.linalg.eigh(np.array([[xx, xy], [xy, yy]]))
    root: Numbers = vectors * np.sqrt(values.clip(0))
    return root


def draw_weight_densities(axes: Any, layers: Mapping[str, Numbers], most: int = 7) -> None:
    """Density of the means of each layer; of many layers, some from the first to the last."""
    chosen = _spread_out(layers, most)
    wide = max(float(np.quantile(np.abs(layers[name]), 0.99)) for name in chosen) or 1.0
    edges = np.linspace(-wide, wide, 121)
    for name, colour in zip(chosen, COLOURS, strict=False):
        density, _ = np.histogram(layers[name], edges)
        share = density / max(1, len(layers[name])) / np.diff(edges)
        middle = (edges[1:] + edges[:-1]) / 2
        axes.plot(middle, share, color=colour, label=as_label(name), linewidth=1)
    axes.set(xlabel="mean of a weight", ylabel="density", yscale="log")
    axes.set_title("How do the layers differ?", fontsize=10)
    axes.legend(frameon=False, fontsize=7)


def draw_weight_shares(axes: Any, layers: Mapping[str, Numbers], most: int = 7) -> None:
    """Share of each layer's means that are at most so large, for weights that share few values.

    A density of those would be a comb.
    """
    for name, colour in zip(_spread_out(layers, most), COLOURS, strict=False):
        value = np.sort(layers[name])
        share = np.arange(1, len(value) + 1) / max(1, len(value))
        ends = np.r_[value[1:] != value[:-1], True][: len(value)]
        axes.step(
            value[ends], share[ends], where="post", color=colour, label=as_label(name), linewidth=1
        )
    axes.set(xlabel="mean of a weight", ylabel="share of weights up to it", ylim=(0, 1.02))
    axes.set_title("How do the layers differ?", fontsize=10)
    axes.legend(frameon=False, fontsize=7)


def _spread_out(layers: Mapping[str, Numbers], most: int) -> list[str]:
    names = list(layers)
    return [names[i] for i in np.unique(np.linspace(0, len(names) - 1, most).astype(int))]


def draw_confidences(axes: Any, confidence: Numbers, labels: Numbers, names: Sequence[str]) -> None:
    """Box plot of the confidence of predictions by true class, with its mean above."""
    groups = [confidence[labels == k] for k in range(len(names))]
    axes.boxplot(groups, showfliers=False, medianprops={"color": COLOURS[1]})
    for place, values in enumerate(groups, 1):
        if len(values):
            axes.annotate(f"{values.mean():.2f}", (place, 1.02), ha="center", fontsize=7)
    shown = [as_label(name) for name in names]
    axes.set_xticks(range(1, len(names) + 1), shown, rotation=45, ha="right", fontsize=8)
    axes.set(ylim=(0, 1.08), ylabel="confidence")
    axes.set_title("How sure is it, class by class?", fontsize=10)
