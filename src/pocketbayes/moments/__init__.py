"""Mean and variance carried through a network in closed form: a value, and rules for operations.

`Moments` goes through the code of a network as a tensor does; `RULES` says what each operation
makes of it, one function an operation.
"""

from pocketbayes.moments import (  # noqa: F401  they fill the table
    activations,
    arithmetic,
    attention,
    linear,
    norms,
    pooling,
    recurrent,
    shapes,
)
from pocketbayes.moments.linear import linear_moments
from pocketbayes.moments.shapes import positions_regrouped
from pocketbayes.moments.value import (
    METADATA,
    Moments,
    by_rule,
    carrying,
    is_carrying,
    running_module,
)

__all__ = [
    "METADATA",
    "Moments",
    "by_rule",
    "carrying",
    "is_carrying",
    "linear_moments",
    "positions_regrouped",
    "running_module",
]
