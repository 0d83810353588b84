"""The methods: a closed table from name to config."""

from pocketbayes.methods.base import Method
from pocketbayes.methods.deep_ensemble import DeepEnsemble
from pocketbayes.methods.deterministic import Deterministic
from pocketbayes.methods.mc_dropout import MCDropout
from pocketbayes.methods.mean_field import MeanField

METHODS: dict[str, type[Method]] = {
    "deterministic": Deterministic,
    "deep-ensemble": DeepEnsemble,
    "mc-dropout": MCDropout,
    "mean-field": MeanField,
}

__all__ = ["METHODS", "DeepEnsemble", "Deterministic", "MCDropout", "MeanField", "Method"]
