"""What an export made, how large it is, and how near it comes."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_MOST_TIMES = 2.0  # as large as the .pocket file


@dataclass(frozen=True)
class Footprint:
    """What a model takes of a microcontroller.

    Attributes:
        flash_bytes: of all tables.
        ram_bytes: of all buffers.
        measured_flash: of tables, code and what it needs of math.h, linked for a Cortex-M4; None:
            arm-none-eabi-gcc is not there.
        measured_ram: the same of RAM, the stack apart.
        exact: whether means have 16 bits.
    """

    flash_bytes: int
    ram_bytes: int
    measured_flash: int | None
    measured_ram: int | None
    exact: bool

    def told(self) -> list[str]:
        """As lines."""
        lines = [
            f"Flash: {self.flash_bytes:,} bytes of tables. RAM: {self.ram_bytes:,} bytes of "
            "buffers, and a stack of less than 1 kB.",
        ]
        if self.measured_flash is not None:
            lines.append(
                f"Linked for a Cortex-M4 by -Os: {self.measured_flash:,} bytes of flash with code "
                f"and functions of math.h, {self.measured_ram:,} bytes of RAM."
            )
        return lines


@dataclass(frozen=True)
class Exported:
    """The record of one export; prints as a few lines.

    Attributes:
        path: the file that was written.
        to: its format.
        estimator: how its answers are made.
        num_samples: draws, or points of a Gaussian, behind each answer.
        outputs: names of its answers.
        bytes: its size.
        pocket_bytes: that of the .pocket file of the same model.
        graph_bytes: what of the file is no number of the model.
        compared: the largest difference of an answer from that of `predict` on the example, run by
            onnxruntime or, of C, compiled by cc; None: it draws, or that is not there.
        int8_change: with int8, the largest change of each answer on the example.
        footprint: flash and RAM, of C.
        left_out: answers that the format cannot give, and why.
    """

    path: Path
    to: str
    estimator: str
    num_samples: int
    outputs: tuple[str, ...]
    bytes: int
    pocket_bytes: int
    graph_bytes: int
    compared: float | None = None
    int8_change: dict[str, float] | None = None
    left_out: str = ""
    footprint: Footprint | None = None

    @property
    def why_larger(self) -> str:
        """Why the file is more than twice the .pocket file; empty: it is not."""
        if self.bytes <= _MOST_TIMES * self.pocket_bytes:
            return ""
        if self.to == "web":
            return f"{self.graph_bytes:,} bytes are the engine and the page"
        if self.int8_change is not None:
            return "int8 weights and their scales stand in the file as onnxruntime keeps them"
        if self.graph_bytes > self.bytes / 2:
            return f"{self.graph_bytes:,} bytes are the graph, which a .pocket file does without"
        return "codes take whole bytes each, where those of a .pocket file take a few bits"

    def facts(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self) | {"path": str(self.path), "why_larger": self.why_larger}

    def __str__(self) -> str:
        if self.footprint is not None:
            return self._told_of_c(self.footprint)
        times = f"{self.bytes / self.pocket_bytes:.2f} times the .pocket file"
        why = f": {self.why_larger}" if self.why_larger else ""
        lines = [
            f"{self.path}: {self.bytes:,} bytes, {times}{why}",
            f"answers by {self.estimator}{self._drawn()}: {', '.join(self.outputs)}",
        ]
        if self.compared is not None:
            lines.append(f"at most {self.compared:.1e} from predict on the example")
        if self.int8_change is not None:
            told = ", ".join(f"{name} {change:.2g}" for name, change in self.int8_change.items())
            lines.append(f"int8 changed on the example, at most: {told}")
        return "\n".join([*lines, *filter(None, [self.left_out])])

    def _drawn(self) -> str:
        """How many draws of the network; a page may make them, if no estimator is named."""
        draws = self.estimator not in ("mean", "moments", "one_pass")
        return f", {self.num_samples} draws" if draws else ""

    def _told_of_c(self, size: Footprint) -> str:
        lines = [
            f"{self.path} and {self.path.with_suffix('.h').name}",
            f"answers by {self.estimator}: {', '.join(self.outputs)}",
            *size.told(),
        ]
        if self.compared is not None:
            bits = "16" if size.exact else "8; exact keeps 16"
            lines.append(
                f"at most {self.compared:.1e} from predict on the example (bits of a mean: {bits})"
            )
        return "\n".join([*lines, *filter(None, [self.left_out])])
