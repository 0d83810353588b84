"""A network as a flat list of operations on numbered buffers, for one example at a time."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from pocketbayes.programs.operators import OPERATORS

REALS, WHOLE_NUMBERS = 0, 1  # kinds of inputs
FIRST, LAST = 0, 1  # the axis of a place's channels


@dataclass(frozen=True)
class Buffer:
    """An input, or the result of an operation: inputs are counted first."""

    number: int


@dataclass(frozen=True)
class Weight:
    """A tensor of the file, by its number in `weight_names`."""

    number: int


Operand = Buffer | Weight | None


class Input(NamedTuple):
    """What goes in: whether these are whole numbers, and the shape of one example."""

    kind: int
    shape: tuple[int, ...]


class Operation(NamedTuple):
    """One step: a name of the table, and its fields in the order of the table."""

    name: str
    fields: tuple[Any, ...]

    def operands(self) -> list[Buffer | Weight]:
        """All that it reads."""
        found: list[Buffer | Weight] = []
        self.with_operands(lambda operand: found.append(operand))
        return found

    def with_operands(self, given: Callable[[Buffer | Weight], Any]) -> tuple[Any, ...]:
        """The fields with something else in place of each operand; None stays None."""
        letters = OPERATORS[self.name].fields
        return tuple(
            _mapped(letter, field, given)
            for letter, field in zip(letters, self.fields, strict=True)
        )


def _mapped(letter: str, field: Any, given: Callable[[Buffer | Weight], Any]) -> Any:
    if letter == "X":
        return tuple(given(operand) for operand in field)
    return given(field) if letter in "xywv" and field is not None else field


class Place(NamedTuple):
    """What a one-pass head reads: an operand, and which of its axes are channels."""

    operand: Buffer | Weight
    channels: int


@dataclass(frozen=True)
class Program:
    """Inputs, operations in the order of their results, the output, and a head's places."""

    inputs: tuple[Input, ...]
    operations: tuple[Operation, ...]
    output: Buffer
    places: tuple[Place, ...] = ()


def weight_names(posteriors: Iterable[str], state: Iterable[str], members: int = 1) -> list[str]:
    """The names that weights are numbered by; of an ensemble those of its first member."""
    names = sorted({*posteriors, *state})
    if members == 1:
        return names
    first = "members.0."
    return [name.removeprefix(first) for name in names if name.startswith(first)]
