"""How long to train on how many rows, where the user does not say; measured in docs/sklearn.md."""

import math

_STEPS, _LEAST_PASSES = 2000, 20
_SMALLEST_BATCH, _LARGEST_BATCH = 64, 1024


def default_batch_size(rows: int) -> int:
    """A hundredth of the rows, but 64 to 1,024, and no more than there are."""
    return min(rows, max(_SMALLEST_BATCH, min(rows // 100, _LARGEST_BATCH)))


def default_epochs(rows: int, batch_size: int) -> int:
    """Passes that make 2,000 steps, at least 20."""
    return max(_LEAST_PASSES, math.ceil(_STEPS / math.ceil(rows / batch_size)))
