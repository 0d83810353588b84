"""What a file holds, in words and numbers."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pocketbayes.codec.contents import Contents
from pocketbayes.codec.header import Header
from pocketbayes.codec.table_columns import column_facts
from pocketbayes.codec.tally import Tally
from pocketbayes.errors import printable
from pocketbayes.layers import comparison_in_words, inference_in_words

_LONGEST_NAME = 30


@dataclass(frozen=True)
class Section:
    """Stored arrays of one kind.

    Attributes:
        coding: how; see docs/format.md.
        arrays: how many arrays share it.
        numbers: how many numbers these hold.
        bytes: of the section in the file.
        bound: bytes that the entropy of its numbers allows at least, each array with frequencies
            of its own; `inspect` does not know it.
    """

    name: str
    coding: str
    arrays: int
    numbers: int
    bytes: int
    bound: float | None


@dataclass(frozen=True)
class FileSummary:
    """What one file holds; prints as a table.

    Attributes:
        bytes: the file's size.
        network: the name of the library's network, or as "timm:resnet50" of another's, which
            `load` is to allow; None: it needs a `net`.
        options: that network's options.
        base: {"sha256", "tensors"} of the frozen network that the file needs beside it.
        members: networks in it; more than 1 for an ensemble.
        families: number of weights by family of posterior.
        weights: number of weights that have a posterior.
        active_weights: how many of them are there; sparse posteriors lack the others.
        bits_per_weight: 8 bytes / weights, everything in the file included.
        ratio_to_fp32: the bytes of these weights as plain 32-bit numbers, over the file's.
        ratio_to_posterior: the same with a mean and a std for each.
        kl: nats from prior to posterior.
        stored_within: KL(model || file) of all weights together at most, in nats; `inspect` does
            not know it.
        prior: "learned" (a std for each tensor) or "fixed"; None: not known.
        beta: weight of the KL in training; less than 1 is a tempered posterior.
        decay_std: std of the prior that weight decay put on the means, which `kl` counts.
        training: the method, with its learning rate, epochs and steps; None: not known.
        temperature: what `temperature_` found.
        conformal: what `conformal` found: level, threshold, and on how many examples.
        one_pass: what `distill_` taught: where the head reads, and how many draws it learned from.
        moments_factor: what `calibrate_moments_` found.
        program: the network as a portable program, which `save(..., example=x)` writes: its
            operations, bytes, shapes of inputs and output, products for one example, and its
            multiplications by weights, "dense" and "sparse" (without those that are not there).
        sections: the stored arrays.
    """

    bytes: int
    sha256: str
    version: int
    network: str | None
    options: dict[str, Any]
    base: dict[str, Any] | None
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
    ratio_to_posterior: float
    kl: float
    stored_within: float | None
    prior: str | None
    beta: float | None
    decay_std: float | None
    training: dict[str, Any] | None
    temperature: float | None
    conformal: dict[str, Any] | None
    one_pass: dict[str, Any] | None
    moments_factor: float | None
    program: dict[str, Any] | None
    sections: tuple[Section, ...]

    @property
    def bits_back_bytes(self) -> float:
        """KL / ln 2 in bytes: what the best code that has the prior could come down to."""
        return self.kl / math.log(2) / 8

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return asdict(self)

    def facts(self) -> list[tuple[str, str]]:
        """The summary without its sections, as words."""
        names = self.class_names
        return [
            ("network", self._network()),
            *self._base(),
            ("likelihood", self.likelihood or "not trained by fit"),
            ("estimator", self.estimator or "-"),
            *inference_in_words(self.prior, self.beta, self.decay_std, self.training),
            *self._calibration(),
            ("classes", "-" if not names else f"{len(names)}: {', '.join(names)[:60]}"),
            ("weights", ", ".join(f"{n:,} {family}" for family, n in self.families.items())),
            ("active weights", f"{self.active_weights:,} of {self.weights:,}"),
            ("program", _program_in_words(self.program)),
            ("multiplications", _multiplications_in_words(self.program)),
            ("bytes", f"{self.bytes:,}"),
            ("bits per weight", f"{self.bits_per_weight:.2f}"),
            (
                "ratio to fp32",
                f"{self.ratio_to_fp32:.2f}; with a std each {self.ratio_to_posterior:.2f}",
            ),
            ("bits-back limit", f"{self.bits_back_bytes:,.0f} bytes (KL / ln 2)"),
            *self._nats(),
            ("sha256", self.sha256),
        ]

    def _network(self) -> str:
        """The network's name and options, and what `load` has to be told."""
        network = self.network or "your own: load(path, net)"
        words = f"{self.members} x {network}" if self.members > 1 else network
        plain = {k: v for k, v in self.options.items() if not isinstance(v, dict)}
        words += "".join(f", {name}={value}" for name, value in plain.items())
        library, colon, _ = network.partition(":")
        is_foreign = self.network is not None and colon
        return f"{words}: load(path, allow=({library!r},))" if is_foreign else words

    def _base(self) -> list[tuple[str, str]]:
        if self.base is None:
            return []
        digest, tensors = self.base["sha256"], self.base["tensors"]
        return [("base", f"{tensors:,} tensors that are not in the file, sha256 {digest[:16]}...")]

    def _nats(self) -> list[tuple[str, str]]:
        """The KL, and beside it what storing costs."""
        rows = [("KL to the prior", f"{self.kl:,.0f} nats")]
        if self.stored_within is not None:
            each = self.stored_within / max(1, self.active_weights)
            words = f"{self.stored_within:,.0f} nats of the model ({each:.2g} a weight)"
            rows.append(("stored within", words))
        return rows

    def _calibration(self) -> list[tuple[str, str]]:
        """What was found on held-out data, or taught, if anything."""
        rows = []
        if self.temperature is not None:
            rows.append(("temperature", f"{self.temperature:.3g}"))
        if self.conformal is not None:
            level, number = self.conformal["level"], self.conformal["examples"]
            rows.append(("conformal", f"coverage {level:g}, from {number:,} examples"))
        if self.one_pass is not None:
            taught, places = self.one_pass, len(self.one_pass["places"])
            words = f"learned from {taught['draws']} draws ({taught['estimator']}) of each batch"
            rows.append(("one pass", f"{words}, at {places} layer{'s' * (places != 1)}"))
            if "compared" in taught:
                rows.append(("compared", comparison_in_words(taught["compared"])))
        if self.moments_factor is not None:
            rows.append(("moments factor", f"{self.moments_factor:.3g}"))
        return rows

    def __str__(self) -> str:
        lines = [f"{name:<16} {printable(value)}" for name, value in self.facts()]
        columns = column_facts(self.preprocess)
        longest = min(max((len(name) for name, _ in columns), default=0), _LONGEST_NAME)
        lines += ["", "columns"] if columns else []
        lines += [f"{printable(name):<{longest}}  {printable(words)}" for name, words in columns]
        rest = self._unlisted()
        width = max(len(name) for name in ("section", *rest, *(s.name for s in self.sections)))
        head = (
            f"{'section':<{width}}  {'coding':<11}  {'numbers':>12}  {'bytes':>12}  {'bound':>12}"
        )
        lines += ["", head]
        for s in self.sections:
            bound = "" if s.bound is None else f"{s.bound:,.0f}"
            sizes = f"{s.numbers:>12,}  {s.bytes:>12,}  {bound:>12}"
            lines.append(f"{printable(s.name):<{width}}  {s.coding:<11}  {sizes}")
        lines += [f"{name:<{width}}  {'':<11}  {'':>12}  {n:>12,}" for name, n in rest.items()]
        return "\n".join(lines)

    def _unlisted(self) -> dict[str, int]:
        """Bytes of the file that are in no section of arrays."""
        program = self.program["bytes"] if self.program is not None else 0
        rest = self.bytes - program - sum(section.bytes for section in self.sections)
        return ({"program": program} if program else {}) | {"description, header": rest}

    __repr__ = __str__


def _program_in_words(program: Mapping[str, Any] | None) -> str:
    if program is None:
        return "-"
    shapes = " and ".join("x".join(map(str, shape)) or "1" for shape in program["inputs"])
    size = f"{program['operations']:,} operations, {program['bytes']:,} bytes"
    return f"{size}, for inputs of {shapes}"


def _multiplications_in_words(program: Mapping[str, Any] | None) -> str:
    if program is None:
        return "-"
    dense, sparse = (program["multiplications"][kind] for kind in ("dense", "sparse"))
    return f"{sparse:,} of {dense:,} by weights, in one pass"


def summary_of(
    file: Contents, header: Header, tally: Tally, program: dict[str, Any] | None = None
) -> FileSummary:
    """The summary of a file that holds these posteriors."""
    model, weights = file.file.description["model"], tally.families.total()
    network = model.get("network") or {"name": None, "options": {}}
    return FileSummary(
        bytes=file.file.size,
        sha256=file.file.sha256,
        version=file.file.version,
        network=network["name"],
        options=network["options"],
        base=header.base,
        members=header.members,
        likelihood=model.get("likelihood"),
        estimator=model.get("estimator"),
        class_names=None if model.get("class_names") is None else tuple(model["class_names"]),
        preprocess=model.get("preprocess"),
        families=dict(tally.families),
        weights=weights,
        active_weights=sum(tally.active.values()),
        bits_per_weight=8 * file.file.size / max(1, weights),
        ratio_to_fp32=4 * weights / file.file.size,
        ratio_to_posterior=8 * weights / file.file.size,
        kl=tally.kl,
        stored_within=_stored_within(file),
        prior=model.get("prior"),
        beta=model.get("beta"),
        decay_std=model.get("decay_std"),
        training=model.get("training"),
        temperature=model.get("temperature"),
        conformal=model.get("conformal"),
        one_pass=model.get("one_pass"),
        moments_factor=model.get("moments_factor"),
        program=program,
        sections=_sections(file),
    )


def _stored_within(file: Contents) -> float | None:
    nats = [part.nats for part in file.parts if part.nats is not None]
    return math.fsum(nats) if len(nats) == len(file.parts) else None


def _sections(file: Contents) -> tuple[Section, ...]:
    return tuple(
        Section(
            part.name,
            part.coding,
            len(part.arrays),
            sum(file.specs[array].numel for array in part.arrays),
            part.bytes,
            part.bound,
        )
        for part in sorted(file.parts, key=lambda part: part.name)
    )
