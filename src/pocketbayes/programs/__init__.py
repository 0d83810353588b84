"""A network as a small program: bytes, shapes, and a reference that runs it. Free of torch."""

from pocketbayes.programs.bytecode import LONGEST, decoded, encoded
from pocketbayes.programs.checking import Plan, channels_of, planned, positions_of, shape_of
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
    "LONGEST",
    "REALS",
    "SHAPES",
    "WHOLE_NUMBERS",
    "Buffer",
    "Input",
    "Operation",
    "Place",
    "Plan",
    "Program",
    "Weight",
    "channels_of",
    "decoded",
    "encoded",
    "planned",
    "positions_of",
    "run",
    "shape_of",
    "weight_names",
]
