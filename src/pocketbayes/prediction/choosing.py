"""Which estimator predicts where nothing is said."""

from weakref import WeakKeyDictionary

import torch
from torch import nn

from pocketbayes.layers import (
    Ensemble,
    bayesian_modules,
    describe,
    first_parameter,
    has_random_weights,
    is_fully_connected,
    modules_of,
)
from pocketbayes.likelihoods import Likelihood
from pocketbayes.posteriors import SpikeSlab
from pocketbayes.prediction.draws import drawing
from pocketbayes.prediction.gaussian_outputs import MOMENTS
from pocketbayes.prediction.inputs import float_dtype
from pocketbayes.prediction.moment_outputs import output_moments_of
from pocketbayes.prediction.one_pass import with_one_pass

_known = WeakKeyDictionary[nn.Module, tuple[list[type], bool]]()


def chosen_estimator(model: nn.Module, estimator: str | None, likelihood: Likelihood) -> str | None:
    """The estimator as chosen; by itself one pass if taught, or moments where they are as good.

    That is in fully connected regressions of one value with Gaussian noise: the predictive is then
    a Gaussian in closed form, without the noise of draws, in a quarter of the time or less, and on
    validation rows of 19 sets its NLL is lower on 12. None: the network is drawn.
    """
    found = with_one_pass(model, estimator, likelihood)
    if found is None and likelihood.name == "gaussian" and _suits_moments(model):
        return MOMENTS
    return found


def _suits_moments(model: nn.Module) -> bool:
    """Whether independent Gaussian weights go through operations that all have a rule."""
    if isinstance(model, Ensemble) or describe(model).keeps_dropout:
        return False
    if not has_random_weights(model) or not is_fully_connected(model):
        return False
    posteriors = [
        q for _, layer in bayesian_modules(model) for q in map(layer.posterior, layer.posteriors)
    ]
    if any(isinstance(q, SpikeSlab) or not q.is_independent for q in posteriors):
        return False
    kinds = [type(module) for module in modules_of(model)]
    known = _known.get(model)
    if known is None or known[0] != kinds:
        known = _known[model] = kinds, _has_rules(model)
    return known[1]


def _has_rules(model: nn.Module) -> bool:
    """Whether moments go through to one output: several depend on each other, which they lose."""
    widths = [module.in_features for module in modules_of(model) if isinstance(module, nn.Linear)]
    like = first_parameter(model)
    x = torch.zeros(2, widths[0], dtype=float_dtype(model), device=like.device)
    try:
        with drawing(model, MOMENTS, None):
            mean, variance = output_moments_of(model, x)
    except Exception:
        return False
    fits = variance is not None and bool(variance.isfinite().all())  # 1e200 has no square
    return fits and mean.numel() == len(x)
