"""A trained model made smaller: pruning, quantisation, and `compress`, which chooses."""

from pocketbayes.compression.compressing import compress
from pocketbayes.compression.counting import (
    Multiplications,
    SharingSummary,
    multiplications,
    sharing_summary,
)
from pocketbayes.compression.outcome import Compression
from pocketbayes.compression.pruning import prune_
from pocketbayes.compression.quantization import Quantization, quantize_
from pocketbayes.compression.traits import sharing_method

__all__ = [
    "Compression",
    "Multiplications",
    "Quantization",
    "SharingSummary",
    "compress",
    "multiplications",
    "prune_",
    "quantize_",
    "sharing_method",
    "sharing_summary",
]
