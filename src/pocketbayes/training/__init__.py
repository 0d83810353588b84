"""`fit`, and all that one training run consists of."""

from pocketbayes.training.batch_norm import refresh_norms_
from pocketbayes.training.checkpoints import checkpoints_in, write_history
from pocketbayes.training.composition import FitResult
from pocketbayes.training.curvature import curvatures
from pocketbayes.training.defaults import suitable_batch_size
from pocketbayes.training.environment import DEVICES, PRECISIONS
from pocketbayes.training.fitting import fit
from pocketbayes.training.flops import TrainingFlops, training_flops
from pocketbayes.training.locking import LOCK, only_writer
from pocketbayes.training.observation_noise import refresh_noise_
from pocketbayes.training.own_loops import loss
from pocketbayes.training.soft_labels import with_teacher

__all__ = [
    "DEVICES",
    "LOCK",
    "PRECISIONS",
    "FitResult",
    "TrainingFlops",
    "checkpoints_in",
    "curvatures",
    "fit",
    "loss",
    "only_writer",
    "refresh_noise_",
    "refresh_norms_",
    "suitable_batch_size",
    "training_flops",
    "with_teacher",
    "write_history",
]
