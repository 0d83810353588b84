"""A progress bar over the items of a loader."""

import sys
from collections.abc import Iterable, Iterator, Sized
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


def tracked(
    items: Iterable[Any], what: str, total: int | None = None, shown: bool = True
) -> Iterator[Any]:
    """The items, with a bar on stderr that shows how many of `total` (their len) were taken.

    >>> for batch in tracked(loader, "predicting"): ...
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr),
        transient=True,
        disable=not shown,
    )
    with bar:
        yield from bar.track(items, total=total, description=what)
