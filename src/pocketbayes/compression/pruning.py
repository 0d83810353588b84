"""To a sparse network in one go: the weights that matter least are dropped after training."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import exp
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pocketbayes.compression.budgets import costs_at_most, least_density, measurement
from pocketbayes.compression.parts import Part, chosen_score, parts_of
from pocketbayes.compression.prices import affordable_masks, require_affordable
from pocketbayes.errors import DataError, PocketBayesError, require_choice, require_number
from pocketbayes.layers import Inputs, replace_posterior, require_module
from pocketbayes.posteriors import thinned
from pocketbayes.prediction import Record
from pocketbayes.sparsity import Ranking, best_units, ranked, units_above

SCOPES = ("network", "layer")
_OWN_THRESHOLDS = {"inclusion": 0.0, "snr": exp(-1.5)}  # p = 1/2 as log-odds, log alpha = 3


class Group(NamedTuple):
    """Tensors whose units are ranked together, and all their weights, there or not."""

    names: list[str]
    ranking: Ranking
    num_weights: int

    def masks(self, density: float) -> dict[str, Tensor]:
        """For each tensor the units that stay at this density; all, if fewer are there."""
        masks = best_units(self.ranking, round(density * self.num_weights))
        return dict(zip(self.names, masks, strict=True))

    def density(self) -> float:
        """The share of the weights that are there."""
        return self.ranking.num_weights / self.num_weights


@torch.no_grad()
def prune_(
    model: nn.Module,
    density: float | None = None,
    *,
    by: str | None = None,
    within: str = "network",
    budget: float | None = None,
    loader: Iterable[Any] | None = None,
    num_samples: int = 30,
    seed: int = 0,
    max_multiplications: float | None = None,
    example: Inputs | None = None,
) -> nn.Module:
    """Drops the weights that matter least, in place, and returns the model.

    Gaussians become sparse ones, points sparse points, sparse tensors sparser; what is dropped is
    exactly 0, and stays so when `MeanField` or `Deterministic` trains it. Every tensor keeps its
    best weight or unit; a frozen one is pruned too. `save(model, path).active_weights` tells how
    many are left.

    Args:
        model: a trained one.
        density: share of the weights to keep, exactly; fewer where only whole units (a gated input,
            a block) can go, or more if the best unit of each tensor is more.
            None: as `budget` says or, without one, the weights to which `SpikeSlab` gives p of at
            least 1/2 (the median probability model), or `VariationalDropout` a log alpha below 3.
        by: what the kept ones have most of: "inclusion" (p; every tensor that has inclusion
            variables counts), "snr" (|mean| / std) or "magnitude" (|mean|),
            which both leave vectors such as biases alone. None: the first of these that the model
            has.
        within: "network" (weights of all tensors are ranked together) or "layer" (every tensor
            keeps the same share).
        budget: keep as few weights as cost at most so much accuracy on the loader, 0.005 being half
            a point; in regression, as raise the RMSE by at most this share of it.
        loader: validation data for the budget, never the test set; it is read once.
        num_samples: draws per prediction for the budget.
        seed: of those draws.
        max_multiplications: of a pass over one example, as `multiplications` counts them without
            zeros. With a density: where the best weights take more, those that are used at many
            positions, as in early convolutions, give way to others.
        example: a batch of inputs, to count them on: x[:1].

    Example:
        >>> fit(prune_(model, 0.05, by="magnitude"), loader, Deterministic(), epochs=10)
        >>> prune_(model, budget=0.005, loader=validation_loader)
        >>> prune_(model, 0.05, max_multiplications=2e7, example=x[:1])
    """
    require_module(model)
    require_choice(within, "within", SCOPES)
    _check_amount(density, budget, loader)
    require_affordable(density, within, max_multiplications, example)
    by = chosen_score(model, by)
    unsaid = density is None and budget is None
    parts = parts_of(model, by, with_own_threshold=unsaid)
    if unsaid:
        least = _OWN_THRESHOLDS[by]
        _keep_(model, parts, {name: units_above(p.score, least) for name, p in parts.items()})
        return model
    groups = _groups(parts, within)
    if density is not None:
        _require_enough(groups, density)
        masks = _masks(groups, density)
        if max_multiplications is not None and example is not None:
            number = round(density * groups[0].num_weights)
            masks = affordable_masks(model, parts, number, max_multiplications, example)
        _keep_(model, parts, masks)
    elif budget is not None and loader is not None:
        tops = [_own_density(parts, by)] if by in _OWN_THRESHOLDS else []
        measure = measurement(model, loader, num_samples, seed)
        _keep_within_budget_(model, parts, groups, tops, budget, measure)
    return model


def _check_amount(density: object, budget: object, loader: object) -> None:
    """An error unless it is clear how much is to be kept."""
    if density is not None and budget is not None:
        raise PocketBayesError("density and budget both say how much to keep: give one of them")
    if density is not None:
        require_number(density, "density", above=0, most=1)
    if (budget is None) != (loader is None):
        raise PocketBayesError(
            "a budget needs data to measure on, and only a budget needs it: give budget=0.005 "
            "together with loader=validation_loader, or neither"
        )
    if budget is not None:
        require_number(budget, "budget", least=0)
        if not isinstance(loader, Iterable):
            raise DataError(f"the loader is a {type(loader).__name__}; pass a DataLoader or a list")


def _groups(parts: Mapping[str, Part], within: str) -> list[Group]:
    """Tensors to rank together: all of them, or each alone."""
    found = []
    for names in [list(parts)] if within == "network" else [[name] for name in parts]:
        members = [parts[name] for name in names]
        ranking = ranked([p.rank for p in members], [p.size for p in members])
        found.append(Group(names, ranking, sum(p.posterior.shape.numel() for p in members)))
    return found


def _require_enough(groups: Sequence[Group], density: float) -> None:
    for group in groups:
        if round(density * group.num_weights) > group.ranking.num_weights:
            what = group.names[0] if len(groups) > 1 else "the model"
            raise PocketBayesError(
                f"density {density:g} asks for more weights than {what} has: it is sparse already, "
                f"with a density of {group.density():.3g}, and pruning can only lower that"
            )


def _masks(groups: Sequence[Group], density: float) -> dict[str, Tensor]:
    return {name: mask for group in groups for name, mask in group.masks(density).items()}


def _keep_(model: nn.Module, parts: Mapping[str, Part], masks: Mapping[str, Tensor]) -> None:
    """Puts what is left of each tensor in its place."""
    for name, part in parts.items():
        replace_posterior(model, name, thinned(part.posterior, masks[name]))


def _own_density(parts: Mapping[str, Part], by: str) -> float:
    """The share of the weights that lie above the score's own threshold."""
    least = _OWN_THRESHOLDS[by]
    kept = sum(p.size * int(units_above(p.score, least).sum()) for p in parts.values())
    return kept / sum(p.posterior.shape.numel() for p in parts.values())


def _keep_within_budget_(
    model: nn.Module,
    parts: Mapping[str, Part],
    groups: Sequence[Group],
    tops: list[float],
    budget: float,
    measure: Callable[[], Record],
) -> None:
    """Prunes to the least density that costs at most the budget; after an error, not at all."""
    before = measure()

    def is_good(density: float) -> bool:
        _keep_(model, parts, _masks(groups, density))
        return costs_at_most(budget, before, measure())

    least = 1 / sum(group.num_weights for group in groups)
    tops = [*tops, max(group.density() for group in groups)]
    try:
        _keep_(model, parts, _masks(groups, least_density(is_good, least, tops)))
    except BaseException:
        for name, part in parts.items():
            replace_posterior(model, name, part.posterior)
        raise
