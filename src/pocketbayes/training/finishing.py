"""At the end: the noise of a regression, the best epoch, the method's own end, what is noted."""

import sys
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from pocketbayes.errors import warn
from pocketbayes.methods import StartContext, VariationalMethod
from pocketbayes.training.batches import Batches
from pocketbayes.training.best import restore_best_
from pocketbayes.training.observation_noise import average_noise_, learns_noise, refresh_noise_
from pocketbayes.training.run_state import RunState, note_training
from pocketbayes.training.settings import Settings


def settle_noise_(
    fabric: Any, model: nn.Module, settings: Settings, batches: Batches, epoch: int
) -> None:
    """Behind the steps of the last epoch: the noise that is best for the weights as they are.

    Its rate falls to 0 before the last errors do. It costs one more pass over the data; if that
    fails, the learned noise stays. Tempered posteriors, whose weights know the data too well, and
    runs that choose an epoch by validation data keep what was learned.
    """
    method, is_last = settings.method, epoch + 1 == settings.epochs
    suits = is_last and settings.likelihood == "gaussian" and not settings.keep_best
    if not suits or not isinstance(method, VariationalMethod) or method.noise_rate == 0:
        return
    if method.beta != 1 or not learns_noise(model):
        return
    pairs = ((x, y) for _, x, y in batches.epoch(settings.epochs))
    generator = torch.Generator().manual_seed(settings.seed)
    try:
        with fabric.autocast():
            refresh_noise_(model, pairs, sys.maxsize, generator=generator)
    except Exception as error:
        warn(f"the noise stays as it was learned: one more pass over the data failed: {error}")
    average_noise_(model)


def finish_(model: nn.Module, settings: Settings, at: RunState, context: StartContext) -> None:
    """Makes the model what `fit` returns."""
    restore_best_(at, model)
    settings.method.finish(model, replace(context, memory=at.memory))
    note_training(model, settings.method, settings.dataset_size, at)
