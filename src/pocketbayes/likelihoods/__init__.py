"""Each likelihood, and the loss that training minimises (the negative ELBO)."""

from pocketbayes.likelihoods.curvature import curvature_root, directions
from pocketbayes.likelihoods.elbo import LIKELIHOODS, Objective, kl, total_kl
from pocketbayes.likelihoods.gaussian import matched_target

__all__ = [
    "LIKELIHOODS",
    "Objective",
    "curvature_root",
    "directions",
    "kl",
    "matched_target",
    "total_kl",
]
