"""The work of `compress`: networks that get sparser step by step, their files, their quality."""

import copy
import math
import time
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pocketbayes.codec import as_stored
from pocketbayes.compression.candidates import Candidate, Rung
from pocketbayes.compression.choosing import best_fitting, searched
from pocketbayes.compression.counting import multiplications
from pocketbayes.compression.rounding import rounded, sensitivities
from pocketbayes.compression.traits import (
    COARSE,
    FINE,
    density_of,
    is_random,
    pruned,
    sharing_method,
    tuning_of,
)
from pocketbayes.errors import PocketBayesError, ProgramError
from pocketbayes.layers import (
    Ensemble,
    Inputs,
    describe,
    first_parameter,
    moved,
    named_posteriors,
    parts_of,
)
from pocketbayes.methods import Method, Sharing
from pocketbayes.prediction import Record, evaluate, float_dtype, predict, unpack
from pocketbayes.training import fit, refresh_noise_, refresh_norms_, with_teacher

_LEAST_DENSITY = 1e-4
_COARSEST_SHARING, _FINEST_SHARING = -math.log(1e6), -math.log(1e-5)
_EPOCHS, _LEAST_STEPS, _PART = 40, 500, 4  # of a training of unknown length; a quarter is enough
_SPARE = 0.98
_SECONDS = 0.2  # for the time of a pass
_EXAMPLES = 256  # that say how much the loss depends on each tensor
_MOST_BYTES, _MOST_SHARE = 2048, 0.01  # of a file, that the program of its network may take


class UnreachableError(PocketBayesError):
    """No file gets as small as that."""

    def __init__(self, target: int, smallest: int) -> None:
        super().__init__(
            f"no way was found to {target:,} bytes: the smallest file was {smallest:,}; ask for "
            "more, or train a smaller network"
        )


@dataclass(frozen=True)
class Settings:
    """What all trainings and measurements of a compression have in common."""

    method: Method | None
    epochs: int | None
    components: int | None
    num_samples: int
    seed: int
    likelihood: str
    fit_options: dict[str, Any]


@dataclass(frozen=True)
class Chain:
    """A model, its data, and a folder for files; `head_bytes` are left in each for a head.

    With `with_program` files carry their network, for readers without torch.
    """

    model: nn.Module
    teacher: nn.Module | None
    train: Iterable[Any]
    validation: list[Any]
    example: Inputs
    folder: Path
    settings: Settings
    head_bytes: int = 0
    with_program: bool = False

    def begun(self) -> Rung:
        """The model as it is."""
        return self.costed(Rung(copy.deepcopy(self.model), density_of(self.model)))

    def costed(self, rung: Rung) -> Rung:
        """The same with what a pass costs, and how finely points are to be stored."""
        example = self._example_for(rung.model)
        return replace(
            rung, multiplications=multiplications(rung.model, example).sparse,
            milliseconds=_seconds(rung, example) * 1e3,
            sensitivity=sensitivities(rung.model, self.settings.likelihood, self._few_pairs()),
        )  # fmt: skip

    def _few_pairs(self) -> Iterator[tuple[Inputs, Tensor]]:
        """Inputs and targets of some validation examples, where the model is."""
        device, left = first_parameter(self.model).device, _EXAMPLES
        for batch in self.validation:
            x, y = unpack(batch, "val_loader", float_dtype(self.model))
            if left < len(y):
                x, y = next(parts_of(x, left)), y[:left]
            yield moved(x, device), y
            left -= len(y)
            if not left:
                return

    def _example_for(self, model: nn.Module) -> Inputs:
        """Where the model is: training may have moved it."""
        return moved(self.example, first_parameter(model).device)

    def candidate(self, rung: Rung, tolerance: float) -> Candidate:
        """The network as its file of this tolerance gives it back."""
        path = self.folder / f"{len(list(self.folder.iterdir()))}.pocket"
        model = rounded(rung.model, rung.sensitivity, tolerance)
        model, size = self.stored(model, tolerance, path)
        is_coarse = is_random(model) or rung.sensitivity
        words = rung.words + ((f"stored to {tolerance:g} nats",) if is_coarse else ())
        return Candidate(
            ", ".join(words) or "as it is", size, self.measured(model), rung.density, tolerance,
            rung.multiplications, rung.milliseconds, path, rung, self.head_bytes,
        )  # fmt: skip

    def measured(self, model: nn.Module) -> Record:
        """On the validation data."""
        model = model.to(first_parameter(self.model).device)
        generator = torch.Generator().manual_seed(self.settings.seed)
        return evaluate(
            model, self.validation, self.settings.num_samples, generator=generator,
            likelihood=self.settings.likelihood,
        )  # fmt: skip

    def size_of(self, model: nn.Module, tolerance: float) -> int:
        """Bytes of its file."""
        return self.stored(model, tolerance)[1] + self.head_bytes

    def stored(
        self, model: nn.Module, tolerance: float, path: Path | None = None
    ) -> tuple[nn.Module, int]:
        """What its file gives back, and the bytes; with its network as a program, if it has one."""
        example = self._example_for(model) if self.with_program else None
        return as_stored(model, path=path, tolerance=tolerance, example=example)

    def can_carry_program(self) -> bool:
        """Whether files can hold the network itself, for readers without torch, at little cost."""
        try:
            size = self.stored(self.model, COARSE)[1]
        except ProgramError:
            return False
        plain = as_stored(self.model, tolerance=COARSE)[1]
        return size - plain <= max(_MOST_BYTES, _MOST_SHARE * plain)

    def density_for(self, rung: Rung, target: int) -> float:
        """The density at which the pruned network, stored coarsely, just fits.

        Raises:
            UnreachableError: no density does.
        """

        def size_at(density: float) -> int:
            sparse = pruned(rung.model, density)
            return self.size_of(rounded(sparse, rung.sensitivity, COARSE), COARSE)

        least = min(_LEAST_DENSITY, rung.density)
        slope = size_at(rung.density) / rung.density
        aim = round(_SPARE * target)  # training moves the bytes a little
        found = searched(size_at, aim, rung.density / 2, slope, (least, rung.density))
        best = best_fitting(found, aim) or best_fitting(found, target)
        if best is None:
            raise UnreachableError(target, min(size for _, size in found) - self.head_bytes)
        return best.value

    def sparser(self, rung: Rung, density: float, most: int | None = None) -> Rung:
        """The network with fewer weights, trained on; `most`: multiplications."""
        model = pruned(rung.model, density, most, self._example_for(rung.model))
        done = Rung(model, density_of(model), (f"pruned to {100 * density:.3g}%",))
        return self.costed(self._tuned(done))

    def fineness_for(self, rung: Rung, target: int) -> float | None:
        """The fineness of sharing at which the file just fits; None: none does."""

        def size_at(fineness: float) -> int:
            model = copy.deepcopy(rung.model)
            self._fit(model, self._sharing(fineness, refresh=False), 0)
            return self.size_of(model, FINE)

        active = sum(q.num_active for _, q in named_posteriors(rung.model))
        bounds = _COARSEST_SHARING, _FINEST_SHARING
        best = best_fitting(searched(size_at, target, 0.0, active / 8, bounds), target)
        return None if best is None else best.value

    def shared(self, rung: Rung, fineness: float, epochs: int) -> Rung:
        """The network with one codebook for all weights."""
        model = copy.deepcopy(rung.model)
        history = self._fit(model, self._sharing(fineness, refresh=True), epochs)
        words = (*rung.words, "shared", *_trained_for(epochs))
        return replace(rung, model=model, words=words, epochs=epochs, history=history,
                       entries=self.settings.components)  # fmt: skip

    def epochs(self) -> int:
        """Of each training: as said, or a quarter of the model's, and of at least 500 steps."""
        if isinstance(self.model, Ensemble):
            return 0
        if self.settings.epochs is not None:
            return self.settings.epochs
        known = (describe(self.model).training or {}).get("epochs", _EPOCHS)
        batches: int = len(self.train) if isinstance(self.train, Sized) else _LEAST_STEPS
        return max(math.ceil(int(known) / _PART), math.ceil(_LEAST_STEPS / max(1, batches)))

    def _tuned(self, rung: Rung) -> Rung:
        epochs = self.epochs()
        if not epochs:
            generator = torch.Generator().manual_seed(self.settings.seed)
            refresh_norms_(rung.model, self.train, generator=generator)
            refresh_noise_(rung.model, self.train, generator=generator)
            return rung
        method = self.settings.method or tuning_of(rung.model)
        history = self._fit(rung.model, method, epochs)
        return replace(
            rung, words=rung.words + _trained_for(epochs), epochs=epochs, history=history
        )

    def _fit(self, model: nn.Module, method: Method, epochs: int) -> list[dict[str, Any]]:
        torch.compiler.reset()  # compiled code fits one density
        s, loader = self.settings, self.train
        if epochs and self.teacher is not None:
            compiled = s.fit_options.get("compile", False)
            loader = with_teacher(loader, self.teacher, compile=compiled)
        return fit(
            model, loader, method, epochs=epochs, likelihood=s.likelihood, seed=s.seed,
            **s.fit_options,
        ).history  # fmt: skip

    def _sharing(self, fineness: float, refresh: bool) -> Sharing:
        return sharing_method(self.model, self.settings.components or 2, fineness, refresh)


def _trained_for(epochs: int) -> tuple[str, ...]:
    words = "an epoch" if epochs == 1 else f"{epochs} epochs"
    return (f"trained for {words}",) if epochs else ()


def _seconds(rung: Rung, example: Inputs) -> float:
    """The median of a pass of the mean network over one example."""
    for backend in ("engine", "torch"):
        try:
            predict(rung.model, example, estimator="mean", single=False, backend=backend)
        except PocketBayesError:
            continue  # it is not installed, or does not know the network
        spent, end = list[float](), time.perf_counter() + _SECONDS
        while len(spent) < 3 or time.perf_counter() < end:
            begin = time.perf_counter()
            predict(rung.model, example, estimator="mean", single=False, backend=backend)
            spent.append(time.perf_counter() - begin)
        return sorted(spent)[len(spent) // 2]
    return math.nan
