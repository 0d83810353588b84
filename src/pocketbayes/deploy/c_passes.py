"""From operations of a program to calls of kernels: buffers, weights, folded batch norms."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pocketbayes.deploy.c_memory import Memory, Slot
from pocketbayes.deploy.c_sources import Source
from pocketbayes.deploy.c_tables import Array, Row, Tables
from pocketbayes.errors import PocketBayesError
from pocketbayes.programs import Buffer, Operation, Weight

Shape = tuple[int, ...]
Place = Slot | str


@dataclass(frozen=True)
class Value:
    """A buffer: where its means and variances lie; of what is certain only the first.

    `common` says of each axis whether noise is common along it.
    """

    shape: Shape
    mean: Place
    variance: Place | None = None
    common: tuple[bool, ...] = ()

    @property
    def size(self) -> int:
        """How many numbers."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def is_random(self) -> bool:
        """Whether it has variances."""
        return self.variance is not None


@dataclass
class Pass:
    """The body of one pass, as it grows: calls whose places are not decided yet.

    Attributes:
        calls: a kernel and its arguments each.
        kernels: that are needed.
        functions: of one number that are needed.
        nodes: of quadratures.
        window: places of the largest window of a maximum.
        rows: the struct's name and its numbers, by the number of its weight.
    """

    source: Source
    tables: Tables
    memory: Memory = field(default_factory=Memory)
    values: dict[int, Value] = field(default_factory=dict)
    calls: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)
    kernels: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)
    nodes: set[int] = field(default_factory=set)
    window: int = 1
    step: int = 0
    rows: dict[int, tuple[str, bool]] = field(default_factory=dict)
    folded: set[int] = field(default_factory=set)

    def call(self, kernel: str, *args: Any) -> None:
        """Calls a kernel at the end."""
        self.kernels.add(kernel)
        self.calls.append((kernel, args))

    def end_of(self, buffer: int) -> int:
        """The last step that reads these numbers."""
        return max(self.source.readers.get(self.source.root(buffer), [self.step]))

    def result(self, random: bool, common: tuple[bool, ...] = (), of: Value | None = None) -> Value:
        """Room for the result of this step; in place of a value that nobody reads any more."""
        number = self.step + len(self.source.program.inputs)
        number = number + 1 if number + 1 in self.folded else number
        shape, end = self.source.shapes[number], self.end_of(number)
        size = int(np.prod(shape, dtype=np.int64))
        mean = self._reused(of.mean if of else None, size, end)
        mean = mean or self.memory.slot(size, self.step, end)
        variance = None
        if random:
            variance = self._reused(of.variance if of else None, size, end)
            variance = variance or self.memory.slot(size, self.step, end)
        common = common if random and common else (False,) * len(shape)
        found = self.values[number] = Value(shape, mean, variance, common)
        return found

    def _reused(self, place: Place | None, size: int, end: int) -> Slot | None:
        if not isinstance(place, Slot) or place.end > self.step or place.size < size:
            return None
        if size < place.size:
            return self.memory.slot(size, self.step, end, place)
        place.end = end
        return place

    def value(self, operand: Any) -> Value:
        """A buffer's; weights cannot stand there."""
        if not isinstance(operand, Buffer):
            raise self.refusal("with a weight as its operand")
        return self.values[operand.number]

    def operation(self) -> Operation:
        """Of this step."""
        return self.source.program.operations[self.step]

    def refusal(self, why: str = "") -> PocketBayesError:
        """The error that names the operation."""
        how = " by moments" if self.source.carries else ""
        return PocketBayesError(
            f"operation {self.step} ({self.operation().name}) is not exported to C{how} "
            f"{why}".rstrip()
            + ": export to ONNX, or write it by other operations"
        )

    def row(self, weight: Weight, bias: Weight | None, outputs_first: bool) -> str:
        """The table of a linear operation and the batch norm behind it: "dense" or "sparse"."""
        mean = self.source.mean_of(weight)
        keeps = self.source.carries or weight == self.source.last_layer
        variance = self.source.variance_of(weight) if keeps else None
        shift = np.zeros(len(mean)) if bias is None else self.source.mean_of(bias)
        noise = self.source.variance_of(bias) if keeps else None
        flat = None if variance is None else variance.reshape(len(mean), -1)
        row = Row(mean.reshape(len(mean), -1), flat, shift, None, noise)
        norm = self._norm_behind() if outputs_first else None
        if norm is not None:
            factor, move = norm
            noise = None if noise is None else noise * factor**2
            row = row._replace(shift=shift * factor + move, factor=factor, noise=noise)
        name = f"w{self.step}"
        sparse = self.tables.weights(name, row)
        self.rows[weight.number] = name, sparse
        return "sparse" if sparse else "dense"

    def _norm_behind(self) -> tuple[Array, Array] | None:
        """Scale and shift of a norm that alone reads this result."""
        number = self.step + len(self.source.program.inputs)
        readers = self.source.readers.get(number, [])
        operations = self.source.program.operations
        if readers != [self.step + 1] or len(operations) <= self.step + 1:
            return None
        behind = operations[self.step + 1]
        read_by_head = any(p.operand == Buffer(number) for p in self.source.program.places)
        if behind.name != "norm" or read_by_head:
            return None
        self.folded.add(number + 1)
        return self.norm(behind)

    def norm(self, operation: Operation) -> tuple[Array, Array]:
        """y = scale x + shift: scale = w / sqrt(variance + eps), shift = b - mean scale."""
        _, weight, bias, mean, variance, eps = operation.fields
        noisy = [self.source.variance_of(w) for w in (weight, bias)]
        if self.source.carries and any(n is not None for n in noisy):
            raise self.refusal("with random weights")
        scale = 1 / np.sqrt(self.source.mean_of(variance).astype(np.float64) + eps)
        scale = scale if weight is None else scale * self.source.mean_of(weight)
        shift = -self.source.mean_of(mean) * scale
        return scale, shift if bias is None else shift + self.source.mean_of(bias)

    def alias(self, operand: Buffer, shape: Shape, common: tuple[bool, ...]) -> None:
        """The same numbers in another shape."""
        number = self.step + len(self.source.program.inputs)
        self.values[number] = replace(self.values[operand.number], shape=shape, common=common)
