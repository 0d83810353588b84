"""Units of a weight tensor: what a sparse posterior keeps or drops as a whole.

Pure functions between a dense tensor and its units, one unit per row.
"""

from math import prod

from torch import Tensor

STRUCTURES = ("none", "block16", "channel")
# Those a posterior may have: "transposed" is "none" for a weight whose second axis is its output.
LAYOUTS = (*STRUCTURES, "transposed")
_BLOCK = 16


def unit_layout(shape: tuple[int, ...], structure: str) -> tuple[int, tuple[int, ...]]:
    """Number of units, and the shape of one: () for single weights, else (width,).

    "block16": up to 16 consecutive outputs that read the same input (the largest number up to 16
    that divides the outputs). "channel": all weights that read one input channel, or feature (in a
    grouped convolution, the same one of each group). "transposed": single weights, in the order of
    the tensor with its first two axes swapped, for transposed convolutions. Vectors such as biases
    always come weight by weight.
    """
    size = prod(shape)
    if structure in ("none", "transposed") or len(shape) < 2:
        return size, ()
    width = _block(shape) if structure == "block16" else size // shape[1]
    return size // width, (width,)


def to_units(dense: Tensor, structure: str) -> Tensor:
    """A dense tensor as its units, in their order."""
    number, unit = unit_layout(tuple(dense.shape), structure)
    if structure == "transposed":
        return dense.transpose(0, 1).reshape(-1)
    if not unit:
        return dense.reshape(-1)
    if structure == "block16":
        width = unit[0]
        return dense.reshape(dense.shape[0] // width, width, -1).transpose(1, 2).reshape(-1, width)
    return dense.transpose(0, 1).reshape(number, -1)


def from_units(units: Tensor, shape: tuple[int, ...], structure: str) -> Tensor:
    """The dense tensor whose units these are."""
    _, unit = unit_layout(shape, structure)
    if not unit and structure != "transposed":
        return units.view(shape)
    if structure == "block16":
        width = unit[0]
        return units.view(shape[0] // width, -1, width).transpose(1, 2).reshape(shape)
    return units.view(shape[1], shape[0], *shape[2:]).transpose(0, 1).contiguous()


def placed_units(
    units: Tensor, index: Tensor, shape: tuple[int, ...], structure: str, fill: float = 0.0
) -> Tensor:
    """The dense tensor with these units at these places, and `fill` elsewhere."""
    number, _ = unit_layout(shape, structure)
    everything = units.new_full((number, *units.shape[1:]), fill)
    return from_units(everything.index_copy(0, index, units), shape, structure)


def output_borders(shape: tuple[int, ...], structure: str) -> list[int]:
    """The number of the first unit of each output, or block of outputs, and the end."""
    number, _ = unit_layout(shape, structure)
    return list(range(0, number + 1, number // least_units(shape, structure)))


def least_units(shape: tuple[int, ...], structure: str) -> int:
    """As many units as reach every output once."""
    _, unit = unit_layout(shape, structure)
    if unit and structure == "channel":
        return 1
    if structure == "transposed":
        return shape[1]
    return shape[0] // (unit[0] if unit else 1) if shape else 1


def _block(shape: tuple[int, ...]) -> int:
    return max(width for width in range(1, _BLOCK + 1) if shape[0] % width == 0)
