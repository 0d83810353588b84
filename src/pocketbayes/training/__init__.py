"""`fit`, and all that one training run consists of."""

from pocketbayes.training.batch_norm import refresh_norms_
from pocketbayes.training.checkpoints import checkpoints_in, write_history
from pocketbayes.training.composition import FitResult
from pocketbayes.training.curvature import curvatures
from pocketbayes.training.defaults import suitable_batch_size
from pocketbayes.training.environment import DEVICES, PRECISIONS
from pocketbayes.training.fitting import fit
from pocketbayes.training.flops import TrainingFlops, training_flops
from pocketbayes.training.hosted import Hosted, hosted_method
from pocketbayes.training.locking import LOCK, only_writer
from pocketbayes.training.observation_noise import refresh_noise_
from pocketbayes.training.optimizers import parameter_groups
from pocketbayes.training.own_loops import loss
from pocketbayes.training.soft_labels import with_teacher
from pocketbayes.training.steps import names_inside_posteriors
from pocketbayes.training.streams import is_stream
from pocketbayes.training.tracking import LOGGERS, require_logger

__all__ = [
    "DEVICES",
    "LOCK",
    "LOGGERS",
    "PRECISIONS",
    "FitResult",
    "Hosted",
    "TrainingFlops",
    "checkpoints_in",
    "curvatures",
    "fit",
    "hosted_method",
    "is_stream",
    "loss",
    "names_inside_posteriors",
    "only_writer",
    "parameter_groups",
    "refresh_noise_",
    "refresh_norms_",
    "require_logger",
    "suitable_batch_size",
    "training_flops",
    "with_teacher",
    "write_history",
]
