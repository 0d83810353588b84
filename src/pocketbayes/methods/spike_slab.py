"""Spike-and-slab variational inference: which weights, inputs and outputs are there at all."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pocketbayes.errors import PocketBayesError, require_choice, require_number, require_truth
from pocketbayes.layers import named_posteriors, owners_of, replace_posterior
from pocketbayes.methods.base import WITHOUT_INCLUSION_VARIABLES, StepContext, VariationalMethod
from pocketbayes.posteriors import (
    GRANULARITIES,
    LEAST_INCLUSION,
    MOST_DRAWN_LOG_ODDS,
    MOST_LOG_ODDS,
    Gaussian,
    NarrowSpike,
    Packed,
    Posterior,
    as_unshared,
    at_least_single,
    is_trainable,
    log_odds_of,
    stationary_log_odds,
)
from pocketbayes.posteriors import SpikeSlab as SpikeSlabPosterior

_MOVED = "beta of the last move"  # in the memory, whose other names are those of posteriors
_WEIGHT = ", weight of the mean"  # behind such a name


@dataclass(frozen=True, kw_only=True)
class SpikeSlab(VariationalMethod):
    """Spike-and-slab VI (Saha et al. 2024): learns which weights are there at all.

    Minimises E_q[-log p(D | w)] + beta [p KL(slab || prior) + KL(Bern(p) || Bern(inclusion))],
    means and stds by gradients, each p by damped steps towards its closed-form optimum
    logit p = logit inclusion - KL + gain / beta. `prune_` then drops what has p < 1/2.

    Attributes:
        inclusion: prior probability of inclusion, P(gamma = 1); at least 6.2e-6, the least
            that log-odds, which stay within 12, can hold.
        granularity: what has an inclusion variable: "weight", "input" (a feature, or channel:
            selects features) or "output" (a unit, or filter: makes the network smaller). Biases go
            one by one; an input of an Embedding is a row.
        layers: "all", or "first": only the first layer that has a posterior has inclusion
            variables, which with granularity="input" chooses among features and leaves the network
            as it is.
        spike: what a weight is where gamma = 0: "dirac" (0), or "gaussian": only
            its prior is narrow, and `prune_` makes it 0. The optimum of p then is that of the prior
            alone, logit p = logit inclusion + KL(q || spike) - KL(q || slab).
        spike_scale: std of the gaussian spike, as a share of the slab's.
        initial_inclusion: inclusion probability at first. None: 0.98, and
            0.5 with spike="gaussian", whose weights would spread over the slab while p is near 1,
            which then is reason enough for p to stay there.
        optimum: how the optimum of an inclusion variable is found: "gradient", by logit inclusion -
            KL + gain / beta with the gain's gradient, averaged over batches; or "density", by logit
            inclusion + log slab(0) - log q(0): without noise, and the same where the loss is
            quadratic, so for networks that fit already; of inputs and outputs it leaves out how
            their weights act together. A gaussian spike has an optimum of its own.
        hold: share of training before inclusion variables move; the network must fit first.
        step: part of the way to its optimum that an inclusion variable goes in one optimiser step.
        averaging: weight of the past in the running mean of optima.
        learn_inclusion: set the prior probability to the mean of all p, after every epoch once
            inclusion variables move: not while `hold` lasts.
    """

    inclusion: float = 0.1
    granularity: str = "weight"
    layers: str = "all"
    spike: str = "dirac"
    spike_scale: float = 0.1
    initial_inclusion: float | None = None
    optimum: str = "gradient"
    hold: float = 0.3
    step: float = 0.05
    averaging: float = 0.99
    learn_inclusion: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("inclusion", "initial_inclusion"):
            value = getattr(self, name)
            if name == "inclusion" or value is not None:
                least = LEAST_INCLUSION
                require_number(value, f"SpikeSlab.{name}", least=least, most=1 - least)
        require_choice(self.granularity, "SpikeSlab.granularity", GRANULARITIES)
        require_choice(self.layers, "SpikeSlab.layers", ("all", "first"))
        require_choice(self.spike, "SpikeSlab.spike", ("dirac", "gaussian"))
        require_choice(self.optimum, "SpikeSlab.optimum", ("gradient", "density"))
        require_number(self.spike_scale, "SpikeSlab.spike_scale", above=0, most=0.999)
        require_number(self.hold, "SpikeSlab.hold", least=0, most=1)
        require_number(self.step, "SpikeSlab.step", above=0, most=1)
        require_number(self.averaging, "SpikeSlab.averaging", least=0, most=0.9999)
        require_truth(self.learn_inclusion, "SpikeSlab.learn_inclusion")

    @property
    def _at_first(self) -> float:
        """Inclusion probability at first."""
        if self.initial_inclusion is not None:
            return self.initial_inclusion
        return 0.5 if self.spike == "gaussian" else 0.98

    def start(self, model: nn.Module) -> None:
        """Gives every Gaussian that learns its inclusion variables; an error changes nothing."""
        chosen = [name for name, _ in named_posteriors(model)]
        if self.layers == "first":
            matrices = [name for name, q in named_posteriors(model) if len(q.shape) > 1]
            chosen = (matrices or chosen)[:1]
        for name, q in named_posteriors(model):
            self._require_fit(model, name, as_unshared(q), name in chosen)
        if chosen and not any(is_trainable(as_unshared(q)) for _, q in named_posteriors(model)):
            raise PocketBayesError(
                "no weight learns, so none can have an inclusion variable: unfreeze some"
            )
        super().start(model)
        for name, q in list(named_posteriors(model)):
            q = as_unshared(q)
            if name in chosen and isinstance(q, SpikeSlabPosterior):
                self._take_over_(q)
            elif name in chosen and isinstance(q, Gaussian) and is_trainable(q):
                replace_posterior(
                    model, name, self._with_inclusion_variables(q, *self._layout(model, name, q))
                )

    def _require_fit(self, model: nn.Module, name: str, q: Posterior, chosen: bool) -> None:
        """An error if this posterior cannot be trained so."""
        if not chosen and isinstance(q, SpikeSlabPosterior):
            raise PocketBayesError(
                f'{name} has inclusion variables of an earlier run, which layers="first" would '
                f'leave as they are: say layers="all", or {WITHOUT_INCLUSION_VARIABLES}'
            )
        if chosen and isinstance(q, Packed):
            raise PocketBayesError(
                f"{name} is sparse already: spike-and-slab decides that itself, so start from a "
                "dense model, or train this one on with MeanField"
            )
        if chosen and isinstance(q, SpikeSlabPosterior):
            kind = NarrowSpike if self.spike == "gaussian" else SpikeSlabPosterior
            if type(q) is not kind or (q.granularity, q.axis) != self._layout(model, name, q):
                raise PocketBayesError(
                    f"{name} has inclusion variables of another spike or granularity: train on "
                    f"with those, or {WITHOUT_INCLUSION_VARIABLES}"
                )
        elif chosen and is_trainable(q):
            self._layout(model, name, q)
        elif self.layers == "first" and chosen:
            raise PocketBayesError(
                f"{name}, the first layer's, does not learn, so it has no inclusion variables: "
                'unfreeze it, or say layers="all"'
            )

    def _require_all_inputs(self, name: str, owner: nn.Module) -> None:
        """An error if the first layer reads its inputs by other weights, too."""
        is_one_way = not getattr(owner, "bidirectional", False)
        if self.layers == "first" and self.granularity == "input" and not is_one_way:
            raise PocketBayesError(
                f"{name} reads the inputs in one direction only, and those of the other would stay "
                'without inclusion variables: use a layer of one direction, or say layers="all"'
            )

    def _take_over_(self, q: SpikeSlabPosterior) -> None:
        """Gives inclusion variables of an earlier run this one's prior; their p stays."""
        q.prior_log_odds.fill_(log_odds_of(self.inclusion))
        if isinstance(q, NarrowSpike):
            q.spike_std.copy_(self.spike_scale * q.prior_std)

    def _layout(self, model: nn.Module, name: str, q: Posterior) -> tuple[str, int]:
        """What a tensor's inclusion variables are for, and the axis that they lie along."""
        if self.granularity == "weight" or len(q.shape) < 2:
            return "weight", 0
        owners = owners_of(model, name)
        self._require_all_inputs(name, owners[0])
        axes = {int((self.granularity == "input") != _is_swapped(owner)) for owner in owners}
        if len(axes) > 1:
            raise PocketBayesError(
                f"{name} is tied to a layer whose inputs are this one's outputs, so it has no "
                f'gate for each {self.granularity}: say granularity="weight", or untie them'
            )
        return self.granularity, axes.pop()

    def _with_inclusion_variables(
        self, q: Gaussian, granularity: str, axis: int
    ) -> SpikeSlabPosterior:
        mean = q.mean.detach()
        groups = mean.shape if granularity == "weight" else mean.shape[axis : axis + 1]
        wide = at_least_single(mean.dtype)
        log_odds = mean.new_full(groups, log_odds_of(self._at_first), dtype=wide)
        prior = mean.new_tensor(log_odds_of(self.inclusion), dtype=wide)
        log_std, slab = q.log_std.detach().clone(), q.prior_std.clone()
        made = (q.mean, log_std, log_odds, slab, prior, granularity, axis)
        if self.spike == "gaussian":
            return NarrowSpike(*made, spike_std=self.spike_scale * slab)
        return SpikeSlabPosterior(*made)

    @torch.no_grad()
    def after_step(self, model: nn.Module, context: StepContext) -> bool:
        """Moves every p towards its optimum; none of them belongs to an optimiser."""
        beta = context.beta
        moves = context.progress >= self.hold and beta > 0
        if moves:
            context.memory[_MOVED] = torch.tensor(beta)
        for name, q in named_posteriors(model):
            if isinstance(q, SpikeSlabPosterior) and q.log_odds.grad is not None:
                slope, q.log_odds.grad = q.log_odds.grad, None
                if moves:
                    best = self._best(
                        name, q, slope.mul_(context.dataset_size), beta, context.memory
                    )
                    q.log_odds.lerp_(best, self.step)
        return False

    def _best(
        self,
        name: str,
        q: SpikeSlabPosterior,
        slope: Tensor,
        beta: float,
        memory: dict[str, Tensor],
    ) -> Tensor:
        """The optimum of the log-odds, as far as it is known by now."""
        if isinstance(q, NarrowSpike):
            return q.best_log_odds()
        most = MOST_LOG_ODDS if q.is_independent else MOST_DRAWN_LOG_ODDS
        if self.optimum == "density":
            return q.log_odds_by_density().clamp_(-most, most)
        found = stationary_log_odds(q.log_odds, slope.div_(beta))
        return self._averaged(name, found, beta, memory).clamp_(-most, most)

    def _averaged(self, name: str, found: Tensor, beta: float, memory: dict[str, Tensor]) -> Tensor:
        """The mean of optima, weighted by beta: while that is small they are mostly noise.

        Sum and weight begin at 0 together, so that no batch counts for more than its share.
        """
        if name + _WEIGHT not in memory:  # at first, or in a checkpoint of an earlier version
            memory[name], memory[name + _WEIGHT] = torch.zeros_like(found), torch.zeros(())
        weight = float(memory[name + _WEIGHT])
        weight += (1 - self.averaging) * (beta - weight)
        memory[name + _WEIGHT] = torch.tensor(weight)
        return memory[name].lerp_(found.mul_(beta), 1 - self.averaging) / weight

    @torch.no_grad()
    def after_epoch(self, model: nn.Module, epoch: int, memory: dict[str, Tensor]) -> None:
        """Sets the prior to the mean of all p, if it is to be learned."""
        found = [q for _, q in named_posteriors(model) if isinstance(q, SpikeSlabPosterior)]
        if not self.learn_inclusion or not found or _MOVED not in memory:
            return
        inclusions = torch.cat([q.inclusion.flatten() for q in found])
        log_odds = torch.logit(inclusions.mean().clamp(1e-5, 1 - 1e-5))
        for q in found:
            q.prior_log_odds.copy_(log_odds)


def _is_swapped(layer: nn.Module) -> bool:
    """Whether the first axis of its weight is that of its inputs."""
    return isinstance(layer, nn.modules.conv._ConvTransposeNd | nn.Embedding)
