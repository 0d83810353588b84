"""Which weights exist when sparse training starts."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from pocketbayes.layers import named_posteriors
from pocketbayes.methods.processes import agreed
from pocketbayes.methods.rows import per_unit
from pocketbayes.posteriors import (
    Gaussian,
    Packed,
    Point,
    Posterior,
    as_dense,
    as_packed,
    is_trainable,
    least_units,
    to_units,
    unit_layout,
)
from pocketbayes.sparsity import allocated, largest_of_all


class Part(NamedTuple):
    """What one tensor is to keep.

    Attributes:
        shape: of the tensor.
        structure: what its units are.
        units: how many it keeps.
        moves: whether weights may move to other tensors, and from them.
    """

    shape: tuple[int, ...]
    structure: str
    units: int
    moves: bool

    @property
    def number(self) -> int:
        """Units of the tensor, active or not."""
        return unit_layout(self.shape, self.structure)[0]

    @property
    def outputs(self) -> int:
        """Outputs, or blocks of them, that must each keep a unit."""
        return least_units(self.shape, self.structure)

    @property
    def weights(self) -> int:
        """How many weights it keeps."""
        return self.units * math.prod(unit_layout(self.shape, self.structure)[1])


def planned_parts(
    model: nn.Module,
    density: float,
    allocation: str,
    structure: str,
    dense_first: bool,
    densities: Mapping[str, float],
) -> dict[str, Part]:
    """The part of every tensor that learns, by name; the model is not touched."""
    found = {n: q for n, q in named_posteriors(model) if is_trainable(q)}
    layouts = {n: _layout(model, n, structure) for n in found}
    shapes = {n: tuple(q.shape) for n, q in found.items()}
    seen = {n: _outputs_first(shapes[n], layouts[n]) for n in found}
    dense = tuple(found)[:1] if dense_first else ()
    counts = allocated(seen, density, allocation, dense, densities)
    fixed = {*dense, *densities}
    return {
        name: Part(
            shapes[name],
            layouts[name],
            _units_for(shapes[name], counts[name], layouts[name]),
            allocation == "global" and density < 1 and name not in fixed,
        )
        for name in found
    }


def _layout(model: nn.Module, name: str, structure: str) -> str:
    """The structure, or "transposed" where the second axis of a weight is the output."""
    owner = model.get_submodule(name.rpartition(".")[0])
    transposed = isinstance(owner, nn.modules.conv._ConvTransposeNd)
    return "transposed" if transposed and name.endswith("weight") else structure


def _outputs_first(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    return (shape[1], shape[0], *shape[2:]) if layout == "transposed" else shape


def _units_for(shape: tuple[int, ...], weights: int, structure: str) -> int:
    """The number of units nearest to this many weights, enough to reach every output."""
    number, unit = unit_layout(shape, structure)
    wanted = round(weights / math.prod(unit))
    return min(number, max(wanted, least_units(shape, structure)))


def chosen_posteriors(
    posteriors: Mapping[str, Posterior],
    parts: Mapping[str, Part],
    score: Callable[[Posterior], Tensor],
    at_random: bool,
    across: bool,
) -> dict[str, Posterior]:
    """Each posterior with the units it is to keep; one that keeps all of them is dense.

    Args:
        posteriors: by name.
        parts: what each is to keep.
        score: how much each weight of a dense posterior matters.
        at_random: draw them instead; units that are there already still come first.
        across: rank the scores of tensors between which weights may move together.
    """
    moving = [n for n in parts if parts[n].moves]
    if _fit(moving, posteriors, parts, in_total=True):
        return {n: posteriors[n] for n in moving} | chosen_posteriors(
            posteriors, {n: p for n, p in parts.items() if n not in moving}, score, at_random, False
        )
    together = moving if across else []
    groups = [[n] for n in parts if n not in together] + ([together] if together else [])
    chosen: dict[str, Posterior] = {}
    for names in groups:
        if _fit(names, posteriors, parts):
            chosen |= {n: posteriors[n] for n in names}
            continue
        full = not parts[names[0]].moves and parts[names[0]].units == parts[names[0]].number
        dense = {n: _dense(posteriors[n]) for n in names}
        if full:
            chosen |= dense
            continue
        scores = [_unit_scores(posteriors[n], dense[n], parts[n], score, at_random) for n in names]
        indices = _largest(scores, [parts[n] for n in names])
        for name, index in zip(names, indices, strict=True):
            chosen[name] = as_packed(dense[name], index, parts[name].structure)
    return chosen


def _fit(
    names: Sequence[str],
    posteriors: Mapping[str, Posterior],
    parts: Mapping[str, Part],
    in_total: bool = False,
) -> bool:
    """Whether these are sparse already, as planned, with as many units each or in total."""
    found = [(posteriors[n], parts[n]) for n in names]
    if not found or not all(isinstance(q, Packed) for q, _ in found):
        return False
    packed = [(cast(Packed, q), part) for q, part in found]
    if any(q.structure != part.structure for q, part in packed):
        return False
    if in_total:
        return sum(len(q.index) for q, _ in packed) == sum(part.units for _, part in packed)
    return all(len(q.index) == p.units and (p.moves or p.units < p.number) for q, p in packed)


def _dense(posterior: Posterior) -> Gaussian | Point:
    return cast(
        Gaussian | Point, as_dense(posterior) if isinstance(posterior, Packed) else posterior
    )


@torch.no_grad()
def _unit_scores(
    posterior: Posterior,
    dense: Gaussian | Point,
    part: Part,
    score: Callable[[Posterior], Tensor],
    at_random: bool,
) -> Tensor:
    """A number for every unit; those that a sparse posterior lacks come last, in random order."""
    values = per_unit(to_units(score(dense), part.structure)).clone()
    if at_random:
        values.uniform_()
    if isinstance(posterior, Packed):
        there = posterior.placed(torch.ones_like(posterior.mean))
        lacking = per_unit(to_units(there, part.structure)) == 0
        values[lacking] = -torch.rand_like(values[lacking])
    return values


def _largest(scores: list[Tensor], parts: list[Part]) -> list[Tensor]:
    """For each tensor the units it keeps, chosen among all of them together.

    The first process decides: networks may have started differently elsewhere.
    """
    first = [0, *accumulate(part.outputs for part in parts)]
    outputs = [
        torch.arange(part.number, device=score.device) // (part.number // part.outputs) + begin
        for part, begin, score in zip(parts, first, scores, strict=False)
    ]
    count = sum(part.units for part in parts)
    places = agreed(largest_of_all(torch.cat(scores), count, torch.cat(outputs)))
    starts = [0, *accumulate(part.number for part in parts)]
    edges = torch.searchsorted(places, places.new_tensor(starts)).tolist()
    return [places[edges[i] : edges[i + 1]] - starts[i] for i in range(len(parts))]
