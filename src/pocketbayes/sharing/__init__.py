"""Which weights share a Gaussian: histogram, mixture, merging, rate-distortion. Pure, on arrays."""

from pocketbayes.sharing.assignment import Plan, Rules, planned_mixture
from pocketbayes.sharing.codebooks import (
    ENTRY_BITS,
    coded_bits,
    nearest_entries,
    outlier_bits,
    planned_codebook,
    planned_to_fit,
)
from pocketbayes.sharing.merging import MERGES
from pocketbayes.sharing.rate_distortion import CodebookEntries

__all__ = [
    "ENTRY_BITS",
    "MERGES",
    "CodebookEntries",
    "Plan",
    "Rules",
    "coded_bits",
    "nearest_entries",
    "outlier_bits",
    "planned_codebook",
    "planned_mixture",
    "planned_to_fit",
]
