"""Each likelihood, and the loss that training minimises (the negative ELBO)."""

from pocketbayes.likelihoods.elbo import LIKELIHOODS, Objective, kl, total_kl
from pocketbayes.likelihoods.gaussian import matched_target
from pocketbayes.likelihoods.labels import wrong_label

__all__ = [
    "LIKELIHOODS",
    "Objective",
    "kl",
    "matched_target",
    "total_kl",
    "wrong_label",
]
