"""The families of posteriors, a closed table, and the random numbers they are drawn with."""

from pocketbayes.posteriors.base import Posterior
from pocketbayes.posteriors.codebook import (
    DRAWS,
    Codebook,
    codebooks_with_passes,
    passes_of,
    version_of,
)
from pocketbayes.posteriors.conversions import (
    as_dense,
    as_log_uniform,
    as_packed,
    as_point,
    as_random,
    as_unshared,
    is_trainable,
    thinned,
)
from pocketbayes.posteriors.drawing import (
    DEFAULT_GENERATORS,
    Drawing,
    current_drawing,
    inside_vmap,
    is_of_draws,
    no_drawing,
    traced_by,
)
from pocketbayes.posteriors.gaussian import Gaussian, suitable_std
from pocketbayes.posteriors.inclusion import (
    LEAST_INCLUSION,
    MOST_DRAWN_LOG_ODDS,
    MOST_LOG_ODDS,
    included_moments,
    log_odds_of,
    soft_gate,
    stationary_log_odds,
)
from pocketbayes.posteriors.joint_draw import JointDraw, joint_draws
from pocketbayes.posteriors.log_uniform import LogUniform
from pocketbayes.posteriors.packed import Packed
from pocketbayes.posteriors.parts import Blends, Outliers, Support
from pocketbayes.posteriors.point import Point
from pocketbayes.posteriors.randomness import (
    bernoulli,
    isolated_randomness,
    mixed_seed,
    normal_like,
    prepare_tracing,
    seed_everything,
    signs_like,
)
from pocketbayes.posteriors.reuse import is_repeated, remembered, repeated_input
from pocketbayes.posteriors.shards import is_split, summed_over_parts
from pocketbayes.posteriors.shared import Shared
from pocketbayes.posteriors.sparse import Sparse, SparsePoint
from pocketbayes.posteriors.spike_slab import GRANULARITIES, NarrowSpike, SpikeSlab, at_least_single
from pocketbayes.posteriors.structures import STRUCTURES, least_units, to_units, unit_layout

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
    "DEFAULT_GENERATORS",
    "DRAWS",
    "FAMILIES",
    "GRANULARITIES",
    "LEAST_INCLUSION",
    "MOST_DRAWN_LOG_ODDS",
    "MOST_LOG_ODDS",
    "STRUCTURES",
    "Blends",
    "Codebook",
    "Drawing",
    "Gaussian",
    "JointDraw",
    "LogUniform",
    "NarrowSpike",
    "Outliers",
    "Packed",
    "Point",
    "Posterior",
    "Shared",
    "Sparse",
    "SparsePoint",
    "SpikeSlab",
    "Support",
    "as_dense",
    "as_log_uniform",
    "as_packed",
    "as_point",
    "as_random",
    "as_unshared",
    "at_least_single",
    "bernoulli",
    "codebooks_with_passes",
    "current_drawing",
    "included_moments",
    "inside_vmap",
    "is_of_draws",
    "is_repeated",
    "is_split",
    "is_trainable",
    "isolated_randomness",
    "joint_draws",
    "least_units",
    "log_odds_of",
    "mixed_seed",
    "no_drawing",
    "normal_like",
    "passes_of",
    "prepare_tracing",
    "remembered",
    "repeated_input",
    "seed_everything",
    "signs_like",
    "soft_gate",
    "stationary_log_odds",
    "suitable_std",
    "summed_over_parts",
    "thinned",
    "to_units",
    "traced_by",
    "unit_layout",
    "version_of",
]
