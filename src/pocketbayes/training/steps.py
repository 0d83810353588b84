"""The steps of training, whoever hands out the batches: `fit`, or another library's loop."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from pocketbayes.errors import warn
from pocketbayes.layers import Inputs, explained_failure, num_dims, update_description
from pocketbayes.likelihoods import Objective
from pocketbayes.methods import StartContext, StepContext, never_broadcast
from pocketbayes.posteriors import Posterior, isolated_randomness
from pocketbayes.training.batches import Batch, shares_of
from pocketbayes.training.checking import fill_optimizers
from pocketbayes.training.diagnosis import LossWatch
from pocketbayes.training.doubt import follows_doubt, share_of_beta
from pocketbayes.training.environment import compiled_loss
from pocketbayes.training.flatness import at_worst_means, flatness_of
from pocketbayes.training.gradients import dense_gradients, kept_buffers, weighted_mean
from pocketbayes.training.guarding import require_finite_losses, require_finite_parameters
from pocketbayes.training.optimizers import kinds_of, make_optimizers, step_
from pocketbayes.training.priors import EVERY, learns_prior, move_priors_
from pocketbayes.training.run_state import RunState
from pocketbayes.training.settings import Settings
from pocketbayes.training.sharding import Shards, require_splittable, split_states_, whole_states
from pocketbayes.training.together import raise_together
from pocketbayes.training.worth import Targets


class Steps:
    """Takes a batch and does all that follows from it: loss, optimisers, and the method's part.

    Attributes:
        at: where training stands.
        optimizers: those of the means and of what is on a log scale.
        good: says in a sentence where to go on from after an error.
    """

    def __init__(
        self,
        fabric: Any,
        model: nn.Module,
        settings: Settings,
        context: StartContext,
        good: Callable[[], str],
    ) -> None:
        self.fabric, self.model, self.settings, self.good = fabric, model, settings, good
        self.objective = Objective(model, settings.likelihood)
        one_gpu = fabric.device.type == "cuda" and fabric.world_size == 1
        self.compile = settings.compile if not settings.method.resizes else False
        if self.compile != settings.compile:
            warn(
                "not compiled: this method changes the sizes of tensors as it goes, and each "
                "change would be compiled anew",
            )
        self.flatness = flatness_of(settings.method)
        # A replayed graph would write over the gradients of the passes before.
        one_pass = settings.accumulate == 1 and self.flatness == 0
        self.replays_graphs = self.compile is True and one_gpu and one_pass
        self.score = self.objective.likelihood.score
        self.at = RunState.at_start(fabric.device, context.memory, model, settings.method)
        self.watch, self.targets = LossWatch(fabric.device), Targets(self.objective.likelihood)
        self.shards: Shards | None = None
        if settings.strategy == "fsdp":
            require_splittable(model, settings.method)
            if fabric.world_size > 1:
                self.shards = Shards(fabric, model, settings.likelihood)
        self.trained = model if self.shards is None else self.shards.model
        self.optimizers = make_optimizers(self.trained, settings.method)
        self._set_up()

    def _set_up(self) -> None:
        """Wraps the loss for its device and processes."""
        if self.shards is not None:
            self.step_module: Any = self.shards
            return
        never_broadcast(self.objective, names_inside_posteriors(self.objective))
        self.step_module = self.fabric.setup_module(
            compiled_loss(self.objective, self.compile, self.replays_graphs)
        )

    def step(self, progress: float, group: Sequence[Batch]) -> Tensor:
        """One optimiser step on some batches: the mean of their losses, by example.

        Returns loss, nll, KL and score of the last batch.
        """
        method, size = self.settings.method, self.settings.dataset_size
        self.at.beta = method.kl_weight(progress) * share_of_beta(method, self.at.doubt)
        self.at.lr_scale = method.lr_share(progress)
        weight = torch.full((), self.at.beta / size, device=group[0][2].device)
        parts = self._gradients_of(group, weight)
        for (_, _, y), numbers in zip(group, parts, strict=True):
            self.at.add(numbers, len(y))
        step_(self.optimizers, self.at.lr_scale, self.at.beta / size, method.clip_norm)
        self.at.step += 1
        for _, _, y in group:
            self.targets.add(self.at.epoch, y)
            if follows_doubt(method):
                self.at.add_labels(y)
        self._let_method_act(progress, group)
        return parts[-1]

    def _gradients_of(self, group: Sequence[Batch], weight: Tensor) -> list[Tensor]:
        """Gives parameters the gradients to follow; the numbers of each batch's own loss.

        Of a sharpness-aware step both passes have the same draws, and norms see the first alone.
        """
        if self.flatness == 0:
            return self._backward(group, weight)
        with isolated_randomness(self.fabric.device):
            parts = self._backward(group, weight)
        with ExitStack() as stack:
            means = kinds_of(self.trained).means
            stack.enter_context(at_worst_means(means, self.flatness))
            stack.enter_context(kept_buffers(self.model))
            self.trained.zero_grad()
            self._backward(group, weight)
        return parts

    def _backward(self, group: Sequence[Batch], weight: Tensor) -> list[Tensor]:
        """Adds the gradients of these batches' mean loss."""
        last, parts = group[-1][0], []
        for (number, x, y), share in zip(group, shares_of(group), strict=True):
            if self.replays_graphs:
                torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
            with self._gradients_kept_apart(number < last):
                loss, numbers = self._loss(x, y, weight)
                self.fabric.backward(loss if share == 1 else share * loss)
            parts.append(numbers)
        return parts

    def _gradients_kept_apart(self, whether: bool) -> AbstractContextManager[object]:
        """Inside, processes do not add up their gradients: they do so in a step's last batch.

        Those that hold parts add up at once: whole gradients have no room there.
        """
        if whether and self.fabric.world_size > 1 and self.shards is None:
            return self.fabric.no_backward_sync(self.step_module)  # type: ignore[no-any-return]
        return nullcontext()

    def _loss(self, x: Inputs, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The loss and its parts; what is wrong with them here ends every process.

        Others that hold parts wait for this one's within the pass: there the launcher ends them.
        """
        fault: Exception | None = None
        try:
            with explained_failure(x):
                loss, numbers = self.step_module(x, y, weight)
            if self.at.step == 0:
                update_description(self.model, input_dims=num_dims(x))
            self.watch.add(self.at.step + 1, loss, x, y)
            self.check(everything=False)
        except Exception as error:
            fault = error
        if self.shards is None:
            raise_together(self.fabric, fault)
        elif fault is not None:
            raise fault
        return loss, numbers

    def _let_method_act(self, progress: float, group: Sequence[Batch]) -> None:
        if learns_prior(self.settings.method) and self.at.step % EVERY == 0:
            move_priors_(self.trained)

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

    def end_pass(self) -> None:
        """Follows the last step of an epoch."""
        self.check(everything=True)
        self.gather()
        self.settings.method.after_epoch(self.model, self.at.epoch + 1, self.at.memory)

    def set_aside(self) -> None:
        """Precedes the steps of an epoch: of a model that trains in parts, the whole needs room."""
        if self.shards is not None:
            self.shards.set_aside()

    def gather(self) -> None:
        """Makes the model what was trained so far; all processes call it at once."""
        if self.shards is not None:
            self.shards.gather()

    def optimizer_states(self) -> list[dict[str, Any]]:
        """Whole, for a checkpoint; all processes call it at once."""
        return whole_states(self.optimizers)

    def fill_optimizers(self, stored: list[Any]) -> None:
        """Gives the optimisers what a checkpoint holds of them."""
        fill_optimizers(self.optimizers, stored)
        if self.shards is not None:
            split_states_(self.optimizers)

    def row(self, speed: float) -> dict[str, Any]:
        """What is told of an epoch that ends here; doubt moves on to the next."""
        row: dict[str, Any] = {"epoch": self.at.epoch + 1, "step": self.at.step}
        row |= self.averages(speed)
        row |= {"beta": self.at.beta, "lr": self.settings.method.peak_lr * self.at.lr_scale}
        row |= {"seconds": self.at.seconds}
        if follows_doubt(self.settings.method):
            row["doubt"] = self.at.doubt
            self.at.follow_doubt(row, self.settings.dataset_size)
        return row

    def begin_next(self, row: dict[str, Any]) -> None:
        """Keeps the row of an epoch and moves on."""
        self.at.history.append(row)
        self.at.totals.zero_()
        self.at.epoch, self.at.batch = self.at.epoch + 1, 0

    def averages(self, speed: float) -> dict[str, Any]:
        """Means over the epoch so far, of all processes."""
        averages = self.at.averages(self.score)
        return averages | {"examples_per_second": speed * self.fabric.world_size}

    def check(self, everything: bool) -> None:
        """An error if a loss was not finite."""
        known = self.at.epoch, self.good(), everything, self.shards is None
        require_finite_losses(self.watch, self.objective, *known)

    def require_finite(self) -> None:
        """An error if a loss was not finite, or a parameter is not."""
        self.check(everything=True)
        require_finite_parameters(self.model, self.at.step, self.good())


def names_inside_posteriors(module: nn.Module) -> list[str]:
    """Buffers that every process has alike, which DDP need not send before every step."""
    inside = tuple(f"{name}." for name, m in module.named_modules() if isinstance(m, Posterior))
    return [name for name, _ in module.named_buffers() if name.startswith(inside)]


def share_passed(number: int, batches: int | None, examples: int, dataset_size: int) -> float:
    """The share of an epoch before this batch; of a stream, which has no number, by examples."""
    return min(1.0, number / batches if batches else number * examples / dataset_size)
