"""Candidates of a compression: bytes, cost and quality of each, as a picture and a table."""

import math
from collections.abc import Sequence
from typing import Any

from pocketbayes.report.canvas import Chart, drawn, label_bytes
from pocketbayes.report.tried import Tried

COLUMNS = ("what was done", "bytes", "multiplications", "ms", "NLL", "score")


def front_rows(found: Sequence[Tried]) -> list[list[str]]:
    """Cells of a table, a line each; the chosen one is marked."""
    return [
        [
            f"{one.what} (chosen)" if one.chosen else one.what, f"{one.bytes:,.0f}",
            _shown(one.multiplications, ",.0f"), _shown(one.milliseconds, ".3g"),
            f"{one.nll:.4g}", one.score,
        ]
        for one in found
    ]  # fmt: skip


def _shown(value: float, how: str) -> str:
    return "" if math.isnan(value) else format(value, how)


def front_chart(name: str, found: Sequence[Tried]) -> Chart:
    """NLL against bytes; the colour is what a pass multiplies."""
    costs = [one.multiplications for one in found]
    is_costed = not any(map(math.isnan, costs))

    def draw(axes: Any) -> None:
        where = [one.bytes for one in found], [one.nll for one in found]
        if is_costed:
            points = axes.scatter(*where, c=costs, cmap="viridis", s=22)
            axes.figure.colorbar(points, ax=axes, label="multiplications of a pass")
        else:
            axes.plot(*where, "o", markersize=4)
        for one in found:
            if one.chosen:
                axes.plot(
                    one.bytes, one.nll, "o", markersize=11, fillstyle="none", color="#c00",
                    label="chosen",
                )  # fmt: skip
                axes.legend(frameon=False, fontsize=8)
        axes.set(xscale="log", xlabel="file on disk", ylabel="NLL of the validation part")
        label_bytes(axes)

    return drawn(
        draw,
        f"{name}: what was tried to make it small?",
        f"NLL against the bytes of {len(found)} candidates",
        "Each point is a file, stored, loaded and measured on the validation part.",
    )
