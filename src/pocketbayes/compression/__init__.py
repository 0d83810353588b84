"""A trained model made smaller: pruning, quantisation, and `compress`, which chooses."""

from pocketbayes.compression.chain import Candidate, sharing_method
from pocketbayes.compression.compressing import Compression, compress
from pocketbayes.compression.counting import (
    Multiplications,
    SharingSummary,
    multiplications,
    sharing_summary,
)
from pocketbayes.compression.pruning import prune_
from pocketbayes.compression.quantization import Quantization, quantize_

__all__ = [
    "Candidate",
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
