"""One training run: its parts, where it stands, and how it goes on."""

import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from math import ceil
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pocketbayes.methods import StartContext, agreed
from pocketbayes.prediction import float_dtype
from pocketbayes.training.batches import Batch, Batches, in_groups
from pocketbayes.training.best import compare_epoch, has_waited, validated
from pocketbayes.training.checking import fill_model, require_standing
from pocketbayes.training.checkpoints import naming, write_history
from pocketbayes.training.composition import FitResult
from pocketbayes.training.environment import peak_memory
from pocketbayes.training.finishing import finish_, settle_noise_
from pocketbayes.training.guarding import last_good
from pocketbayes.training.progress import TrainingBar
from pocketbayes.training.run_state import RunState, load_state, save_state
from pocketbayes.training.settings import Settings
from pocketbayes.training.steps import Steps, share_passed
from pocketbayes.training.stopping import StopRequest, deferred_signals
from pocketbayes.training.streams import is_stream, require_own_part, warn_if_read_again
from pocketbayes.training.together import agrees, fetched_together
from pocketbayes.training.tracking import Tracker, begun_tracker
from pocketbayes.training.worth import warn_if_worthless


class Run:
    """One training run: its parts, where it stands, and how it goes on."""

    def __init__(
        self,
        fabric: Any,
        model: nn.Module,
        loader: Iterable[Any],
        val_loader: Iterable[Any] | None,
        settings: Settings,
        directory: Path | None,
        resume: bool,
        context: StartContext,
    ) -> None:
        self.fabric, self.model, self.settings, self.directory = fabric, model, settings, directory
        self.val_loader, self.context = val_loader, context
        place = fabric.global_rank, fabric.world_size, fabric.device
        self.batches = Batches(loader, settings.seed, *place, float_dtype(model))
        self.saved_at = time.monotonic()
        self.has_checkpoint = False
        state = self._checkpoint() if resume else None
        if state is not None:
            self._take_over(state)
        self.tracker = self._tracker(resume)
        self.steps = Steps(fabric, model, settings, context, self._good)
        if state is not None:
            self._go_on_from(state)

    @property
    def at(self) -> RunState:
        """Where it stands."""
        return self.steps.at

    def _tracker(self, resume: bool) -> Tracker | None:
        if not self.fabric.is_global_zero:
            return None
        settings = self.settings
        return begun_tracker(settings.logger, self.directory, settings.to_dict(), resume)

    def _checkpoint(self) -> dict[str, Any]:
        assert self.directory is not None
        return load_state(self.directory, self._fingerprint(), self.fabric.device)

    def _take_over(self, state: dict[str, Any]) -> None:
        assert self.directory is not None
        with naming(self.directory):
            fill_model(self.model, state["model"])
            require_standing(state, self.model, self.context.memory)

    def _go_on_from(self, state: dict[str, Any]) -> None:
        assert self.directory is not None
        with naming(self.directory):
            self.steps.fill_optimizers(state["optimizers"])
        self.steps.at, self.has_checkpoint = RunState(**state["standing"]), True

    def train(self, progress: bool) -> FitResult:
        """Runs from where it stands to the end."""
        begin = time.monotonic() - self.at.seconds
        shown = progress and self.fabric.is_global_zero
        settings, several = self.settings, agrees(self.fabric)
        with (
            deferred_signals(several or self.fabric.world_size == 1) as asked,
            TrainingBar(settings.epochs, self.steps.score, shown) as bar,
            self.tracker or nullcontext(),
        ):
            stop = StopRequest() if several else asked
            self._track()
            while self.at.epoch < settings.epochs:
                if has_waited(self.at, settings.patience):
                    break
                self._run_epoch(bar, begin, asked, stop)
        self.save()
        finish_(self.model, settings, self.at, self.context)
        self.steps.require_finite()
        for parameter in self.model.parameters():
            parameter.grad = None
        at, steps, peak = self.at, self.steps, peak_memory(self.fabric.device)
        if self.fabric.is_global_zero:
            row = at.best_epoch or len(at.history)
            warn_if_worthless(steps.objective, self.batches, steps.targets, at.history[:row])
        found = (self.model, at.history, at.seconds, peak, at.best_epoch)
        return FitResult(*found, self.settings.method)

    def _run_epoch(
        self, bar: TrainingBar, begin: float, asked: StopRequest, stop: StopRequest
    ) -> None:
        started, seen = time.monotonic(), 0
        self.steps.set_aside()
        batches = self.batches.epoch(self.at.epoch, skip=self.at.batch)
        fetched = fetched_together(self.fabric, batches, asked, stop)
        for group in in_groups(fetched, self.settings.accumulate):
            self._step(group)
            number = group[-1][0]
            self.at.batch, seen = number + 1, seen + sum(len(y) for _, _, y in group)
            self.at.seconds = time.monotonic() - begin
            if bar.is_due():
                row = self.steps.averages(seen / (time.monotonic() - started))
                bar.show(self.at.epoch, number + 1, self._batches_per_epoch(), row)
            if stop:
                self._stop(stop)
            if self._is_save_due():
                self.save()
                self.steps.set_aside()
        self.steps.end_pass()
        settle_noise_(self.fabric, self.model, self.settings, self.batches, self.at.epoch)
        row = self._close_epoch(seen / (time.monotonic() - started))
        bar.close_epoch(self.at.epoch - 1, row)
        if stop:
            self._stop(stop)

    def _step(self, group: Sequence[Batch]) -> None:
        """One step on these batches."""
        number, x, y = group[0]
        if self.at.step == 0 and self.fabric.world_size > 1:
            require_own_part(self.batches.loader, x, y)
        self.steps.step(self._progress(number, len(y)), group)

    def _progress(self, number: int, batch_size: int) -> float:
        """How much of training has passed before this batch, from 0 to 1."""
        per_epoch, size = self._batches_per_epoch(), self.settings.dataset_size
        if per_epoch is not None:
            at_once = self.settings.accumulate
            number, per_epoch = number // at_once, ceil(per_epoch / at_once)
        share = share_passed(number, per_epoch, batch_size * self.fabric.world_size, size)
        return min(1.0, (self.at.epoch + share) / self.settings.epochs)

    def _batches_per_epoch(self) -> int | None:
        """Those of this process; of a stream that several share its length does not tell."""
        if self.fabric.world_size > 1 and is_stream(self.batches.loader):
            return None
        try:
            return len(self.batches)
        except TypeError:
            return None

    def _good(self) -> str:
        return last_good(self.directory, self.has_checkpoint)

    def _close_epoch(self, speed: float) -> dict[str, Any]:
        """Writes the epoch's row and moves on to the next."""
        if self.at.epoch == 0 and self.fabric.is_global_zero:
            seen, size = float(self.at.totals[-1]), self.settings.dataset_size
            warn_if_read_again(self.batches.loader, seen, size)
        row = self.steps.row(speed)
        row |= validated(self.fabric, self.model, self.val_loader, self.settings.seed)
        if self.settings.keep_best and self.settings.compares(self.at.epoch):
            compare_epoch(self.at, self.model, row.get("val_nll"))
            row["best_epoch"] = self.at.best_epoch
        self.steps.begin_next(row)
        self._write_history()
        self._track()
        return row

    def _write_history(self) -> None:
        if self.directory is not None and self.fabric.is_global_zero:
            write_history(self.directory, self.at.history)

    def _track(self) -> None:
        if self.tracker is not None:
            self.tracker.log(self.at.history)

    def _is_save_due(self) -> bool:
        """By the clock; processes that must save together look at the first one's, now and then."""
        is_due = time.monotonic() - self.saved_at > 60 * self.settings.checkpoint_minutes
        if self.steps.shards is None or self.directory is None:
            return is_due
        if self.at.step % 10:
            return False
        return bool(agreed(torch.tensor(is_due, device=self.fabric.device)))

    def save(self) -> None:
        """Writes the checkpoint, on the first process."""
        self.saved_at = time.monotonic()
        if self.directory is None:
            return
        self.steps.gather()
        states = self.steps.optimizer_states()
        if not self.fabric.is_global_zero:
            return
        self.steps.require_finite()
        if save_state(self.directory, self._fingerprint(), self.model, states, self.at):
            self.has_checkpoint = True

    def _fingerprint(self) -> dict[str, Any]:
        """What a resumed run must agree on."""
        shape = {"world_size": self.fabric.world_size, "batches": self._batches_per_epoch()}
        return self.settings.to_dict() | shape

    def _stop(self, stop: StopRequest) -> None:
        self.save()
        if self.fabric.is_global_zero:
            print(stop.message(self.at.step, self.directory), file=sys.stderr)
        raise stop.exception()
