"""Runs that consist of several: members of an ensemble, stages of a method."""

import copy
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pocketbayes.codec import prepare_directory
from pocketbayes.layers import Ensemble
from pocketbayes.methods import DeepEnsemble, Method, restart_
from pocketbayes.posteriors import isolated_randomness, mixed_seed
from pocketbayes.training.checkpoints import NAME, checkpoints_in, write_history
from pocketbayes.training.tracking import within

_TOLD = ("loss", "nll", "kl", "accuracy", "rmse", "val_nll", "val_accuracy", "val_rmse")


@dataclass(frozen=True, repr=False)
class FitResult:
    """What `fit` returns: the model and one dict per epoch.

    Attributes:
        model: the object that was passed in, or of `DeepEnsemble` a new one.
        history: loss, nll, KL, score, ... of each epoch.
        seconds: training time by the clock.
        peak_bytes: most memory held: on a GPU by tensors during the call, elsewhere by the
            process so far; None where the system does not tell.
        best_epoch: the one whose model this is, counted from 1, with `keep_best`; None: the last.
            Members of an ensemble have one each, as `best_epoch` in their rows of the history.
        method: the one that trained it, with all that `fit` chose: `result.method.lr`, `.beta`,
            `.prior`.
    """

    model: nn.Module
    history: list[dict[str, Any]]
    seconds: float
    peak_bytes: int | None
    best_epoch: int | None = None
    method: Method | None = None

    @property
    def epochs(self) -> int:
        """Passes over the data; of several members or stages, those of the last one."""
        return self.history[-1]["epoch"] if self.history else 0

    @property
    def steps(self) -> int:
        """Optimiser steps; of several members or stages, those of the last one."""
        return self.history[-1]["step"] if self.history else 0

    def __repr__(self) -> str:
        """A line: what was trained, by what, how long, and the figures of the last epoch."""
        last = self.history[-1] if self.history else {}
        told = [f"{name} {last[name]:.4g}" for name in _TOLD if last.get(name) is not None]
        how = "" if self.method is None else f" by {type(self.method).__name__}"
        took = f"{self.epochs:,} epochs, {self.steps:,} steps, {self.seconds:.1f} s"
        return f"FitResult({', '.join([type(self.model).__name__ + how, took, *told])})"


def begun_directory(out: str | os.PathLike[str] | None, resume: bool) -> Path | None:
    """The directory of a run of several; if it is new, no checkpoint of an old one is left in it.

    Parts that have not begun yet would else be resumed from another run's.
    """
    if out is None:
        return None
    directory = prepare_directory(out)
    if not resume and int(os.environ.get("RANK", 0)) == 0:
        for path in checkpoints_in(directory):
            path.unlink(missing_ok=True)
    return directory


def fit_members(
    model: nn.Module,
    method: DeepEnsemble,
    fit_one: Callable[..., FitResult],
    seed: int,
    out: str | os.PathLike[str] | None,
    resume: bool,
    progress: bool,
    logger: Any = None,
) -> FitResult:
    """Trains copies of the model one after another: from a start of its own, or from the last."""
    directory = begun_directory(out, resume)
    members = list[nn.Module]()
    history, seconds, peaks = list[dict[str, Any]](), 0.0, list[int]()
    for number in range(method.members):
        if progress and int(os.environ.get("RANK", 0)) == 0:
            print(f"member {number + 1} of {method.members}", file=sys.stderr)
        member, member_seed = (
            copy.deepcopy(model if method.restarts or not members else members[-1]),
            seed if number == 0 else mixed_seed(seed, number),
        )
        if number > 0 and method.restarts:
            with isolated_randomness(next(member.parameters()).device):
                torch.manual_seed(member_seed)
                restart_(member)
        place = None if directory is None else directory / f"member-{number}"
        result = fit_one(
            member,
            method=method.member(),
            seed=member_seed,
            out=place,
            resume=resume and place is not None and (place / NAME).exists(),
            logger=within(logger, f"member-{number}"),
        )
        members.append(member)
        history += [{"member": number} | row for row in result.history]
        seconds += result.seconds
        peaks += [] if result.peak_bytes is None else [result.peak_bytes]
    if directory is not None:
        write_history(directory, history)
    peak = max(peaks, default=None)
    chosen = replace(method, lr=None if result.method is None else result.method.lr)
    return FitResult(Ensemble(members), history, seconds, peak, method=chosen)


def fit_stages(
    model: nn.Module,
    stages: tuple[Method, int, Method],
    epochs: int | None,
    fit_one: Callable[..., FitResult],
    out: str | os.PathLike[str] | None,
    resume: bool,
    logger: Any = None,
) -> FitResult:
    """Trains by one method and then by another; the first writes into `out/pretraining`."""
    first, first_epochs, second = stages
    directory = begun_directory(out, resume)
    place = None if directory is None else directory / "pretraining"
    begun = resume and place is not None and (place / NAME).exists()
    own = within(logger, "pretraining")
    one = fit_one(model, method=first, epochs=first_epochs, out=place, resume=begun, logger=own)
    begun = resume and directory is not None and (directory / NAME).exists()
    again = {"out": directory, "resume": begun, "logger": logger}
    two = fit_one(model, method=second, epochs=epochs, **again)
    history = [{"stage": "pretraining"} | row for row in one.history] + two.history
    if directory is not None and int(os.environ.get("RANK", 0)) == 0:
        write_history(directory, history)
    peaks = [peak for peak in (one.peak_bytes, two.peak_bytes) if peak is not None]
    seconds, peak = one.seconds + two.seconds, max(peaks, default=None)
    return FitResult(model, history, seconds, peak, two.best_epoch, two.method)
