"""Each likelihood, and the loss that training minimises (the negative ELBO)."""

from pocketbayes.likelihoods.base import (
    CountLikelihood,
    Likelihood,
    ValueLikelihood,
    matched_target,
    moments,
)
from pocketbayes.likelihoods.curvature import curvature_root, directions, require_curvature
from pocketbayes.likelihoods.distributions import Normal, TargetDistribution
from pocketbayes.likelihoods.elbo import Objective, kl, total_kl
from pocketbayes.likelihoods.labels import MASKED, require_labels, warn_of_probabilities
from pocketbayes.likelihoods.table import (
    LIKELIHOODS,
    learned_for,
    learned_of,
    likelihood_of,
    set_learned_,
    start_learned_,
)

__all__ = [
    "LIKELIHOODS",
    "MASKED",
    "CountLikelihood",
    "Likelihood",
    "Normal",
    "Objective",
    "TargetDistribution",
    "ValueLikelihood",
    "curvature_root",
    "directions",
    "kl",
    "learned_for",
    "learned_of",
    "likelihood_of",
    "matched_target",
    "moments",
    "require_curvature",
    "require_labels",
    "set_learned_",
    "start_learned_",
    "total_kl",
    "warn_of_probabilities",
]
