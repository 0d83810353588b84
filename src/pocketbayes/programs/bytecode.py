"""Programs to bytes and back; every number is checked before anything is made of it."""

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

from pocketbayes.errors import FormatError
from pocketbayes.programs.operators import NAMES, OPERATORS
from pocketbayes.programs.program import (
    FIRST,
    LAST,
    REALS,
    WHOLE_NUMBERS,
    Buffer,
    Input,
    Operand,
    Operation,
    Place,
    Program,
    Weight,
)

VERSION = 1
LONGEST = 1 << 16
_MOST_INPUTS, _MOST_OPERATIONS = 16, 1 << 14
_MOST_AXES, _MOST_ITEMS, _MOST_INTEGER = 8, 1 << 10, (1 << 31) - 1


def encoded(program: Program) -> bytes:
    """The section of a file."""
    out = bytearray([VERSION])
    _put_n(out, len(program.inputs))
    for kind, shape in program.inputs:
        _put_n(out, kind)
        _put_l(out, shape)
    _put_n(out, len(program.operations))
    buffers = len(program.inputs)
    for operation in program.operations:
        code, letters = OPERATORS[operation.name]
        _put_n(out, code)
        for letter, field in zip(letters, operation.fields, strict=True):
            _put(out, letter, field, buffers)
        buffers += 1
    _put_x(out, program.output, buffers)
    _put_n(out, len(program.places))
    for operand, channels in program.places:
        _put_x(out, operand, buffers)
        _put_n(out, channels)
    _require(len(out) <= LONGEST, f"it would take more than {LONGEST:,} bytes")
    decoded(out)  # no program is written that would not be read
    return bytes(out)


def _put(out: bytearray, letter: str, field: Any, buffers: int) -> None:
    if letter == "n":
        _put_n(out, field)
    elif letter == "l":
        _put_l(out, field)
    elif letter == "r":
        out += struct.pack("<f", field)
    elif letter == "R":
        _put_n(out, len(field))
        out += struct.pack(f"<{len(field)}f", *field)
    elif letter == "X":
        _put_n(out, len(field))
        for operand in field:
            _put_x(out, operand, buffers)
    else:
        _put_x(out, field, buffers)


def _put_n(out: bytearray, value: int) -> None:
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def _put_l(out: bytearray, values: Sequence[int]) -> None:
    _put_n(out, len(values))
    for value in values:
        _put_n(out, value)


def _put_x(out: bytearray, operand: Operand, buffers: int) -> None:
    if operand is None:
        _put_n(out, 0)
    elif isinstance(operand, Weight):
        _put_n(out, 2 * operand.number + 1)
    else:
        _put_n(out, 2 * (buffers - operand.number))


def decoded(data: bytes | bytearray | memoryview) -> Program:
    """The program in a section, if every field is within its bounds; shapes are not looked at."""
    _require(len(data) <= LONGEST, f"it has more than {LONGEST:,} bytes")
    reader = _Reader(bytes(data))
    version = reader.byte()
    _require(version == VERSION, f"it has version {version}, this library reads {VERSION}")
    number = reader.count(_MOST_INPUTS, "inputs", least=1)
    inputs = tuple(_input(reader) for _ in range(number))
    reader.buffers = len(inputs)
    operations = []
    for _ in range(reader.count(_MOST_OPERATIONS, "operations")):
        operations.append(_operation(reader))
        reader.buffers += 1
    output = reader.operand()
    if not isinstance(output, Buffer):
        raise FormatError("its output is no buffer")
    places = tuple(_place(reader) for _ in range(reader.count(_MOST_OPERATIONS, "places")))
    _require(reader.is_at_end, "something follows behind it")
    return Program(inputs, tuple(operations), output, places)


def _input(reader: "_Reader") -> Input:
    return Input(reader.choice(REALS, WHOLE_NUMBERS), reader.integers())


def _operation(reader: "_Reader") -> Operation:
    code = reader.integer()
    name = NAMES.get(code)
    if name is None:
        raise FormatError(f"operation {code} is none that this library knows")
    return Operation(name, tuple(reader.field(letter) for letter in OPERATORS[name].fields))


def _place(reader: "_Reader") -> Place:
    operand = reader.operand()
    assert operand is not None
    return Place(operand, reader.choice(FIRST, LAST))


class _Reader:
    """Takes fields from the front of some bytes; `buffers` are known so far."""

    def __init__(self, data: bytes) -> None:
        self._data, self._place, self.buffers = data, 0, 0
        self._fields: dict[str, Callable[[], Any]] = {
            "n": self.integer,
            "l": self.integers,
            "r": lambda: self.reals(1)[0],
            "R": lambda: self.reals(self.count(_MOST_ITEMS, "numbers")),
            "x": self.operand,
            "X": self.operands,
            "y": lambda: self.operand(optional=True),
            "w": self.weight,
            "v": lambda: self.weight(optional=True),
        }

    @property
    def is_at_end(self) -> bool:
        """Whether nothing is left."""
        return self._place == len(self._data)

    def field(self, letter: str) -> Any:
        """A field of this kind."""
        return self._fields[letter]()

    def byte(self) -> int:
        """The next byte."""
        _require(not self.is_at_end, "it is cut short")
        self._place += 1
        return self._data[self._place - 1]

    def integer(self) -> int:
        """7 bits a byte, lowest first, the top bit set on all but the last."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            if byte < 128:
                _require(byte > 0 or shift == 0, "an integer takes more bytes than it needs")
                _require(value <= _MOST_INTEGER, "an integer has more than 31 bits")
                return value
            shift += 7
            _require(shift < 35, "an integer has more than 31 bits")

    def count(self, most: int, what: str, least: int = 0) -> int:
        """How many of something follow; each of them takes a byte at least."""
        number = self.integer()
        _require(least <= number <= most, f"{number:,} {what} are not {least} to {most:,}")
        return number

    def choice(self, *allowed: int) -> int:
        """One of a few integers."""
        value = self.integer()
        _require(value in allowed, f"{value} is none of {allowed}")
        return value

    def integers(self) -> tuple[int, ...]:
        """A list."""
        return tuple(self.integer() for _ in range(self.count(_MOST_AXES, "integers of a list")))

    def reals(self, number: int) -> tuple[float, ...]:
        """float32, little-endian."""
        end = self._place + 4 * number
        _require(end <= len(self._data), "it is cut short")
        values = struct.unpack_from(f"<{number}f", self._data, self._place)
        _require(all(map(math.isfinite, values)), "a number is not finite")
        self._place = end
        return values

    def operand(self, optional: bool = False) -> Operand:
        """A buffer that is known already, or a weight."""
        value = self.integer()
        if value == 0:
            _require(optional, "an operand is missing")
            return None
        if value % 2:
            return Weight(value // 2)
        _require(value // 2 <= self.buffers, "an operand is a buffer that is not there yet")
        return Buffer(self.buffers - value // 2)

    def operands(self) -> tuple[Operand, ...]:
        """A list of them."""
        number = self.count(_MOST_ITEMS, "operands", least=1)
        return tuple(self.operand() for _ in range(number))

    def weight(self, optional: bool = False) -> Operand:
        """An operand that is no buffer."""
        found = self.operand(optional)
        _require(not isinstance(found, Buffer), "an operand is a buffer that must be a weight")
        return found


def _require(good: bool, what: str) -> None:
    if not good:
        raise FormatError(what)
