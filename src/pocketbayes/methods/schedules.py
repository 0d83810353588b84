"""How learning rates change while training goes on."""

import math


def lr_scale(progress: float, warmup: float) -> float:
    """The share of the peak learning rate: rises linearly over `warmup`, then a half cosine."""
    if progress < warmup:
        return (progress + 1e-3) / (warmup + 1e-3)
    return (1 + math.cos(math.pi * (progress - warmup) / (1 - warmup))) / 2
