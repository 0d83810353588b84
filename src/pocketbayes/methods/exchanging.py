"""What sparse training shares: which weights there are at first, and how they change places.

Every `update_every` steps a share of the active weights, those that matter least, is dropped, and
as many are added where the gradient is largest. Subclasses say what "matters" means.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from pocketbayes.errors import (
    PocketBayesError,
    require_choice,
    require_count,
    require_number,
    require_truth,
    warn,
)
from pocketbayes.layers import named_posteriors, replace_posterior
from pocketbayes.methods.base import Method, StepContext, unshare_
from pocketbayes.methods.rows import Row
from pocketbayes.methods.support import Part, chosen_posteriors, planned_parts
from pocketbayes.posteriors import STRUCTURES, Packed, Posterior
from pocketbayes.sparsity import ALLOCATIONS, Optimizers, repack_

GROWTHS = ("one_step", "mean", "multi_step")


@dataclass(frozen=True, kw_only=True)
class ExchangingMethod(Method):
    """Settings of sparse training.

    Attributes:
        density: share of the weights that exist, from the first step to the last.
        allocation: "erk" (small layers are denser), "uniform", or "global" (weights move between
            layers).
        densities: density of single tensors, by the name of the parameter; overrides the rest.
        dense_first: keep the first layer dense.
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
        require_truth(self.dense_first, f"{kind}.dense_first")
        require_count(self.update_every, f"{kind}.update_every")
        require_count(self.growth_steps, f"{kind}.growth_steps")
        if self.growth == "multi_step" and self.growth_steps > self.update_every:
            raise PocketBayesError(f"{kind}.growth_steps must not exceed update_every")
        require_number(self.fraction, f"{kind}.fraction", least=0, most=1)
        require_number(self.exchange_until, f"{kind}.exchange_until", least=0, most=1)
        self._check_densities()
        if self.allocation == "global" and self.structure != "none":
            raise PocketBayesError(
                f'{kind}: allocation="global" compares single weights: use structure="none", or '
                '"erk" or "uniform"'
            )

    def _check_densities(self) -> None:
        kind = f"{type(self).__name__}.densities"
        if self.densities is None:
            return
        if not isinstance(self.densities, Mapping):
            raise PocketBayesError(f"{kind} must map names to densities; got {self.densities!r}")
        plain = {
            str(name): float(require_number(density, f"{kind}[{name!r}]", above=0, most=1))
            for name, density in self.densities.items()
        }
        object.__setattr__(self, "densities", plain)

    @abstractmethod
    def score(self, posterior: Posterior) -> Tensor:
        """How much each weight matters, in the shape of the posterior's means."""

    @abstractmethod
    def newcomers(self, posterior: Packed) -> dict[str, float]:
        """What each parameter of a weight just added is, by name."""

    @abstractmethod
    def prepare_(self, model: nn.Module) -> None:
        """Gives every posterior the family, points or Gaussians, that is then made sparse."""

    @abstractmethod
    def ranks_across(self, model: nn.Module) -> bool:
        """Whether scores of different tensors can be compared before training."""

    @property
    def resizes(self) -> bool:
        """Weights that move between layers change their sizes."""
        return self.allocation == "global" and self.density < 1

    def start(self, model: nn.Module) -> None:
        """Makes every trainable posterior sparse; one with all its weights stays dense."""
        Method.start(self, model)
        unshare_(model)
        parts = planned_parts(
            model,
            self.density,
            self.allocation,
            self.structure,
            self.dense_first,
            self.densities or {},
        )
        self._warn_if_denser(parts)
        self.prepare_(model)
        found = {n: q for n, q in named_posteriors(model) if n in parts}
        at_random, across = self.initial == "random", self.ranks_across(model)
        chosen = chosen_posteriors(found, parts, self.score, at_random, across)
        for name, posterior in chosen.items():
            replace_posterior(model, name, posterior)

    def _warn_if_denser(self, parts: Mapping[str, Part]) -> None:
        """Says so if more weights are kept than asked for, and why that may be."""
        total = sum(math.prod(part.shape) for part in parts.values())
        kept = sum(part.weights for part in parts.values())
        wanted = round(self.density * total)
        if kept > wanted * (1 if self.structure == "none" else 1.02):
            reasons = ["every output keeps a weight"]
            reasons += ["the first layer is dense"] if self.dense_first else []
            reasons += ["of the table of densities"] if self.densities else []
            reasons += ["only whole units are kept"] if self.structure != "none" else []
            warn(
                f"density {self.density:g} is {wanted:,} of {total:,} weights, but {kept:,} are "
                f"kept (density {kept / total:.3g}), because {' and '.join(reasons)}",
            )

    def after_step(self, model: nn.Module, context: StepContext) -> bool:
        """Exchanges weights when it is time; returns whether a tensor changed its size."""
        share = self.exchange_fraction(context.progress)
        if share == 0:
            context.memory.clear()
            return False
        wait = -context.step % self.update_every
        if wait >= (self.growth_steps if self.growth == "multi_step" else 1):
            return False
        gradients = context.dense_gradients("mean" if self.growth == "mean" else None)
        if self.growth == "multi_step":
            for name, gradient in gradients.items():
                gradients[name] = gradient.abs() + context.memory.pop(name, 0)
        if wait:
            context.memory.update(gradients)
            return False
        return self._exchange_(model, gradients, share, context.optimizers)

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
        packed = {n: q for n, q in named_posteriors(model) if n in growth}
        together = [n for n in packed if self.resizes and n not in (self.densities or {})]
        groups = [[name] for name in packed if name not in together]
        rows = [
            Row([cast(Packed, packed[n]) for n in names], [self.score(packed[n]) for n in names],
                [growth[n] for n in names], share)
            for names in [*groups, *([together] if together else [])]
        ]  # fmt: skip
        resized = False
        for row in rows:
            for posterior, part in row.parts(row.exchanged()):
                resized |= repack_(posterior, part, self.newcomers(posterior), optimizers)
        return resized
