"""The families of posteriors: a closed table, so that a file never names a class."""

from pocketbayes.posteriors.base import Posterior
from pocketbayes.posteriors.gaussian import Gaussian
from pocketbayes.posteriors.point import Point
from pocketbayes.posteriors.sparse import Sparse

FAMILIES: dict[str, type[Posterior]] = {
    "gaussian": Gaussian,
    "point": Point,
    "sparse": Sparse,
}

__all__ = ["FAMILIES", "Gaussian", "Point", "Posterior", "Sparse"]
