"""What is left of a model at a density, and at a number of multiplications as well."""

from collections.abc import Mapping

from torch import Tensor, nn

from pocketbayes.compression.parts import Part
from pocketbayes.errors import PocketBayesError, require_number
from pocketbayes.layers import Inputs, uses_of_weights
from pocketbayes.sparsity import affordable_units


def require_affordable(
    density: object, within: str, max_multiplications: object, example: object
) -> None:
    """An error unless both numbers are there, or neither limit nor example."""
    if (max_multiplications is None) != (example is None):
        raise PocketBayesError(
            "max_multiplications are those of a pass over an example, and only they need one: give "
            "max_multiplications=1e6 together with example=x[:1], or neither"
        )
    if max_multiplications is None:
        return
    require_number(max_multiplications, "max_multiplications", above=0)
    if density is None or within != "network":
        raise PocketBayesError(
            "max_multiplications choose among weights of all tensors, at a density: give "
            'density=0.05, too, and within="network"'
        )


def affordable_masks(
    model: nn.Module, parts: Mapping[str, Part], num_kept: int, most: float, example: Inputs
) -> dict[str, Tensor]:
    """For each tensor the units that stay, so many weights in all, within `most` multiplications.

    What a weight is worth is the square of its SNR or magnitude, or the log-odds of its inclusion:
    nats, up to a factor, that the fit loses without it. Its price is its number of positions.
    """
    uses, there = uses_of_weights(model, example), list(parts.values())
    pruned = {id(part.posterior) for part in there}
    fixed = sum(use.positions * use.active for use in uses if id(use.weight) not in pruned)
    prices = [sum(use.positions for use in uses if use.weight is part.posterior) for part in there]
    worth, sizes = [part.worth() for part in there], [part.size for part in there]
    try:
        masks = affordable_units(worth, sizes, prices, num_kept, most - fixed)
    except PocketBayesError as error:
        beside = f", beside {fixed:,.0f} by weights that stay" if fixed else ""
        raise PocketBayesError(
            f"{most:,.0f} multiplications are too few at this density: {error}{beside}; allow "
            "more, or keep fewer weights"
        ) from error
    return dict(zip(parts, masks, strict=True))
