"""A picture as SVG text that a page can hold."""

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pocketbayes.errors import optional_module
from pocketbayes.report.plots import new_figure
from pocketbayes.report.words import bytes_in_words


@dataclass(frozen=True)
class Chart:
    """A picture as SVG text, what it shows for those who do not see it, and how to read it."""

    title: str
    svg: str
    alt: str
    caption: str


def drawn(draw: Callable[[Any], None], title: str, alt: str, caption: str) -> Chart:
    """What `draw` puts into axes of its own."""
    with _readable(), warnings.catch_warnings():
        figure, (axes,) = new_figure(1)
        draw(axes)
        axes.set_title("")  # the page has it as text
        text = io.StringIO()
        warnings.simplefilter("ignore")  # of letters that the font lacks, of names too long
        figure.savefig(text, format="svg", dpi=110, metadata={"Date": None, "Creator": None})
    return Chart(title, text.getvalue(), alt, caption)


@contextmanager
def _readable() -> Iterator[None]:
    """Letters stay letters, and the same picture is the same text."""
    settings = {"svg.fonttype": "none", "svg.hashsalt": "pocketbayes", "font.size": 9}
    with optional_module("matplotlib", "report").rc_context(settings):
        yield


def label_bytes(axes: Any) -> None:
    """Powers of ten in words; between two of them also 2 and 5."""
    axes.xaxis.set_major_formatter(lambda size, _: bytes_in_words(size))
    low, high = axes.get_xlim()
    if high < 50 * low:
        tickers = optional_module("matplotlib.ticker", "report")
        axes.xaxis.set_minor_locator(tickers.LogLocator(subs=(2, 5)))
        axes.xaxis.set_minor_formatter(lambda size, _: bytes_in_words(size))
    else:
        axes.xaxis.set_minor_formatter("")
