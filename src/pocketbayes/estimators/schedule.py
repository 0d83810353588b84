"""How long to train on how many rows, where the user does not say."""

import math

_BATCH = 32
_STEPS = 3000
_PASSES = 30


def default_batch_size(rows: int) -> int:
    """Rows in a batch."""
    return min(rows, _BATCH)


def default_epochs(rows: int, batch_size: int) -> int:
    """Passes over the data."""
    return max(_PASSES, math.ceil(_STEPS / math.ceil(rows / batch_size)))
