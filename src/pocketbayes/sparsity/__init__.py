"""Which weights stay: criteria, allocation over tensors, exchange."""

from pocketbayes.sparsity.allocation import ALLOCATIONS, allocated
from pocketbayes.sparsity.criteria import CRITERIA
from pocketbayes.sparsity.exchange import Exchange, exchanged, largest_of_all
from pocketbayes.sparsity.ranking import Ranking, affordable_units, best_units, ranked, units_above
from pocketbayes.sparsity.repacking import Optimizers, repack_

__all__ = [
    "ALLOCATIONS",
    "CRITERIA",
    "Exchange",
    "Optimizers",
    "Ranking",
    "affordable_units",
    "allocated",
    "best_units",
    "exchanged",
    "largest_of_all",
    "ranked",
    "repack_",
    "units_above",
]
