"""One training run: its parts, where it stands, and how it goes on."""

import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import ceil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pocketbayes.errors import warn
from pocketbayes.layers import Inputs, explained_failure, num_dims, update_description
from pocketbayes.likelihoods import Objective
from pocketbayes.methods import StartContext, StepContext, never_broadcast
from pocketbayes.posteriors import Posterior
from pocketbayes.prediction import float_dtype
from pocketbayes.training.batches import Batch, Batches, in_groups, shares_of
from pocketbayes.training.best import compare_epoch, has_waited, validated
from pocketbayes.training.checking import fill_model, fill_optimizers, require_standing
from pocketbayes.training.checkpoints import naming, write_history
from pocketbayes.training.composition import FitResult
from pocketbayes.training.diagnosis import LossWatch
from pocketbayes.training.doubt import follows_doubt, share_of_beta
from pocketbayes.training.environment import compiled_loss, peak_memory
from pocketbayes.training.finishing import finish_, settle_noise_
from pocketbayes.training.gradients import dense_gradients, weighted_mean
from pocketbayes.training.guarding import (
    last_good,
    require_finite_losses,
    require_finite_parameters,
)
from pocketbayes.training.optimizers import make_optimizers, step_
from pocketbayes.training.priors import EVERY, learns_prior, move_priors_
from pocketbayes.training.progress import TrainingBar
from pocketbayes.training.run_state import RunState, load_state, save_state
from pocketbayes.training.settings import Settings
from pocketbayes.training.stopping import StopRequest, deferred_signals
from pocketbayes.training.together import agrees, fetched_together, raise_together
from pocketbayes.training.worth import Targets, warn_if_worthless


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
        self.objective = Objective(model, settings.likelihood)
        one_gpu = fabric.device.type == "cuda" and fabric.world_size == 1
        self.compile = settings.compile if not settings.method.resizes else False
        if self.compile != settings.compile:
            warn(
                "not compiled: this method changes the sizes of tensors as it goes, and each "
                "change would be compiled anew",
            )
        # A replayed graph would write over the gradients of the batches before.
        self.replays_graphs = self.compile is True and one_gpu and settings.accumulate == 1
        self.score = self.objective.likelihood.score
        self.at = RunState.at_start(fabric.device, context.memory, model, settings.method)
        self.watch, self.targets = LossWatch(fabric.device), Targets(self.objective.likelihood)
        self.saved_at = time.monotonic()
        self.has_checkpoint = False
        state = self._checkpoint() if resume else None
        if state is not None:
            self._take_over(state)
        self.optimizers = make_optimizers(model, settings.method)
        self._set_up()
        if state is not None:
            self._go_on_from(state)

    def _checkpoint(self) -> dict[str, Any]:
        assert self.directory is not None
        return load_state(self.directory, self._fingerprint(), self.fabric.device)

    def _take_over(self, state: dict[str, Any]) -> None:
        assert self.directory is not None
        with naming(self.directory):
            fill_model(self.model, state["model"])
            require_standing(state, self.model, vars(self.at))

    def _go_on_from(self, state: dict[str, Any]) -> None:
        assert self.directory is not None
        with naming(self.directory):
            fill_optimizers(self.optimizers, state["optimizers"])
        self.at, self.has_checkpoint = RunState(**state["standing"]), True

    def _set_up(self) -> None:
        """Wraps the loss for its device and processes."""
        modules = self.objective.named_modules()
        inside = tuple(f"{name}." for name, m in modules if isinstance(m, Posterior))
        buffers = [n for n, _ in self.objective.named_buffers()]
        never_broadcast(self.objective, [n for n in buffers if n.startswith(inside)])
        self.step_module = self.fabric.setup_module(
            compiled_loss(self.objective, self.compile, self.replays_graphs)
        )

    def train(self, progress: bool) -> FitResult:
        """Runs from where it stands to the end."""
        begin = time.monotonic() - self.at.seconds
        shown = progress and self.fabric.is_global_zero
        settings, several = self.settings, agrees(self.fabric)
        with (
            deferred_signals(several or self.fabric.world_size == 1) as asked,
            TrainingBar(settings.epochs, self.score, shown) as bar,
        ):
            stop = StopRequest() if several else asked
            while self.at.epoch < settings.epochs:
                if has_waited(self.at, settings.patience):
                    break
                self._run_epoch(bar, begin, asked, stop)
        self.save()
        finish_(self.model, settings, self.at, self.context)
        self._require_finite_parameters()
        for parameter in self.model.parameters():
            parameter.grad = None
        at, peak = self.at, peak_memory(self.fabric.device)
        if self.fabric.is_global_zero:
            row = at.best_epoch or len(at.history)
            warn_if_worthless(self.objective, self.batches, self.targets, at.history[:row])
        found = (self.model, at.history, at.seconds, peak, at.best_epoch)
        return FitResult(*found, self.settings.method)

    def _run_epoch(
        self, bar: TrainingBar, begin: float, asked: StopRequest, stop: StopRequest
    ) -> None:
        started, seen = time.monotonic(), 0
        batches = self.batches.epoch(self.at.epoch, skip=self.at.batch)
        fetched = fetched_together(self.fabric, batches, asked, stop)
        for group in in_groups(fetched, self.settings.accumulate):
            self._step(group)
            number = group[-1][0]
            self.at.batch, seen = number + 1, seen + sum(len(y) for _, _, y in group)
            self.at.seconds = time.monotonic() - begin
            if bar.is_due():
                row = self._averages(seen / (time.monotonic() - started))
                bar.show(self.at.epoch, number + 1, self._batches_per_epoch(), row)
            if stop:
                self._stop(stop)
            if time.monotonic() - self.saved_at > 60 * self.settings.checkpoint_minutes:
                self.save()
        self._check(everything=True)
        self.settings.method.after_epoch(self.model, self.at.epoch + 1, self.at.memory)
        settle_noise_(self.fabric, self.model, self.settings, self.batches, self.at.epoch)
        row = self._close_epoch(seen / (time.monotonic() - started))
        bar.close_epoch(self.at.epoch - 1, row)
        if stop:
            self._stop(stop)

    def _step(self, group: Sequence[Batch]) -> None:
        """One optimiser step on some batches: the mean of their losses, by example."""
        method, size = self.settings.method, self.settings.dataset_size
        number, _, y = group[0]
        progress = self._progress(number, len(y))
        self.at.beta = method.kl_weight(progress) * share_of_beta(method, self.at.doubt)
        self.at.lr_scale = method.lr_share(progress)
        weight = torch.full((), self.at.beta / size, device=y.device)
        shares = shares_of(group)
        for (number, x, y), share in zip(group, shares, strict=True):
            if self.replays_graphs:
                torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
            with self._gradients_kept_apart(number < group[-1][0]):
                loss, numbers = self._loss(x, y, weight)
                self.fabric.backward(loss if share == 1 else share * loss)
            self.at.add(numbers, len(y))
        step_(self.optimizers, self.at.lr_scale, method.clip_norm)
        self.at.step += 1
        for _, _, y in group:
            self.targets.add(self.at.epoch, y)
            if follows_doubt(method):
                self.at.add_labels(y)
        self._let_method_act(progress, group)

    def _gradients_kept_apart(self, whether: bool) -> AbstractContextManager[object]:
        """Inside, processes do not add up their gradients: they do so in a step's last batch."""
        if whether and self.fabric.world_size > 1:
            return self.fabric.no_backward_sync(self.step_module)  # type: ignore[no-any-return]
        return nullcontext()

    def _loss(self, x: Inputs, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The loss and its parts; what is wrong with them here ends every process."""
        fault: Exception | None = None
        try:
            with explained_failure(x):
                loss, numbers = self.step_module(x, y, weight)
            if self.at.step == 0:
                update_description(self.model, input_dims=num_dims(x))
            self.watch.add(self.at.step + 1, loss, x, y)
            self._check(everything=False)
        except Exception as error:
            fault = error
        raise_together(self.fabric, fault)
        return loss, numbers

    def _let_method_act(self, progress: float, group: Sequence[Batch]) -> None:
        if learns_prior(self.settings.method) and self.at.step % EVERY == 0:
            move_priors_(self.model)

        def gradients(estimator: str | None = None) -> dict[str, Tensor]:
            with self.fabric.autocast():
                found = [dense_gradients(self.objective, x, y, estimator) for _, x, y in group]
            return weighted_mean(found, shares_of(group))

        at, size = self.at, self.settings.dataset_size
        numbers = at.memory, size, at.beta
        context = StepContext(at.step, progress, self.optimizers, gradients, *numbers)
        resized = self.settings.method.after_step(self.model, context)
        if resized and self.fabric.world_size > 1:
            self._set_up()

    def _progress(self, number: int, batch_size: int) -> float:
        """How much of training has passed before this batch, from 0 to 1."""
        per_epoch = self._batches_per_epoch()
        if per_epoch is None:
            share = number * batch_size * self.fabric.world_size / self.settings.dataset_size
        else:
            together = self.settings.accumulate
            share = number // together / ceil(per_epoch / together)
        return min(1.0, (self.at.epoch + min(1.0, float(share))) / self.settings.epochs)

    def _batches_per_epoch(self) -> int | None:
        try:
            return len(self.batches)
        except TypeError:
            return None

    def _check(self, everything: bool) -> None:
        good = last_good(self.directory, self.has_checkpoint)
        require_finite_losses(self.watch, self.objective, self.at.epoch, good, everything)

    def _require_finite_parameters(self) -> None:
        self._check(everything=True)
        good = last_good(self.directory, self.has_checkpoint)
        require_finite_parameters(self.model, self.at.step, good)

    def _averages(self, speed: float) -> dict[str, Any]:
        """Means over the epoch so far, of all processes."""
        averages = self.at.averages(self.score)
        return averages | {"examples_per_second": speed * self.fabric.world_size}

    def _close_epoch(self, speed: float) -> dict[str, Any]:
        """Writes the epoch's row and moves on to the next."""
        row: dict[str, Any] = {"epoch": self.at.epoch + 1, "step": self.at.step}
        row |= self._averages(speed)
        row |= {"beta": self.at.beta, "lr": self.settings.method.peak_lr * self.at.lr_scale}
        row |= {"seconds": self.at.seconds}
        if follows_doubt(self.settings.method):
            row["doubt"] = self.at.doubt
            self.at.follow_doubt(row, self.settings.dataset_size)
        row |= validated(self.fabric, self.model, self.val_loader, self.settings.seed)
        if self.settings.keep_best and self.settings.compares(self.at.epoch):
            compare_epoch(self.at, self.model, row.get("val_nll"))
            row["best_epoch"] = self.at.best_epoch
        self.at.history.append(row)
        self.at.totals.zero_()
        self.at.epoch, self.at.batch = self.at.epoch + 1, 0
        self._write_history()
        return row

    def _write_history(self) -> None:
        if self.directory is not None and self.fabric.is_global_zero:
            write_history(self.directory, self.at.history)

    def save(self) -> None:
        """Writes the checkpoint, on the first process."""
        self.saved_at = time.monotonic()
        if self.directory is None or not self.fabric.is_global_zero:
            return
        self._require_finite_parameters()
        if save_state(self.directory, self._fingerprint(), self.model, self.optimizers, self.at):
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
