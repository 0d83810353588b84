"""The families of posteriors: a closed table, so that a file never names a class."""

from pocketbayes.posteriors.base import Posterior
from pocketbayes.posteriors.gaussian import Gaussian
from pocketbayes.posteriors.log_uniform import LogUniform
from pocketbayes.posteriors.packed import Packed
from pocketbayes.posteriors.point import Point
from pocketbayes.posteriors.shared import Shared
from pocketbayes.posteriors.sparse import Sparse, SparsePoint
from pocketbayes.posteriors.spike_slab import NarrowSpike, SpikeSlab
from pocketbayes.posteriors.structures import STRUCTURES
from pocketbayes.posteriors.table import Table

FAMILIES: dict[str, type[Posterior]] = {
    "gaussian": Gaussian,
    "log_uniform": LogUniform,
    "narrow_spike": NarrowSpike,
    "point": Point,
    "shared": Shared,
    "sparse": Sparse,
    "sparse_point": SparsePoint,
    "spike_slab": SpikeSlab,
}

__all__ = [
    "FAMILIES",
    "STRUCTURES",
    "Gaussian",
    "LogUniform",
    "NarrowSpike",
    "Packed",
    "Point",
    "Posterior",
    "Shared",
    "Sparse",
    "SparsePoint",
    "SpikeSlab",
    "Table",
]
