"""Networks on the way to a small one, and the files that they may become."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from pocketbayes.codec import as_stored
from pocketbayes.compression.choosing import Quality
from pocketbayes.compression.rounding import rounded
from pocketbayes.compression.traits import FINE, TOLERANCES, has_stds
from pocketbayes.prediction import Record


@dataclass(frozen=True)
class Rung:
    """A network on the way, the words for what was done to it, and what a pass costs."""

    model: nn.Module
    density: float
    words: tuple[str, ...] = ()
    epochs: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    entries: int | None = None  # of its codebook, at most
    multiplications: int | None = None
    milliseconds: float | None = None
    sensitivity: dict[str, float] = field(default_factory=dict)  # of points; see rounding.py


def tolerances_of(rung: Rung) -> tuple[float, ...]:
    """To what its files may be stored: of a codebook they are the same at all."""
    return TOLERANCES if rung.sensitivity or has_stds(rung.model) else (FINE,)


@dataclass(frozen=True)
class Candidate:
    """A file: what was done, its bytes and cost, and what comes out of it.

    Attributes:
        what: in words.
        bytes: of the file.
        record: on the validation data, by the file.
        density: share of the weights that are there.
        tolerance: nats a weight by which storing may change it.
        multiplications: of a pass over one example, zeros left out.
        milliseconds: of a pass of the mean network over one example: by the engine where it is
            installed and knows the network, else by torch.
    """

    what: str
    bytes: int
    record: Record
    density: float
    tolerance: float
    multiplications: int | None
    milliseconds: float | None
    path: Path = field(repr=False)
    rung: Rung = field(repr=False)
    reserve: int = 0  # bytes that a head will take

    def model(self) -> nn.Module:
        """What the file holds, on the CPU."""
        model = rounded(self.rung.model, self.rung.sensitivity, self.tolerance)
        return as_stored(model, tolerance=self.tolerance)[0]

    def quality(self) -> Quality:
        """By what it is compared with others."""
        r, of_values = self.record, self.record.accuracy is None
        score = -(r.rmse or 0.0) if r.accuracy is None else r.accuracy
        return Quality(self.bytes + self.reserve, self.multiplications, r.nll, score, of_values)
