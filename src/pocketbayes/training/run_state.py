"""The state of a training run, how it is stored and resumed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, sqrt
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pocketbayes.errors import TrainingError
from pocketbayes.layers import describe, update_description
from pocketbayes.methods import Method, VariationalMethod, gathered, summed
from pocketbayes.training.checkpoints import load_checkpoint, save_checkpoint
from pocketbayes.training.doubt import (
    add_labels,
    doubt_left,
    entropy_of,
    follows_doubt,
    known_doubt,
    share_of_beta,
)
from pocketbayes.training.priors import decay_std

_ONCE = {"prior": "fixed", "flatness": 0.0}  # what went without saying before it was a setting


@dataclass
class RunState:
    """All that changes while a run goes on, besides its model and optimisers.

    Attributes:
        epoch, batch, step: passes, batches of this pass and optimiser steps completed.
        seconds: training time so far.
        beta, lr_scale: last values of two schedules.
        labels, labelled: how often each class was seen in the first epoch, and the examples then,
            if beta follows doubt; see `doubt.py`.
        entropy, doubt: that of the labels of an example, over all processes, and what the last
            epoch left open of it.
        totals: sums over the epoch and all processes of loss, nll, KL and score, each times the
            batch size, and of that size.
        memory: what the method keeps from step to step.
        history: a row for each epoch.
        best_epoch, best_nll: of the least validation NLL so far, if the best epoch is to be kept.
        best_state: the model then; None once it is restored.
    """

    totals: Tensor
    epoch: int = 0
    batch: int = 0
    step: int = 0
    seconds: float = 0.0
    beta: float = 0.0
    lr_scale: float = 0.0
    labels: dict[int, int] = field(default_factory=dict)
    labelled: int = 0
    entropy: float | None = None
    doubt: float = 1.0
    memory: dict[str, Tensor] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    best_epoch: int | None = None
    best_nll: float = inf
    best_state: dict[str, Any] | None = None

    @classmethod
    def at_start(
        cls, device: torch.device, memory: dict[str, Tensor], model: nn.Module, method: Method
    ) -> "RunState":
        """Nothing done yet."""
        totals = torch.zeros(5, dtype=torch.float64, device=device)
        return cls(totals, memory=memory, doubt=known_doubt(method, describe(model).beta))

    def add(self, numbers: Tensor, count: int) -> None:
        """Counts a batch of each process: its loss, nll, KL and score.

        All have the sums of all: the first one's checkpoint is everyone's.
        """
        mine = torch.full_like(self.totals, float(count))
        mine[:4] = numbers.double() * count
        self.totals += summed(mine)

    def add_labels(self, target: Tensor) -> None:
        """Counts those of a batch of each process, in the first epoch."""
        if self.epoch != 0:
            return
        mine = dict[int, int]()
        add_labels(mine, target)
        for labels, examples in gathered((mine, len(target))):
            self.labelled += examples
            for label, number in labels.items():
                self.labels[label] = self.labels.get(label, 0) + number

    def follow_doubt(self, row: Mapping[str, float], size: int) -> None:
        """Moves on to the doubt that the epoch of this row leaves."""
        if self.entropy is None:
            self.entropy = entropy_of(self.labels) / max(self.labelled, 1)
        self.doubt = doubt_left(row, size, self.entropy)

    def averages(self, score_name: str) -> dict[str, float]:
        """Means over the epoch so far."""
        *sums, count = self.totals.tolist()
        loss, nll, kl, score = (total / max(count, 1) for total in sums)
        score = sqrt(score) if score_name == "rmse" else score
        return {"loss": loss, "nll": nll, "kl": kl, score_name: score}


def save_state(
    directory: Path,
    fingerprint: dict[str, Any],
    model: nn.Module,
    optimizers: Sequence[Mapping[str, Any]],
    run_state: RunState,
) -> bool:
    """Writes the checkpoint, if the disk has room; `optimizers` are their state dicts."""
    state = {
        "settings": fingerprint,
        "model": model.state_dict(),
        "optimizers": [
            {**stored, "kept": sorted(stored["state"], key=str)} for stored in optimizers
        ],
        "standing": vars(run_state) | {"totals": run_state.totals.clone()},
    }
    return save_checkpoint(directory, state)


def stored_settings(directory: Path) -> dict[str, Any]:
    """The settings of the run whose checkpoint this is; of old ones the prior was fixed."""
    state = load_checkpoint(directory, torch.device("cpu"))
    return {"prior": "fixed"} | dict(state.get("settings", {}))


def load_state(
    directory: Path, fingerprint: dict[str, Any], device: torch.device
) -> dict[str, Any]:
    """The checkpoint, if it is one of the same run."""
    state = load_checkpoint(directory, device)
    theirs = state["settings"]
    theirs = {name: value for name, value in _ONCE.items() if name in fingerprint} | theirs
    for name in fingerprint.keys() | theirs.keys():
        if fingerprint.get(name) != theirs.get(name):
            raise TrainingError(
                f"the checkpoint in {directory} was made with {name}={theirs.get(name)!r}, this "
                f"call has {fingerprint.get(name)!r}; resume with the same settings, or start "
                "anew with resume=False"
            )
    return state


def note_training(model: nn.Module, method: Method, size: int, at: RunState) -> None:
    """Lets the model say what it was trained by; without a step that is as it was."""
    if at.step == 0:
        return
    facts: dict[str, Any] = {
        "method": type(method).__name__,
        "lr": float(method.peak_lr),
        "epochs": at.epoch,
        "steps": at.step,
    }
    best = {} if at.best_epoch is None else {"best_epoch": at.best_epoch}
    update_description(model, training=facts | best)
    if isinstance(method, VariationalMethod) and follows_doubt(method):
        doubt = at.history[(at.best_epoch or 0) - 1]["doubt"]
        facts["betas"] = [float(method.least_beta or 0), float(method.beta or 0)]
        beta = (method.beta or 0.0) * share_of_beta(method, doubt)
        decay = decay_std(replace(method, beta=beta, least_beta=None), size)
        update_description(model, beta=beta, decay_std=decay, training=facts | best)
