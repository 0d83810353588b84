"""Which weights share a Gaussian: histogram, mixture, merging, rate-distortion. Pure, on arrays."""

from pocketbayes.sharing.assignment import Plan, Rules, planned_mixture
from pocketbayes.sharing.codebooks import (
    ENTRY_BITS,
    bits_of_whole,
    coded_bits,
    nearest_entries,
    planned_codebook,
    planned_to_fit,
)
from pocketbayes.sharing.merging import MERGES
from pocketbayes.sharing.rate_distortion import Codebook

__all__ = [
    "ENTRY_BITS",
    "MERGES",
    "Codebook",
    "Plan",
    "Rules",
    "bits_of_whole",
    "coded_bits",
    "nearest_entries",
    "planned_codebook",
    "planned_mixture",
    "planned_to_fit",
]
