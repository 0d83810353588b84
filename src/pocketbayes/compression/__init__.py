"""A trained model made smaller: pruning, quantisation, the search for a size."""

from pocketbayes.compression.counting import (
    Multiplications,
    SharingSummary,
    multiplications,
    sharing_summary,
)
from pocketbayes.compression.pruning import prune_
from pocketbayes.compression.quantization import Quantization, quantize_
from pocketbayes.compression.search import (
    Recipe,
    Score,
    Sized,
    Traits,
    best_fitting,
    ranked_scores,
    recipes_for,
    searched,
)

__all__ = [
    "Multiplications",
    "Quantization",
    "Recipe",
    "Score",
    "SharingSummary",
    "Sized",
    "Traits",
    "best_fitting",
    "multiplications",
    "prune_",
    "quantize_",
    "ranked_scores",
    "recipes_for",
    "searched",
    "sharing_summary",
]
