"""Dead units taken out of a network, so that it is smaller and faster."""

from pocketbayes.shrinking import (  # noqa: F401  they fill the table
    attention,
    moves,
    numberwise,
    products,
)
from pocketbayes.shrinking.dead_units import shrink

__all__ = [
    "shrink",
]
