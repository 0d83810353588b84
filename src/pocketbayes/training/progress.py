"""What a person sees while a model trains."""

import sys
import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_REFRESH_SECONDS = 0.5
_LINES = 20  # that a run leaves behind, about


class TrainingBar:
    """One line on stderr: epoch, batches, loss, likelihood, KL, score and speed."""

    def __init__(self, epochs: int, score: str, shown: bool) -> None:
        self.epochs, self.score = epochs, score
        self.last = 0.0
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[numbers]}"),
            console=Console(file=sys.stderr),
            disable=not shown,
            transient=True,
        )
        self.task = self.bar.add_task("", total=None, numbers="")

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.bar.stop()

    def is_due(self) -> bool:
        """Whether the numbers are old enough to be worth a wait for the device."""
        return not self.bar.disable and time.monotonic() - self.last > _REFRESH_SECONDS

    def show(self, epoch: int, batch: int, batches: int | None, row: dict[str, Any]) -> None:
        """Draws the line anew."""
        self.last = time.monotonic()
        self.bar.update(
            self.task,
            description=f"epoch {epoch + 1}/{self.epochs}",
            completed=batch,
            total=batches,
            numbers=self.line(row),
        )

    def close_epoch(self, epoch: int, row: dict[str, Any]) -> None:
        """Leaves a line behind for a finished epoch; of many epochs, for twenty."""
        every = max(1, self.epochs // _LINES)
        if not self.bar.disable and ((epoch + 1) % every == 0 or epoch + 1 == self.epochs):
            names = [f"val_{name}" for name in ("nll", self.score, "ece") if f"val_{name}" in row]
            validation = "".join(f"  {name} {row[name]:.4f}" for name in names)
            self.bar.console.print(
                f"epoch {epoch + 1}/{self.epochs}  {self.line(row)}{validation}",
                highlight=False,
                soft_wrap=True,
            )

    def line(self, row: dict[str, Any]) -> str:
        """The numbers as text."""
        return (
            f"loss {row['loss']:.4f}  nll {row['nll']:.4f}  KL {row['kl']:,.0f} nats  "
            f"{self.score} {row[self.score]:.4f}  {row['examples_per_second']:,.0f} examples/s"
        )
