"""The Laplace approximation: stds for a network that is trained already, from its curvature."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from pocketbayes.errors import (
    DataError,
    PocketBayesError,
    require_choice,
    require_count,
    warn,
)
from pocketbayes.layers import describe, named_posteriors, replace_posterior, update_description
from pocketbayes.methods.base import Method, StartContext, make_points_, unshare_
from pocketbayes.methods.processes import agreed
from pocketbayes.posteriors import Gaussian, Sparse, as_random

SUBSETS = ("last-layer", "all")
PRIORS_BY = ("validation", "evidence", "fixed")
_LOG_PRECISIONS = (math.log(1e-6), math.log(1e12))
_POWERS = range(-8, 4)  # of two: factors on the prior stds of most evidence
_AS_GOOD = 0.002  # nats: held-out data hardly tell small spreads apart


@dataclass(frozen=True, kw_only=True)
class Laplace(Method):
    """Diagonal Laplace approximation of a trained network; nothing is trained.

    The means stay. Each weight gets the variance

        1 / (h + 1 / prior_std^2),  h = sum_n [J_n^T H_n J_n]_ii,

    with J the derivative of the output and H the curvature of the likelihood there (generalised
    Gauss-Newton). The noise of a regression becomes the error of the mean network, on validation
    data if there are any. The weights that are left out become points. The file, `predict` and all
    methods take the result as any mean-field Gaussian; on the last layer the estimator "lrt" draws
    from exactly its Gaussian over the outputs. laplace-torch is not used: it wraps models of its
    own, knows neither our posteriors nor the file, and needs five packages for curvatures.

    Learning rates and the other settings of training have no use here.

    Attributes:
        subset: weights that become random: "last-layer" (the Bayesian layer that runs last) or
            "all". With all, and no held-out data to choose the prior by, predictions are far too
            unsure: a diagonal leaves out what keeps the layers together.
        prior_by: what the prior of each tensor comes from: "validation" (the least
            NLL of predictions for `val_loader`, over factors on those of most evidence; of factors
            up to 1 that differ by less than 0.002 nats the widest), "evidence" (the
            most marginal likelihood: exact for linear regression, but classifiers that know their
            training data by heart come out far too unsure) or "fixed" (as `bayesianize_` set it).
            Default validation if there is a `val_loader`, else evidence.
        directions: backward passes per example at most. The diagonal is exact if an example has at
            most so many outputs, else an unbiased estimate by random signs.
    """

    trains: ClassVar[bool] = False

    subset: str = "last-layer"
    prior_by: str | None = None
    directions: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice(self.subset, "Laplace.subset", SUBSETS)
        require_count(self.directions, "Laplace.directions")
        if self.prior_by is not None:
            require_choice(self.prior_by, "Laplace.prior_by", PRIORS_BY)

    def start(self, model: nn.Module) -> None:
        """Turns every posterior into a point at its mean."""
        super().start(model)
        unshare_(model)
        make_points_(model)

    @torch.no_grad()
    def begin(self, model: nn.Module, context: StartContext) -> None:
        """Gives the chosen weights their variances."""
        nll = context.validation_nll
        prior_by = self.prior_by or ("evidence" if nll is None else "validation")
        if prior_by == "validation" and nll is None:
            raise PocketBayesError('Laplace(prior_by="validation") needs fit(..., val_loader=)')
        if self.prior_by is None and nll is None:
            _warn_of_evidence(model)
        found = context.curvatures(self.subset == "last-layer", self.directions)
        posteriors = {name: _made_random(model, name) for name in found}
        stds = {
            name: float(q.prior_std)
            if prior_by == "fixed"
            else evidence_precision(q.mean, _finite(found[name], name)) ** -0.5
            for name, q in posteriors.items()
        }

        def scale_priors(factor: float) -> None:
            for name, q in posteriors.items():
                set_variances_(q, found[name], factor * stds[name])

        def loss_of(factor: float) -> float:
            assert nll is not None
            scale_priors(factor)
            return nll()

        factor = best_factor(loss_of) if prior_by == "validation" else 1.0
        scale_priors(factor)
        self._tell(model, prior_by, [factor * std for std in stds.values()])
        if prior_by == "validation":  # narrowed for the spread alone; the KL wants one that fits
            for q in posteriors.values():
                q.prior_std.copy_(q.best_prior_variance().sqrt())

    def _tell(self, model: nn.Module, prior_by: str, stds: list[float]) -> None:
        """Lets the model say what was made random, and by which priors."""
        ends = [float(f"{std:.4g}") for std in (min(stds), max(stds))]
        facts = {"method": "Laplace", "subset": self.subset, "prior_by": prior_by}
        update_description(model, training=facts | {"prior_std": ends})


def evidence_precision(mean: Tensor, curvature: Tensor) -> float:
    """The prior precision d at which the Laplace evidence of these weights is largest.

    log Z(d) = const - d sum m^2 / 2 + P log(d) / 2 - sum log(h + d) / 2 has the one stationary
    point d sum m^2 = sum h / (h + d), found by bisection in log d.
    """
    size, h = float(mean.double().square().sum()), curvature.double()
    low, high = _LOG_PRECISIONS
    for _ in range(60):
        middle = math.exp((low + high) / 2)
        is_below = float((h / (h + middle)).sum()) > middle * size
        low, high = (math.log(middle), high) if is_below else (low, math.log(middle))
    return math.exp((low + high) / 2)


def set_variances_(posterior: Gaussian | Sparse, curvature: Tensor, prior_std: float) -> None:
    """Var = 1 / (h + 1 / prior_std^2), and that prior."""
    posterior.log_std.copy_(-(curvature.double() + prior_std**-2).log() / 2)
    posterior.prior_std.fill_(prior_std)


def best_factor(loss_of: Callable[[float], float]) -> float:
    """The factor of least loss or, where the loss is flat, the widest up to 1 that is as good.

    Searched are powers of two, then the half powers beside the chosen one. Where the spread is
    small the loss hardly changes: its minimum would be any of them, or no spread at all.
    """
    losses = {float(power): _or_infinite(loss_of(2.0**power)) for power in _POWERS}
    if min(losses.values()) == math.inf:
        raise DataError("the validation loss is not finite: look for NaN in the validation data")
    chosen = _widest_as_good(losses)
    losses |= {p: _or_infinite(loss_of(2.0**p)) for p in (chosen - 0.5, chosen + 0.5)}
    chosen = _widest_as_good(losses)
    return math.exp2(float(agreed(torch.tensor(chosen, dtype=torch.float64))))


def _widest_as_good(losses: dict[float, float]) -> float:
    """Up from the power of least loss, as far as no step is worse."""
    chosen = min(losses, key=lambda power: losses[power])
    bound = losses[chosen] + _AS_GOOD
    for power in sorted(p for p in losses if chosen < p <= 0):
        if losses[power] > bound:
            break
        chosen = power
    return chosen


def _or_infinite(loss: float) -> float:
    return loss if math.isfinite(loss) else math.inf


def _made_random(model: nn.Module, name: str) -> Gaussian | Sparse:
    q = as_random(dict(named_posteriors(model))[name], 1.0)
    assert isinstance(q, Gaussian | Sparse)
    replace_posterior(model, name, q)
    return q


def _finite(curvature: Tensor, name: str) -> Tensor:
    if not curvature.isfinite().all():
        raise DataError(
            f"the curvature at {name} is not finite: look for NaN in the inputs or the weights"
        )
    return curvature


def _warn_of_evidence(model: nn.Module) -> None:
    if describe(model).likelihood == "categorical":
        warn(
            "without a val_loader the prior is that of most evidence, with which classifiers come "
            "out far too unsure: pass fit(..., val_loader=), data that the network has not seen",
        )
