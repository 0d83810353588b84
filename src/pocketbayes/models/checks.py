"""What the networks ask of their options; files bring them too, so every size has a bound."""

import math
from collections.abc import Iterable, Sequence

from pocketbayes.errors import PocketBayesError, require_count, require_number

MOST_DIMENSIONS, MOST_VALUES, MOST_UNITS = 8, 2**28, 2**20
LEAST_WIDTH, MOST_WIDTH = 0.01, 16


def require_shape(input_shape: object) -> tuple[int, ...]:
    """Returns the shape of one input as a tuple, or says what is wrong with it."""
    if isinstance(input_shape, str) or not isinstance(input_shape, Sequence):
        raise PocketBayesError(
            "input_shape must be the shape of one input without its batch, such as (64,) or "
            f"(3, 32, 32); got {input_shape!r}"
        )
    if not 1 <= len(input_shape) <= MOST_DIMENSIONS:
        raise PocketBayesError(
            f"input_shape must have between 1 and {MOST_DIMENSIONS} dimensions; "
            f"got {len(input_shape)}"
        )
    shape = tuple(require_count(n, "every dimension of input_shape") for n in input_shape)
    if math.prod(shape) > MOST_VALUES:
        raise PocketBayesError(
            f"input_shape {shape} has more than {MOST_VALUES:,} values: use smaller inputs"
        )
    return shape


def require_image(input_shape: object, least_side: int) -> tuple[int, int, int]:
    """Returns (channels, height, width), or says what is wrong; no side is below `least_side`."""
    shape = require_shape(input_shape)
    if len(shape) != 3:
        raise PocketBayesError(
            "input_shape must be (channels, height, width), such as (3, 32, 32); "
            f"got {shape}, for which there is mlp"
        )
    channels, height, width = shape
    if min(height, width) < least_side:
        raise PocketBayesError(
            f"input_shape {shape} means images of {height} x {width} pixels (channels come "
            f"first), but this network needs at least {least_side} x {least_side}: enlarge or "
            "pad them, or use mlp"
        )
    return channels, height, width


def require_outputs(num_outputs: object) -> int:
    """Returns the number of outputs, or says what is wrong with it."""
    return _require_units(num_outputs, "num_outputs")


def require_widths(widths: object, name: str, most: int) -> tuple[int, ...]:
    """Returns the widths of at most `most` layers as a tuple, or says what is wrong with them."""
    if isinstance(widths, str) or not isinstance(widths, Sequence):
        raise PocketBayesError(
            f"{name} must be a sequence of widths, such as (128, 128) or (); got {widths!r}"
        )
    if len(widths) > most:
        raise PocketBayesError(f"{name} may have {most} layers at most; got {len(widths)}")
    return tuple(_require_units(width, f"every width in {name}") for width in widths)


def scaled(units: Iterable[int], width: object) -> tuple[int, ...]:
    """Units of layers, times `width`: each the nearest whole number, and at least 1."""
    factor = require_number(width, "width", least=LEAST_WIDTH, most=MOST_WIDTH)
    whole = (max(1, round(factor * number)) for number in units)
    return tuple(_require_units(number, "the units of a layer times width") for number in whole)


def require_dropout(dropout: object) -> float:
    """Returns a dropout rate in [0, 1), or says what is wrong with it."""
    rate = require_number(dropout, "dropout", least=0)
    if rate >= 1:
        raise PocketBayesError(
            f"dropout must be below 1, the fraction that is dropped; got {dropout!r}"
        )
    return rate


def _require_units(value: object, name: str) -> int:
    number = require_count(value, name)
    if number > MOST_UNITS:
        raise PocketBayesError(f"{name} must be at most {MOST_UNITS:,}; got {number}")
    return number
