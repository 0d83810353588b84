"""The families of posteriors: a closed table, so that a file never names a class."""

from pocketbayes.posteriors.base import Posterior
from pocketbayes.posteriors.gaussian import Gaussian

FAMILIES: dict[str, type[Posterior]] = {"gaussian": Gaussian}

__all__ = ["FAMILIES", "Gaussian", "Posterior"]
