"""What a file holds, without building its network."""

from dataclasses import asdict, dataclass
from typing import Any

from pocketbayes.codec.container import Container
from pocketbayes.errors import printable


@dataclass(frozen=True)
class Section:
    """One stored array."""

    name: str
    coding: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class FileSummary:
    """What one file holds; prints as a table.

    Attributes:
        bytes: the file's size.
        network: the name of the library's network, or None: `load` then needs a `net`.
        options: that network's options.
        members: networks in it; more than 1 for an ensemble.
        families: number of weights by family of posterior.
        weights: number of weights that have a posterior.
        active_weights: how many of them are there; sparse posteriors lack the others.
        bits_per_weight: 8 bytes / weights, everything in the file included.
        ratio_to_fp32: the bytes of these weights as plain 32-bit numbers, over the file's.
        sections: the stored arrays.
    """

    bytes: int
    sha256: str
    version: int
    network: str | None
    options: dict[str, Any]
    members: int
    likelihood: str | None
    estimator: str | None
    class_names: tuple[str, ...] | None
    preprocess: dict[str, Any] | None
    families: dict[str, int]
    weights: int
    active_weights: int
    bits_per_weight: float
    ratio_to_fp32: float
    sections: tuple[Section, ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return asdict(self)

    def facts(self) -> list[tuple[str, str]]:
        """The summary without its sections, as words."""
        network = self.network or "your own: load(path, net)"
        if self.members > 1:
            network = f"{self.members} x {network}"
        names = self.class_names
        return [
            ("network", network + "".join(f", {k}={v}" for k, v in self.options.items())),
            ("likelihood", self.likelihood or "not trained by fit"),
            ("estimator", self.estimator or "-"),
            ("classes", "-" if not names else f"{len(names)}: {', '.join(names)[:60]}"),
            ("weights", ", ".join(f"{n:,} {family}" for family, n in self.families.items())),
            ("active weights", f"{self.active_weights:,} of {self.weights:,}"),
            ("bytes", f"{self.bytes:,}"),
            ("bits per weight", f"{self.bits_per_weight:.2f}"),
            ("ratio to fp32", f"{self.ratio_to_fp32:.2f}"),
            ("sha256", self.sha256),
        ]

    def __str__(self) -> str:
        lines = [f"{name:<16} {printable(value)}" for name, value in self.facts()]
        width = max((len(s.name) for s in self.sections), default=7)
        lines += ["", f"{'section':<{width}}  coding  dtype     {'bytes':>12}  shape"]
        for s in self.sections:
            shape = "x".join(map(str, s.shape)) or "scalar"
            name = printable(s.name)
            lines.append(f"{name:<{width}}  {s.coding:<6}  {s.dtype:<8}  {s.bytes:>12,}  {shape}")
        return "\n".join(lines)

    __repr__ = __str__


def summary_of(file: Container, posteriors: list[tuple[str, int, int]]) -> FileSummary:
    """The summary of a file, given family, weights and active weights of each posterior."""
    model = file.description["model"]
    network = model.get("network") or {"name": None, "options": {}}
    families: dict[str, int] = {}
    for family, size, _ in posteriors:
        families[family] = families.get(family, 0) + size
    weights = sum(families.values())
    return FileSummary(
        bytes=file.size,
        sha256=file.sha256,
        version=file.description["version"],
        network=network["name"],
        options=network["options"],
        members=file.description["members"],
        likelihood=model.get("likelihood"),
        estimator=model.get("estimator"),
        class_names=None if model.get("class_names") is None else tuple(model["class_names"]),
        preprocess=model.get("preprocess"),
        families=families,
        weights=weights,
        active_weights=sum(active for _, _, active in posteriors),
        bits_per_weight=8 * file.size / max(1, weights),
        ratio_to_fp32=4 * weights / file.size,
        sections=tuple(
            Section(
                name,
                "raw",
                str(tensor.dtype).removeprefix("torch."),
                tuple(tensor.shape),
                tensor.numel() * tensor.element_size(),
            )
            for name, tensor in sorted(file.sections.items())
        ),
    )
