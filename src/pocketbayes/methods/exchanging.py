"""What sparse training shares: which weights there are at first, and how they change places.

Every `update_every` steps a share of the active weights, those that matter least, is dropped, and
as many are added where the gradient is largest. Subclasses say what "matters" means.
"""

import math
import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from pocketbayes.allocation import ALLOCATIONS, allocated
from pocketbayes.convert import named_posteriors, replace_posterior
from pocketbayes.environment import agreed
from pocketbayes.errors import PocketBayesError, require_choice, require_count, require_number
from pocketbayes.exchange import largest_of_all
from pocketbayes.methods.base import Method, Moment
from pocketbayes.methods.rows import Row, per_unit
from pocketbayes.posteriors import STRUCTURES, Gaussian, Packed, Point, Posterior
from pocketbayes.posteriors.conversions import as_dense, as_packed, is_trainable
from pocketbayes.posteriors.structures import least_units, to_units, unit_layout
from pocketbayes.repacking import Optimizers, repack_

GROWTHS = ("one_step", "mean", "multi_step")


@dataclass(frozen=True, kw_only=True)
class ExchangingMethod(Method):
    """Settings of sparse training.

    Attributes:
        density: share of the weights that exist, from the first step to the last.
        allocation: "erk" (small layers are denser), "uniform", or "global" (weights move between
            layers).
        densities: density of single tensors, by the name of the parameter; overrides the rest.
        dense_first: keep the first layer whole.
        structure: what is kept or dropped as a whole: "none" (single weights), "block16" (16
            outputs of one input) or "channel" (an input channel).
        initial: which weights exist at first: "largest" by the criterion, or "random".
        growth: gradient that newcomers are chosen by: "one_step" (of this batch), "mean" (of this
            batch, no noise) or "multi_step" (mean size over the last `growth_steps` batches).
        growth_steps: batches of "multi_step".
        update_every: steps from one exchange to the next.
        fraction: share of the active weights exchanged at first.
        schedule: how that share falls: "cosine" (to 0), or "constant".
        exchange_until: share of training after which places are fixed.
    """

    density: float = 0.1
    allocation: str = "erk"
    densities: Mapping[str, float] | None = None
    dense_first: bool = False
    structure: str = "none"
    initial: str = "largest"
    growth: str = "one_step"
    growth_steps: int = 5
    update_every: int = 100
    fraction: float = 0.3
    schedule: str = "cosine"
    exchange_until: float = 0.75

    def __post_init__(self) -> None:
        super().__post_init__()
        kind = type(self).__name__
        require_number(self.density, f"{kind}.density", above=0, most=1)
        require_choice(self.allocation, f"{kind}.allocation", ALLOCATIONS)
        require_choice(self.structure, f"{kind}.structure", STRUCTURES)
        require_choice(self.initial, f"{kind}.initial", ("largest", "random"))
        require_choice(self.growth, f"{kind}.growth", GROWTHS)
        require_choice(self.schedule, f"{kind}.schedule", ("cosine", "constant"))
        require_count(self.update_every, f"{kind}.update_every")
        require_count(self.growth_steps, f"{kind}.growth_steps")
        if self.growth == "multi_step" and self.growth_steps > self.update_every:
            raise PocketBayesError(f"{kind}.growth_steps must not exceed update_every")
        require_number(self.fraction, f"{kind}.fraction", least=0, most=1)
        require_number(self.exchange_until, f"{kind}.exchange_until", least=0, most=1)
        for name, density in (self.densities or {}).items():
            require_number(density, f"{kind}.densities[{name!r}]", above=0, most=1)
        if self.allocation == "global" and self.structure != "none":
            raise PocketBayesError(
                f'{kind}: allocation="global" compares single weights: use structure="none", or '
                '"erk" or "uniform"'
            )

    @abstractmethod
    def score(self, posterior: Posterior) -> Tensor:
        """How much each weight matters, in the shape of the posterior's means."""

    @abstractmethod
    def newcomers(self, posterior: Packed) -> dict[str, float]:
        """What each parameter of a weight just added is, by name."""

    @property
    def resizes(self) -> bool:
        """Weights that move between layers change their sizes."""
        return self.allocation == "global"

    def start(self, model: nn.Module) -> None:
        """Makes every trainable posterior sparse; one with all its weights stays dense."""
        super().start(model)
        found = {n: q for n, q in named_posteriors(model) if is_trainable(q)}
        shapes = {name: tuple(q.shape) for name, q in found.items()}
        dense = tuple(shapes)[:1] if self.dense_first else ()
        counts = allocated(shapes, self.density, self.allocation, dense, self.densities)
        self._warn_if_denser(shapes, counts)
        for name, posterior in found.items():
            units = units_for(shapes[name], counts[name], self.structure)
            replace_posterior(model, name, self._with_units(posterior, units))

    def _warn_if_denser(
        self, shapes: Mapping[str, tuple[int, ...]], counts: Mapping[str, int]
    ) -> None:
        total = sum(math.prod(shape) for shape in shapes.values())
        kept = sum(counts.values())
        if kept > round(self.density * total) and not self.densities:
            warnings.warn(
                f"density {self.density:g} would leave outputs without any weight: one weight per "
                f"output is kept, {kept:,} of {total:,} weights (density {kept / total:.3g})",
                stacklevel=4,
            )

    def _with_units(self, posterior: Posterior, units: int) -> Posterior:
        """The posterior with this many units, chosen as `initial` says."""
        shape = tuple(posterior.shape)
        number, _ = unit_layout(shape, self.structure)
        if isinstance(posterior, Packed):
            same = posterior.structure == self.structure and len(posterior.index) == units
            if same and (units < number or self.resizes):
                return posterior
            posterior = as_dense(posterior)
        if units == number and not self.resizes:
            return posterior
        score = per_unit(to_units(self.score(posterior).detach(), self.structure))
        if self.initial == "random":
            score = torch.rand_like(score)
        units_per_output = number // least_units(shape, self.structure)
        outputs = torch.arange(number, device=score.device) // units_per_output
        index = agreed(largest_of_all(score, units, outputs))
        return as_packed(cast(Gaussian | Point, posterior), index, self.structure)

    def after_step(self, model: nn.Module, moment: Moment) -> bool:
        """Exchanges weights when it is time; returns whether a tensor changed its size."""
        share = self.exchange_fraction(moment.progress)
        if share == 0:
            moment.memory.clear()
            return False
        wait = -moment.step % self.update_every
        if wait >= (self.growth_steps if self.growth == "multi_step" else 1):
            return False
        gradients = moment.dense_gradients("mean" if self.growth == "mean" else None)
        if self.growth == "multi_step":
            for name, gradient in gradients.items():
                gradients[name] = gradient.abs() + moment.memory.pop(name, 0)
        if wait:
            moment.memory.update(gradients)
            return False
        return self._exchange_(model, gradients, share, moment.optimizers)

    def exchange_fraction(self, progress: float) -> float:
        """r_t = fraction (1 + cos(pi t / T_end)) / 2, or the fraction if constant; 0 from T_end."""
        if progress >= self.exchange_until:
            return 0.0
        if self.schedule == "constant":
            return self.fraction
        return self.fraction * (1 + math.cos(math.pi * progress / self.exchange_until)) / 2

    @torch.no_grad()
    def _exchange_(
        self, model: nn.Module, growth: Mapping[str, Tensor], share: float, optimizers: Optimizers
    ) -> bool:
        """Exchanges within each tensor or, by "global", within all of them together."""
        packed = {n: q for n, q in named_posteriors(model) if isinstance(q, Packed)}
        together = [n for n in packed if self.resizes and n not in (self.densities or {})]
        groups = [[name] for name in packed if name not in together]
        rows = [
            Row([packed[n] for n in names], [self.score(packed[n]) for n in names],
                [growth[n] for n in names], share)
            for names in [*groups, *([together] if together else [])]
        ]  # fmt: skip
        resized = False
        for row in rows:
            for posterior, part in row.parts(row.exchanged()):
                resized |= repack_(posterior, part, self.newcomers(posterior), optimizers)
        return resized


def units_for(shape: tuple[int, ...], weights: int, structure: str) -> int:
    """The number of units nearest to this many weights, enough to reach every output."""
    number, unit = unit_layout(shape, structure)
    wanted = round(weights / math.prod(unit))
    return min(number, max(wanted, least_units(shape, structure)))
