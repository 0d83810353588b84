"""How many weights each tensor may keep, so that the network as a whole keeps exactly its share.

Pure functions of shapes. `uniform` gives every tensor one density; `erk` (Erdos-Renyi-kernel)
gives (sum of dimensions) / (product of dimensions) times a common factor, so that small tensors
are denser; both are capped at 1, and what a cap cuts off goes to the others.
"""

import math
from collections.abc import Mapping, Sequence

from pocketbayes.errors import PocketBayesError, nearest, require_choice, require_number

ALLOCATIONS = ("uniform", "erk", "global")
Shape = Sequence[int]


def allocated(
    shapes: Mapping[str, Shape],
    density: float,
    allocation: str = "erk",
    dense: Sequence[str] = (),
    table: Mapping[str, float] | None = None,
) -> dict[str, int]:
    """Active weights of each tensor; their sum is round(density * weights), exactly.

    Args:
        shapes: of each tensor, by name.
        density: share of all weights that are active, above 0 and at most 1.
        allocation: "uniform", "erk" or "global" (which starts as uniform and then moves).
        dense: names of tensors that keep every weight.
        table: density of some tensors; it overrides everything else.

    Every tensor keeps at least one weight per output (see `least_active`), at the expense of the
    others and, if that alone exceeds the total, beyond it.
    """
    require_number(density, "density", above=0, most=1)
    require_choice(allocation, "allocation", ALLOCATIONS)
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    fixed = _fixed(sizes, dense, table or {})
    least = {name: least_active(shape) for name, shape in shapes.items()}
    free = [name for name in sizes if name not in fixed]
    total = round(density * sum(sizes.values())) - sum(fixed.values())
    if not free or total <= sum(least[name] for name in free):
        return {name: fixed.get(name, least[name]) for name in sizes}
    weight = {name: sizes[name] * _raw_density(shapes[name], allocation) for name in free}
    shares = _capped_shares(weight, total, least, sizes)
    counts = _whole_numbers(shares, total, least, sizes)
    return {name: fixed[name] if name in fixed else counts[name] for name in sizes}


def least_active(shape: Shape) -> int:
    """One weight per output: fewer would cut an output off from every input."""
    return int(shape[0]) if shape else 1


def _fixed(
    sizes: Mapping[str, int], dense: Sequence[str], table: Mapping[str, float]
) -> dict[str, int]:
    for name in (*dense, *table):
        if name not in sizes:
            known = ", ".join(list(sizes)[:5]) + (", ..." if len(sizes) > 5 else "")
            raise PocketBayesError(
                f"no sparse tensor is called {name!r}{nearest(name, sizes)}; there are {known}"
            )
    given = {
        name: max(
            1, round(require_number(share, f"density of {name}", above=0, most=1) * sizes[name])
        )
        for name, share in table.items()
    }
    return {name: sizes[name] for name in dense} | given


def _raw_density(shape: Shape, allocation: str) -> float:
    return sum(shape) / math.prod(shape) if allocation == "erk" else 1.0


def _capped_shares(
    weight: Mapping[str, float],
    total: int,
    least: Mapping[str, int],
    most: Mapping[str, int],
) -> dict[str, float]:
    """Shares in proportion to `weight`, within bounds, that sum to `total` (water filling)."""
    low, high = 0.0, max(most[name] / weight[name] for name in weight)
    for _ in range(200):
        factor = (low + high) / 2
        filled = sum(min(max(factor * w, least[n]), most[n]) for n, w in weight.items())
        low, high = (factor, high) if filled < total else (low, factor)
    return {n: min(max(high * w, float(least[n])), float(most[n])) for n, w in weight.items()}


def _whole_numbers(
    shares: Mapping[str, float], total: int, least: Mapping[str, int], most: Mapping[str, int]
) -> dict[str, int]:
    """Whole numbers near the shares that sum to `total`: the largest remainders are rounded up."""
    counts = {n: min(max(math.floor(s), least[n]), most[n]) for n, s in shares.items()}
    rest = total - sum(counts.values())
    order = sorted(shares, key=lambda n: (counts[n] - shares[n], n))
    while rest > 0:
        for name in order:
            if rest > 0 and counts[name] < most[name]:
                counts[name], rest = counts[name] + 1, rest - 1
    return counts
