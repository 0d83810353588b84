"""One training run: its parts, where it stands, and how it goes on."""

import math
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pocketbayes.batches import Batches
from pocketbayes.checkpoints import NAME, load_checkpoint, save_checkpoint, write_history
from pocketbayes.description import update_description
from pocketbayes.diagnosis import LossWatch, where_not_finite
from pocketbayes.elbo import Objective, explained_failure
from pocketbayes.environment import deferred_interrupt
from pocketbayes.errors import TrainingError
from pocketbayes.evaluation import evaluate
from pocketbayes.methods import Method
from pocketbayes.optimizers import lr_scale, make_optimizers
from pocketbayes.progress import TrainingBar

# Where a run stands: what `Run` counts, and its last values of two schedules.
_PLACE = ("epoch", "batch", "step", "seconds", "beta", "lr_scale")


@dataclass(frozen=True)
class Settings:
    """What determines a run, besides model and data."""

    epochs: int
    likelihood: str
    seed: int
    dataset_size: int
    method: Method
    compile: bool | str
    checkpoint_minutes: float

    def to_dict(self) -> dict[str, Any]:
        """All that bears on the result."""
        return {
            "epochs": self.epochs,
            "likelihood": self.likelihood,
            "seed": self.seed,
            "dataset_size": self.dataset_size,
            **self.method.settings(),
        }


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
    ) -> None:
        self.fabric, self.model, self.settings, self.directory = fabric, model, settings, directory
        self.val_loader = val_loader
        self.batches = Batches(
            loader, settings.seed, fabric.global_rank, fabric.world_size, fabric.device
        )
        self.objective = Objective(model, settings.likelihood)
        one_gpu = fabric.device.type == "cuda" and fabric.world_size == 1
        self.replays_graphs = settings.compile is True and one_gpu
        optimizers = make_optimizers(model, settings.method)
        self.step_module, *self.optimizers = fabric.setup(self._compiled(), *optimizers)
        self.score = "accuracy" if settings.likelihood == "categorical" else "rmse"
        self.epoch = self.batch = self.step = 0
        self.beta = self.lr_scale = 0.0
        self.history: list[dict[str, Any]] = []
        self.seconds = 0.0
        # Sums over the epoch of loss, nll, KL and score, each times the batch size, and of that.
        self.totals = torch.zeros(5, dtype=torch.float64, device=fabric.device)
        self.watch = LossWatch(fabric.device)
        self.saved_at = time.monotonic()
        self.has_checkpoint = False

    def _compiled(self) -> Any:
        """The loss as it is run: compiled or not.

        On one GPU its kernels are replayed as a CUDA graph: launching them one by one takes the
        host longer than running them takes a fast GPU.
        """
        wanted = self.settings.compile
        if isinstance(wanted, str):
            return torch.compile(self.objective, backend=wanted)
        if not wanted:
            return self.objective
        mode = "reduce-overhead" if self.replays_graphs else None
        return torch.compile(self.objective, mode=mode)

    def train(self, progress: bool) -> None:
        """Runs from where it stands to the end."""
        begin = time.monotonic() - self.seconds
        shown = progress and self.fabric.is_global_zero
        with deferred_interrupt(self.fabric.world_size == 1) as interrupted, TrainingBar(
            self.settings.epochs, self.score, shown
        ) as bar:  # fmt: skip
            while self.epoch < self.settings.epochs:
                self._run_epoch(bar, begin, interrupted)
        self.settings.method.finish(self.model)
        self._require_finite_parameters()
        self.save()
        for parameter in self.model.parameters():
            parameter.grad = None

    def _run_epoch(self, bar: TrainingBar, begin: float, interrupted: threading.Event) -> None:
        started, seen = time.monotonic(), 0
        for number, x, y in self.batches.epoch(self.epoch, skip=self.batch):
            self._step(number, x, y)
            self.batch, seen = number + 1, seen + len(y)
            self.seconds = time.monotonic() - begin
            if bar.is_due():
                row = self._averages(seen / (time.monotonic() - started))
                bar.show(self.epoch, number + 1, self._batches_per_epoch(), row)
            if interrupted.is_set():
                self._stop_for_interrupt()
            if time.monotonic() - self.saved_at > 60 * self.settings.checkpoint_minutes:
                self.save()
        self._check(everything=True)
        row = self._close_epoch(seen / (time.monotonic() - started))
        bar.close_epoch(self.epoch - 1, row)
        if interrupted.is_set():
            self._stop_for_interrupt()

    def _step(self, number: int, x: Tensor, y: Tensor) -> None:
        """One optimiser step on one batch."""
        method, size = self.settings.method, self.settings.dataset_size
        progress = self._progress(number, len(y))
        self.beta = method.kl_weight(progress)
        self.lr_scale = lr_scale(progress, method.lr_warmup)
        weight = torch.full((), self.beta / size, device=x.device)
        if self.replays_graphs:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        with explained_failure(x):
            loss, numbers = self.step_module(x, y, weight)
        if self.step == 0:
            update_description(self.model, input_dims=x.dim())
        self.step += 1
        self.watch.add(self.step, loss, x, y)
        self._check(everything=False)
        self.fabric.backward(loss)
        if method.clip_norm is not None:
            means = [p for group in self.optimizers[0].param_groups for p in group["params"]]
            nn.utils.clip_grad_norm_(means, method.clip_norm)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak_lr"] * self.lr_scale
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        method.after_step(self.model, self.step)
        self.totals[:4] += numbers * len(y)
        self.totals[4] += len(y)

    def _progress(self, number: int, batch_size: int) -> float:
        """How much of training has passed before this batch, from 0 to 1."""
        per_epoch = self._batches_per_epoch()
        if per_epoch is None:
            share = number * batch_size * self.fabric.world_size / self.settings.dataset_size
        else:
            share = number / per_epoch
        return min(1.0, (self.epoch + min(1.0, float(share))) / self.settings.epochs)

    def _batches_per_epoch(self) -> int | None:
        try:
            return len(self.batches)
        except TypeError:
            return None

    def _check(self, everything: bool) -> None:
        """Stops if a loss was not finite: of those known by now, or of every step so far."""
        bad = self.watch.first_bad(everything)
        if bad is None:
            return
        where = where_not_finite(self.objective, bad.x, bad.y)
        raise TrainingError(
            f"the loss is not finite at step {bad.step} (epoch {self.epoch + 1}): {where}. "
            f"{self._last_good()} If the data is right, lower the learning rate or set clip_norm"
        )

    def _last_good(self) -> str:
        if self.directory is None or not self.has_checkpoint:
            return "No checkpoint was written."
        return f"The last good checkpoint is {self.directory / NAME}."

    def _require_finite_parameters(self) -> None:
        """A gradient may break the parameters in a step whose loss was still finite."""
        self._check(everything=True)
        for name, parameter in self.model.named_parameters():
            if not parameter.isfinite().all():
                raise TrainingError(
                    f"parameter {name} is not finite after step {self.step}, though the loss was: "
                    f"its gradient overflowed. {self._last_good()} Lower the learning rate or set "
                    "clip_norm"
                )

    def _averages(self, speed: float) -> dict[str, Any]:
        """Means over the epoch so far, on this rank."""
        *sums, count = self.totals.tolist()
        loss, nll, kl, score = (total / max(count, 1) for total in sums)
        score = math.sqrt(score) if self.score == "rmse" else score
        return {
            "loss": loss,
            "nll": nll,
            "kl": kl,
            self.score: score,
            "examples_per_second": speed * self.fabric.world_size,
        }

    def _close_epoch(self, speed: float) -> dict[str, Any]:
        """Writes the epoch's row and moves on to the next."""
        if self.fabric.world_size > 1:
            torch.distributed.all_reduce(self.totals)
        row: dict[str, Any] = {"epoch": self.epoch + 1, "step": self.step}
        row |= self._averages(speed)
        row |= {"beta": self.beta, "lr": self.settings.method.lr * self.lr_scale}
        row |= {"seconds": self.seconds}
        if self.val_loader is not None and self.fabric.is_global_zero:
            row |= self._validation()
        self.history.append(row)
        self.totals.zero_()
        self.epoch, self.batch = self.epoch + 1, 0
        self._write_history()
        return row

    def _validation(self) -> dict[str, float]:
        assert self.val_loader is not None
        generator = torch.Generator().manual_seed(self.settings.seed)
        record = evaluate(self.model, self.val_loader, num_samples=10, generator=generator)
        return {f"val_{k}": v for k, v in record.to_dict().items() if isinstance(v, float)}

    def _write_history(self) -> None:
        if self.directory is not None and self.fabric.is_global_zero:
            write_history(self.directory, self.history)

    def save(self) -> None:
        """Writes the checkpoint, on the first process."""
        self.saved_at = time.monotonic()
        if self.directory is None or not self.fabric.is_global_zero:
            return
        self._require_finite_parameters()
        save_checkpoint(
            self.directory,
            {
                "settings": self._fingerprint(),
                "model": self.model.state_dict(),
                "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
                "place": {name: getattr(self, name) for name in _PLACE},
                "totals": self.totals.clone(),
                "history": self.history,
            },
        )
        self.has_checkpoint = True

    def _fingerprint(self) -> dict[str, Any]:
        """What a resumed run must agree on."""
        shape = {"world_size": self.fabric.world_size, "batches": self._batches_per_epoch()}
        return self.settings.to_dict() | shape

    def restore(self) -> None:
        """Takes up the checkpoint, if it is one of the same run."""
        assert self.directory is not None
        state = load_checkpoint(self.directory, self.fabric.device)
        mine, theirs = self._fingerprint(), state["settings"]
        for name in mine.keys() | theirs.keys():
            if mine.get(name) != theirs.get(name):
                raise TrainingError(
                    f"the checkpoint in {self.directory} was made with {name}="
                    f"{theirs.get(name)!r}, this call has {mine.get(name)!r}; "
                    "resume with the same settings, or start anew with resume=False"
                )
        try:
            self.model.load_state_dict(state["model"])
        except RuntimeError as error:
            raise TrainingError(
                f"the checkpoint in {self.directory} is of another network: {error}"
            ) from error
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        for name in _PLACE:
            setattr(self, name, state["place"][name])
        self.totals.copy_(state["totals"])
        self.history, self.has_checkpoint = state["history"], True

    def _stop_for_interrupt(self) -> None:
        self.save()
        where = "nothing was saved: no out= was given"
        if self.directory is not None:
            where = f"saved to {self.directory}, from which fit(..., resume=True) goes on"
        print(f"\ninterrupted after step {self.step}; {where}", file=sys.stderr)
        raise KeyboardInterrupt
