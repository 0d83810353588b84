"""Whether a program can be run: shapes that fit, and bounds on memory and work."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from pocketbayes.errors import FormatError
from pocketbayes.programs.program import FIRST, Buffer, Operation, Program, Weight
from pocketbayes.programs.shapes import MOST_NUMBERS, SHAPES, Shape

MOST_AXES = 8
MOST_IN_ALL, MOST_WORK = 1 << 31, 1 << 42
_OF_MATRICES = ("linear", "conv", "lstm", "gru")  # their weights come behind what goes in


class Plan(NamedTuple):
    """The shape of every buffer, and the products that one example takes."""

    shapes: tuple[Shape, ...]
    work: int


def planned(program: Program, weights: Sequence[Shape]) -> Plan:
    """Shapes and work of a program whose weights have these shapes, or an error."""
    shapes, work = [tuple(given.shape) for given in program.inputs], 0
    for number, shape in enumerate(shapes):
        _require_bounded(shape, f"input {number}")
    numbers = sum(map(math.prod, shapes))
    for number, operation in enumerate(program.operations):
        where = f"operation {number} ({operation.name})"
        shape, products = _result(operation, shapes, weights, where)
        shapes.append(shape)
        numbers, work = numbers + math.prod(shape), work + products
        if numbers > MOST_IN_ALL or work > MOST_WORK:
            raise FormatError(f"{where}: the program takes more memory or work than is allowed")
    for place in program.places:
        if not shape_of(place.operand, shapes, weights):
            raise FormatError("a place has no axis of channels")
    return Plan(tuple(shapes), work)


def positions_of(
    program: Program, shapes: Sequence[Shape], weights: Sequence[Shape]
) -> Counter[int]:
    """How often one example multiplies each number of a weight matrix, by the weight's number."""
    found = Counter[int]()
    for operation, shape in zip(program.operations, shapes[len(program.inputs) :], strict=True):
        if operation.name in _OF_MATRICES:
            channels = shape[0] if operation.name == "conv" else shape[-1]
            for weight in operation.fields[1:]:
                if isinstance(weight, Weight) and len(weights[weight.number]) > 1:
                    found[weight.number] += math.prod(shape) // channels
    return found


def channels_of(shape: Shape, channels: int) -> int:
    """The number of a place's channels."""
    return shape[0] if channels == FIRST else shape[-1]


def _result(
    operation: Operation, shapes: Sequence[Shape], weights: Sequence[Shape], where: str
) -> tuple[Shape, int]:
    try:
        fields = operation.with_operands(lambda operand: shape_of(operand, shapes, weights))
        shape = SHAPES[operation.name](*fields)
    except FormatError as error:
        raise FormatError(f"{where}: {error}") from error
    _require_bounded(shape, where)
    return shape, math.prod(shape) * _products(operation.name, fields, shape)


def shape_of(operand: Buffer | Weight, shapes: Sequence[Shape], weights: Sequence[Shape]) -> Shape:
    """The shape of a buffer or a weight."""
    if isinstance(operand, Buffer):
        return shapes[operand.number]
    if operand.number >= len(weights):
        raise FormatError(f"there is no weight {operand.number}: the file has {len(weights)}")
    return weights[operand.number]


def _products(name: str, fields: tuple[object, ...], shape: Shape) -> int:
    """Products for each number of the result; of poolings numbers seen, of all else 1."""
    match name, fields:
        case "linear", (_, tuple(weight), _):
            return int(weight[1])
        case "conv", (_, tuple(weight), *_):
            return math.prod(weight[1:])
        case (("lstm" | "gru"), (_, tuple(inner), tuple(outer), *_)):
            return len(inner) and inner[0] // shape[1] * (inner[1] + outer[1])
        case "matmul", (tuple(a), _):
            return int(a[-1])
        case "attention", (tuple(q), tuple(k), *_):
            return int(k[-2] * (1 + -(-q[-1] // shape[-1])))
        case (("max_pool" | "avg_pool"), (_, tuple(kernel), *_)):
            return math.prod(kernel)
        case "adaptive_avg_pool", (tuple(x), tuple(sizes)):
            sides = zip(x[-len(sizes) :], sizes, strict=True)
            return math.prod(side // size + 2 for side, size in sides)
    return 1


def _require_bounded(shape: Shape, where: str) -> None:
    if len(shape) > MOST_AXES or 0 in shape:
        raise FormatError(f"{where}: {shape} has an axis of size 0, or more than {MOST_AXES} axes")
    if math.prod(shape) > MOST_NUMBERS:
        raise FormatError(f"{where}: a buffer would have more than {MOST_NUMBERS:,} numbers")
