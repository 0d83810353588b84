"""What `compress` returns: the model, its file, and the front of all candidates."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from pocketbayes.codec import write_atomically
from pocketbayes.compression.candidates import Candidate

_COLUMNS = ("bytes", "multiplications", "ms", "NLL", "score", "what was done")


@dataclass(frozen=True)
class Compression:
    """What `compress` found; prints as a table.

    Attributes:
        model: the chosen model, as its file gives it back, with its one-pass head.
        before: the model as it was.
        front: all candidates, in the order in which they were made.
        chosen: the best that keeps to the limits, by draws.
        one_pass: the same with a head, measured by one pass; None: it has none.
        bytes: of the file that `save` writes.
    """

    model: nn.Module
    before: Candidate
    front: list[Candidate]
    chosen: Candidate
    one_pass: Candidate | None
    file: bytes = field(repr=False)

    @property
    def bytes(self) -> int:
        """Of the file."""
        return len(self.file)

    def save(self, path: str | os.PathLike[str]) -> int:
        """Writes the file that was measured; returns its bytes."""
        write_atomically(Path(path), lambda out: out.write(self.file))
        return self.bytes

    def rows(self) -> list[dict[str, Any]]:
        """The candidates as plain values, the smallest first."""
        return [
            {
                "what": c.what, "bytes": c.bytes, "multiplications": c.multiplications,
                "milliseconds": c.milliseconds, "density": c.density, "tolerance": c.tolerance,
                "epochs": c.rung.epochs, "chosen": c is self.chosen,
            } | c.record.to_dict()
            for c in sorted(self.front, key=lambda c: c.bytes)
        ]  # fmt: skip

    def __str__(self) -> str:
        found = self._shown()
        words = [f"before: {c.what}" if c.path == self.before.path else c.what for c in found]
        rows = [(*cells_of(c)[:-1], what) for c, what in zip(found, words, strict=True)]
        table, marks = [_COLUMNS, *rows], [False, *(c is self.chosen for c in found)]
        widths = [max(len(row[k]) for row in table) for k in range(len(_COLUMNS) - 1)]
        return "\n".join(
            ("> " if mark else "  ")
            + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=False))
            + f"  {row[-1]}"
            for row, mark in zip(table, marks, strict=True)
        )

    def _shown(self) -> list[Candidate]:
        """The chosen one, and those that no other equals in bytes, multiplications and NLL."""
        paths = {c.path for c in self.front}
        found = [*self.front, *([] if self.before.path in paths else [self.before])]
        kept = (self.before.path, self.chosen.path)
        shown = [c for c in found if c.path in kept or not any(_beats(other, c) for other in found)]
        return sorted(shown, key=lambda c: c.bytes)


def _beats(one: Candidate, other: Candidate) -> bool:
    a, b = ((c.bytes, c.multiplications or 0, round(c.record.nll, 4)) for c in (one, other))
    return a != b and all(x <= y for x, y in zip(a, b, strict=True))


def line_of(candidate: Candidate) -> str:
    """What was done, bytes and quality."""
    size, _, _, nll, score, what = cells_of(candidate)
    return f"  {what}: {size} bytes, nll {nll}, {score}"


def cells_of(c: Candidate) -> tuple[str, ...]:
    """The same as cells of a table."""
    r = c.record
    score = f"rmse {r.rmse:.4g}" if r.accuracy is None else f"accuracy {100 * r.accuracy:.2f}%"
    cost = "" if c.multiplications is None else f"{c.multiplications:,}"
    time = "" if c.milliseconds is None else f"{c.milliseconds:.3g}"
    return f"{c.bytes:,}", cost, time, f"{r.nll:.4g}", score, c.what
