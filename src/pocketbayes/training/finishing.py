"""After the last step: the best epoch, the noise, the method's own end, and what is noted."""

from typing import Any

import torch
from torch import nn

from pocketbayes.methods import VariationalMethod
from pocketbayes.training.batches import Batches
from pocketbayes.training.best import restore_best_
from pocketbayes.training.observation_noise import average_noise_, learns_noise, refresh_noise_
from pocketbayes.training.run_state import RunState, note_training
from pocketbayes.training.settings import Settings


def finish_(
    fabric: Any, model: nn.Module, settings: Settings, batches: Batches, at: RunState
) -> None:
    """Makes the model what `fit` returns."""
    restore_best_(at, model)
    if at.step and _has_noise_to_settle(model, settings):
        pairs = ((x, y) for _, x, y in batches.epoch(settings.epochs))
        with fabric.autocast():
            refresh_noise_(model, pairs, generator=torch.Generator().manual_seed(settings.seed))
            average_noise_(model)
    settings.method.finish(model)
    note_training(model, settings.method, settings.dataset_size, at)


def _has_noise_to_settle(model: nn.Module, settings: Settings) -> bool:
    """Whether the noise may lag behind the weights: its rate falls to 0 before errors settle.

    With an epoch chosen by validation data, noise and weights stay those of that epoch.
    """
    method = settings.method
    varies = isinstance(method, VariationalMethod) and method.noise_rate > 0
    is_gaussian = settings.likelihood == "gaussian" and not settings.keep_best
    return varies and is_gaussian and learns_noise(model)
