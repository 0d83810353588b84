"""The methods: a closed table from name to config."""

from pocketbayes.methods.base import Method
from pocketbayes.methods.mean_field import MeanField

METHODS: dict[str, type[Method]] = {"mean-field": MeanField}

__all__ = ["METHODS", "MeanField", "Method"]
