"""Numbers as C has them: constant tables, and weights as integer codes.

A row of means is codes times one number, w_i = k_i max_j |w_j| / K, K = 127 (or 32,767): each is
at most half a step, max |w| / 254, off. Variances are codes of one table, 0 for none: the values
themselves where there are at most 255, else 255 whose logarithms lie in equal steps.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_MOST_CODES, _FAR = 255, 255
_WIDTH = 100


class Row(NamedTuple):
    """A linear layer or convolution: y = factor (W x + bias) + shift, each output by itself.

    Attributes:
        mean: (outputs, inputs of one).
        variance: as `mean`; None: certain.
        shift: what the output is at x = 0.
        factor: of a batch norm that was folded into it; None: 1.
        noise: variance of what is added; None: none.
    """

    mean: Array
    variance: Array | None
    shift: Array
    factor: Array | None = None
    noise: Array | None = None


@dataclass
class Tables:
    """Constants of a model, as text, and the bytes that they take.

    Attributes:
        levels: the variances that codes stand for, from code 1 on.
        wide: whether codes of means have 16 bits.
    """

    levels: Array
    wide: bool
    text: list[str] = field(default_factory=list)
    bytes: int = 0

    def floats(self, name: str, values: Array, rows: int | None = None) -> str:
        """A table of float32, its first axis of `rows`; returns its name."""
        shape = f"[{values.size}]" if rows is None else f"[{rows}][{values.size // rows}]"
        parts = np.asarray(values, np.float32).reshape(rows or 1, -1)
        lines = [_lines(map(real, part.tolist())) for part in parts]
        body = lines[0] if rows is None else ",\n".join(f"    {{\n{part}\n    }}" for part in lines)
        return self._add(
            f"static const float {name}{shape} = {{\n{body}\n}};", name, 4 * values.size
        )

    def integers(self, name: str, kind: str, values: Array, bytes_each: int) -> str:
        """A table of whole numbers."""
        body = _lines(map(str, values.ravel().tolist()))
        text = f"static const {kind} {name}[{values.size}] = {{\n{body}\n}};"
        return self._add(text, name, bytes_each * values.size)

    def _add(self, text: str, name: str, size: int) -> str:
        self.text.append(text)
        self.bytes += size
        return name

    def window(self, name: str, fields: str) -> str:
        """A `window` of 15 numbers; returns a pointer to it."""
        return "&" + self._add(f"static const window {name} = {{{fields}}};", name, 60)

    def weights(self, name: str, row: Row, may_be_sparse: bool = True) -> bool:
        """A struct of this name; returns whether it is sparse."""
        most = np.abs(row.mean).max(1, initial=0)
        steps = 32767 if self.wide else 127
        scale = np.where(most > 0, most, 1) / steps
        codes = np.rint(row.mean / scale[:, None]).astype(np.int64)
        spread = None if row.variance is None else self._variance_codes(row.variance)
        kept = np.flatnonzero(codes if spread is None else codes | spread)
        gaps, each = _gaps(kept), (2 if self.wide else 1) + (spread is not None)
        sparse = may_be_sparse and len(gaps) + each * len(kept) < each * codes.size
        chosen = kept if sparse else np.arange(codes.size)
        parts = {
            "mean": self.integers(
                f"{name}_mean", "mean_code", _some(codes, chosen), 2 if self.wide else 1
            ),
            "std": None if spread is None
            else self.integers(f"{name}_std", "uint8_t", _some(spread, chosen), 1),
            "gap": self.integers(f"{name}_gap", "uint8_t", gaps, 1) if sparse else None,
        }  # fmt: skip
        factor = np.ones(len(most)) if row.factor is None else row.factor
        squares = None if row.factor is None else factor**2
        others = {
            "scale": scale * factor,
            "shift": row.shift,
            "factor": squares,
            "noise": row.noise,
        }
        for field_name, values in others.items():
            known = None if values is None else self.floats(f"{name}_{field_name}", values)
            parts[field_name] = known
        order = ("mean", "std", "gap", "scale", "shift", "factor", "noise")
        fields = ", ".join(parts[key] or "0" for key in order)
        self._add(f"static const weights {name} = {{{fields}, {len(chosen)}}};", name, 32)
        return bool(sparse)

    def _variance_codes(self, variance: Array) -> Array:
        """The nearest level of each, by logarithms."""
        found = np.zeros(variance.shape, np.int64)
        there = variance > 0
        logs, known = np.log(variance[there].astype(np.float64)), np.log(self.levels)
        right = np.searchsorted((known[1:] + known[:-1]) / 2, logs)
        found[there] = 1 + right
        return found


def levels_of(variances: Iterable[Array]) -> Array:
    """What codes of variances stand for, rising."""
    parts = [np.asarray(v, np.float64).ravel() for v in variances]
    logs = np.log(np.concatenate([p[p > 0] for p in parts])) if parts else np.zeros(0)
    known = np.unique(logs.round(5))
    if len(known) > _MOST_CODES:
        known = np.linspace(known[0], known[-1], _MOST_CODES)
    return np.asarray(np.exp(known))


def _some(codes: Array, chosen: Array) -> Array:
    """C knows no tables without numbers."""
    return codes.ravel()[chosen] if len(chosen) else np.zeros(1, np.int64)


def _gaps(kept: Array) -> Array:
    """How many are left out before each of these places, 255 at a time."""
    found: list[int] = []
    for gap in np.diff(kept, prepend=-1) - 1:
        found += [_FAR] * int(gap // _FAR) + [int(gap % _FAR)]
    return np.array(found or [0])


def real(value: float) -> str:
    """A float32 constant."""
    text = f"{value:.9g}"
    return f"{text}f" if set(text) & set(".e") else f"{text}.0f"


def _lines(items: Iterable[str]) -> str:
    lines, line = [], "   "
    for item in items:
        if len(line) + len(item) + 2 > _WIDTH:
            lines.append(line)
            line = "   "
        line += f" {item},"
    return "\n".join([*lines, line])
