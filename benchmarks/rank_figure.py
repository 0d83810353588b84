"""Draws mean ranks of methods over data sets, and which of them chance may have ordered.

    python benchmarks/rank_figure.py

Writes docs/images/ranks.svg and .png from the regressions. After Demsar 2006: by the Friedman test
p is the chance of such ranks if no method differs; by the Nemenyi test two differ at 5% if their
mean ranks are apart by

    q sqrt(k (k + 1) / (6 n))

for k methods on n sets, q the 95% point of the studentised range of k, divided by sqrt 2.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from pages.render import Row, grouped, mean, results
from scipy.stats import friedmanchisquare, rankdata, studentized_range

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "ranks"
DOTS = 150  # per inch
WHOLE = {
    "deterministic", "MC dropout", "ensemble of 5", "Bayes by Backprop", "RigL 0.05",
    "subspace 0.1", "spike-and-slab 0.05", "mean-field", "chain, shared",
}  # fmt: skip


class Ranking(NamedTuple):
    """Methods by mean rank, the best first, and what tells them apart."""

    title: str
    means: dict[str, float]
    difference: float
    p: float


def main() -> None:
    """Draws, writes and lists what is shown."""
    write_figure()
    for found in rankings():
        print(f"{found.title}: p = {found.p:.1e}, critical difference {found.difference:.2f}")
        for method, rank in found.means.items():
            print(f"  {rank:.2f}  {method}")


def rankings() -> list[Ranking]:
    """By NLL: the defaults on all regressions, and all kinds of methods on the UCI sets."""
    return [
        ranking("Nothing tuned, {} regressions, by NLL", results("intervals"), lambda row: True),
        ranking("Every method, {} UCI sets, by NLL", results("side_by_side_uci"), _is_shown),
    ]


def _is_shown(row: Row) -> bool:
    by_weights = row["family"] in ("subspace", "bayes-by-backprop", "chain")
    return row["row"] in WHOLE and row["estimator"] in ("none", "weight" if by_weights else "lrt")


def ranking(title: str, rows: Iterable[Row], wanted: Callable[[Row], bool]) -> Ranking:
    """Mean ranks over sets of the mean NLL over splits."""
    cells = grouped(filter(wanted, rows), lambda row: (row["set"], row["row"]))
    sets = sorted({where for where, _ in cells})
    methods = sorted({method for _, method in cells})
    nll = np.array([[mean([r["nll"] for r in cells[s, m]]) for m in methods] for s in sets])
    ranks = rankdata(nll, axis=1).mean(0)
    best_first = {methods[i]: float(ranks[i]) for i in np.argsort(ranks)}
    difference = critical_difference(len(methods), len(sets))
    p = float(friedmanchisquare(*nll.T).pvalue)
    return Ranking(title.format(len(sets)), best_first, difference, p)


def critical_difference(methods: int, sets: int) -> float:
    """How far apart mean ranks must be to differ at 5% (Nemenyi)."""
    q = studentized_range.ppf(0.95, methods, np.inf) / 2**0.5
    return float(q * (methods * (methods + 1) / (6 * sets)) ** 0.5)


def alike(found: Ranking) -> list[list[str]]:
    """The largest groups of which no two methods differ; those of one method are left out."""
    names, groups = list(found.means), list[list[str]]()
    for begin, first in enumerate(names):
        near = [n for n in names[begin:] if found.means[n] - found.means[first] < found.difference]
        if len(near) > 1 and not any(set(near) <= set(group) for group in groups):
            groups.append(near)
    return groups


def write_figure(path: Path = PICTURE) -> None:
    """Writes the picture in both formats; the same results give the same bytes."""
    with mpl.rc_context({"svg.hashsalt": "pocketbayes"}):
        figure = drawn(rankings())
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None, "Creator": None})
        figure.savefig(path.with_suffix(".png"), dpi=DOTS, metadata={"Software": None})


def drawn(found: list[Ranking]) -> Figure:
    """One panel below the other."""
    heights = [4 + len(one.means) for one in found]
    figure = Figure(figsize=(8, 0.21 * sum(heights)), dpi=DOTS)
    FigureCanvasAgg(figure)
    for axes, one in zip(figure.subplots(len(found), 1, height_ratios=heights), found, strict=True):
        draw(axes, one)
    figure.subplots_adjust(left=0.24, right=0.97, top=0.95, bottom=0.08, hspace=0.45)
    return figure


def draw(axes: Any, found: Ranking) -> None:
    """A point for each method, and below a bar for each group that chance may have ordered."""
    names = list(found.means)
    for number, group in enumerate(alike(found)):
        x = found.means[group[0]], found.means[group[-1]]
        axes.plot(x, [len(names) - 0.35 + 0.35 * number] * 2, color="#0072B2", linewidth=2.5)
    axes.plot(list(found.means.values()), range(len(names)), "o", color="black", markersize=5)
    for row, (name, rank) in enumerate(found.means.items()):
        bold = "bold" if name in ("pocketbayes", "mean-field") else "normal"
        axes.annotate(f"{rank:.1f}", (rank, row), xytext=(7, -3), textcoords="offset points",
                      fontsize=8, weight=bold)  # fmt: skip
    axes.set_yticks(range(len(names)), names, fontsize=8.5)
    axes.set(xlim=(0.8, len(names) + 0.2), ylim=(len(names) + 0.8, -0.7))
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="x", color="0.93", linewidth=0.8)
    axes.set_axisbelow(True)
    words = f"{found.title}: mean rank; bars join what is nearer than {found.difference:.2f}"
    axes.set_title(words, fontsize=9.5, loc="left", x=-0.3)


if __name__ == "__main__":
    main()
