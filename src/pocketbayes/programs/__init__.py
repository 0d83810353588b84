"""A network as a small program: bytes, shapes, and a reference that runs it. Free of torch."""

from pocketbayes.programs.bytecode import decoded, encoded
from pocketbayes.programs.checking import planned
from pocketbayes.programs.interpreter import run
from pocketbayes.programs.program import (
    FIRST,
    LAST,
    REALS,
    WHOLE_NUMBERS,
    Buffer,
    Input,
    Operation,
    Place,
    Program,
    Weight,
    weight_names,
)
from pocketbayes.programs.shapes import SHAPES

__all__ = [
    "FIRST",
    "LAST",
    "REALS",
    "SHAPES",
    "WHOLE_NUMBERS",
    "Buffer",
    "Input",
    "Operation",
    "Place",
    "Program",
    "Weight",
    "decoded",
    "encoded",
    "planned",
    "run",
    "weight_names",
]
