"""Where candidates for compression are made, stored, loaded back and measured."""

import copy
import math
import secrets
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pocketbayes.codec import TOLERANCE, described, save
from pocketbayes.commands.opening import Dataset
from pocketbayes.commands.planning import Plan
from pocketbayes.commands.train import reopened
from pocketbayes.compression import Recipe, Score, Sized, Traits, best_fitting, prune_, searched
from pocketbayes.data import MemoryLoader
from pocketbayes.layers import (
    Ensemble,
    describe,
    estimator_of,
    head_of,
    named_posteriors,
    set_head,
)
from pocketbayes.methods import Deterministic, MCDropout, MeanField, Method, Sharing, unshare_
from pocketbayes.prediction import Record, evaluate
from pocketbayes.training import fit, refresh_noise_, refresh_norms_, suitable_batch_size

_EVALUATION_BATCH = 500
_COARSEST, _FINEST = -math.log(1e6), -math.log(1e-5)
_LEAST_DENSITY = 1e-4
_TRIES = 4
_STD_LR = 1e-2


@dataclass(frozen=True)
class Candidate:
    """A recipe that was followed: its file, and the record of what came out of it."""

    recipe: Recipe
    path: Path
    size: int
    record: Record
    epochs: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)

    def score(self) -> Score:
        """By what it is compared with others."""
        r = self.record
        return Score(self.size, r.nll, -(r.rmse or 0.0) if r.accuracy is None else r.accuracy)

    def words(self) -> str:
        """What was done, for people."""
        return words_of(self.recipe, self.epochs)


@dataclass(frozen=True)
class TooLarge:
    """A recipe whose file does not fit, and its bytes."""

    recipe: Recipe
    size: int


@dataclass(frozen=True)
class CandidateMaker:
    """A model with its file, the run's data, and a folder for the files of candidates.

    `head_bytes` are left in each file whose one-pass head is to be taught again.
    """

    model: nn.Module
    source: Path
    plan: Plan
    train: Dataset
    validation: Dataset
    folder: Path
    target: int
    traits: Traits
    lr: float
    head_bytes: int = 0

    @property
    def limit(self) -> int:
        """Most bytes of a candidate: a file that is smaller than asked for must not grow."""
        return min(self.target, self.source.stat().st_size)

    @property
    def had_head(self) -> bool:
        """Whether the file has a one-pass head, which other weights need anew."""
        return described(self.source).one_pass is not None

    def as_stored(self) -> Candidate:
        """The model as it is."""
        return Candidate(
            Recipe(), self.source, self.source.stat().st_size, self.measured(self.source)
        )

    def fitted(self, recipe: Recipe) -> Candidate | TooLarge:
        """The recipe, its knob turned until the file just fits; else the smallest it came to."""
        if recipe.knob:
            found = self._turned_to_fit(recipe)
            best = best_fitting(found, self.limit)
            if best is None:
                value, size = min(found, key=lambda t: t.size)
                return TooLarge(recipe.turned(value), size)
            recipe = recipe.turned(best.value)
        return self.finished(recipe, epochs=0)

    def finished(self, recipe: Recipe, epochs: int) -> Candidate | TooLarge:
        """The recipe followed to its end; norms and training change sizes a little, so it checks.

        A file that came out too large is made anew with its knob turned back, each time further.
        """
        for number in range(_TRIES):
            model, history = self._made(recipe, epochs)
            path = self.stored(model, recipe)
            size = self._size(path, model)
            if size <= self.limit:
                return Candidate(recipe, path, size, self.measured(path), epochs, history)
            smaller = self._turned_back(recipe, size, 2**number)
            if number + 1 == _TRIES or smaller == recipe:
                break
            recipe = smaller
        return TooLarge(recipe, size)

    def measured(self, path: Path, outside: Any = None, by_itself: bool = False) -> Record:
        """What comes out of a file, on the validation part: by draws, or as it does by itself."""
        options = self.plan.options
        draws = estimator_of(self.model) if self.had_head and not by_itself else None
        return evaluate(
            reopened(path, self.plan, self.train),
            MemoryLoader(self.validation, _EVALUATION_BATCH),
            options.num_samples,
            outside,
            torch.Generator().manual_seed(options.seed),
            draws,
        )

    def _turned_to_fit(self, recipe: Recipe) -> list[Sized]:
        def size_at(setting: float) -> int:
            chosen = recipe.turned(setting)
            model, _ = self._made(chosen, 0, refresh=False)
            path = self.stored(model, chosen)
            size = self._size(path, model)
            path.unlink()
            return size

        slope = self._slope(recipe)
        return searched(size_at, self.limit, recipe.setting, slope, self._bounds(recipe))

    def _turned_back(self, recipe: Recipe, size: int, times: int) -> Recipe:
        """The recipe that should come out smaller by a little more than the excess, or by times it.

        What it was is returned if nothing can be turned, or not any further.
        """
        if not recipe.knob:
            return recipe
        slope = self._slope(recipe)
        if recipe.knob == "density":
            slope = min(slope, size / recipe.setting)
        excess = 1.2 * (size - self.limit) + 32
        setting = max(recipe.setting - times * excess / slope, self._bounds(recipe)[0])
        return recipe.turned(min(setting, recipe.setting))

    def _bounds(self, recipe: Recipe) -> tuple[float, float]:
        """Between which its knob may stand."""
        if recipe.knob == "fineness":
            return _COARSEST, _FINEST
        whole = self.traits.density
        return min(_LEAST_DENSITY, whole), whole

    def _slope(self, recipe: Recipe) -> float:
        """Bytes by which a file grows with its knob, about: a bit per weight and fineness."""
        if recipe.knob == "density":
            return self.source.stat().st_size / self.traits.density
        weights = sum(q.shape.numel() for _, q in named_posteriors(self.model))
        return (recipe.density or self.traits.density) * weights / 8

    def _size(self, path: Path, model: nn.Module) -> int:
        """Bytes of the file, with those of a head that it is to have."""
        waits = self.head_bytes > 0 and head_of(model) is None
        return path.stat().st_size + (self.head_bytes if waits else 0)

    def stored(self, model: nn.Module, recipe: Recipe) -> Path:
        """A file of its own for every candidate."""
        path = self.folder / f"{secrets.token_hex(8)}.pocket"
        save(model, path, tolerance=recipe.tolerance or TOLERANCE)
        return path

    def _made(
        self, recipe: Recipe, epochs: int, refresh: bool = True
    ) -> tuple[nn.Module, list[dict[str, Any]]]:
        """A copy of the model to which the recipe was done."""
        model = copy.deepcopy(self.model)
        if recipe.is_untouched:
            return model, []
        set_head(model, None)
        pruned_to(model, recipe.density)
        if recipe.entries is not None:
            return model, self._trained(model, self.sharing(recipe, refresh), epochs)
        if refresh:
            generator = torch.Generator().manual_seed(self.plan.options.seed)
            refresh_norms_(model, self.loader(), generator=generator)
            refresh_noise_(model, self.loader(), generator=generator)
        return model, self._trained(model, self._fine_tuning(), epochs) if epochs else []

    def _fine_tuning(self) -> Method:
        """What fine-tunes a model that was only pruned."""
        if self.traits.keeps_dropout:
            return MCDropout(lr=self.lr)
        if not self.traits.is_random:
            return Deterministic(lr=self.lr)
        return MeanField(lr=self.lr, std_lr=_STD_LR, warmup=0.0, **self._beta())

    def _beta(self) -> dict[str, Any]:
        """The KL's weight in the run, or the one that it ended with; nothing if it had none."""
        beta = getattr(self.plan.method, "beta", None) or describe(self.model).beta
        return {} if beta is None else {"beta": beta}

    def sharing(self, recipe: Recipe, refresh: bool = True) -> Sharing:
        """The method that shares as the recipe says."""
        return Sharing(
            objective="rate_distortion",
            components=recipe.entries or 1,
            rate=recipe.rate,
            lr=self.lr,
            std_lr=_STD_LR,
            refresh_norms=refresh,
            **self._beta(),
        )

    def _trained(self, model: nn.Module, method: Method, epochs: int) -> list[dict[str, Any]]:
        options = self.plan.options
        result = fit(
            model,
            self.loader(),
            method,
            epochs=epochs,
            likelihood=self.train.likelihood,
            seed=options.seed,
            precision=options.precision,
            device=options.device,
            progress=epochs > 0 and sys.stderr.isatty(),
        )
        return result.history

    def loader(self) -> MemoryLoader:
        """The training part, as the run was trained on it."""
        options = self.plan.options
        size = options.batch_size or suitable_batch_size(len(self.train))
        return MemoryLoader(self.train, size, shuffle=True, augment=options.augment)


def words_of(recipe: Recipe, epochs: int) -> str:
    """What was done, for people."""
    passes = "an epoch" if epochs == 1 else f"{epochs} epochs"
    return recipe.words() + (f", trained for {passes}" if epochs else "")


def pruned_to(model: nn.Module, density: float | None) -> None:
    """Takes inclusion variables out of the model, and at a density its noisiest weights."""
    if has_inclusion_variables(model):
        prune_(model)
    if density is not None:
        unshare_(model)
        random = any(q.is_random for _, q in named_posteriors(model))
        prune_(model, density, by="snr" if random else "magnitude")


def traits_of(model: nn.Module) -> Traits:
    """What of the model decides how it can be made smaller."""
    plain = copy.deepcopy(model)
    set_head(plain, None)
    pruned_to(plain, None)
    return Traits(
        is_random=any(q.is_random for _, q in named_posteriors(model)),
        is_ensemble=isinstance(model, Ensemble),
        keeps_dropout=describe(model).keeps_dropout,
        has_inclusion_variables=has_inclusion_variables(model),
        density=density_of(plain),
    )


def has_inclusion_variables(model: nn.Module) -> bool:
    """Whether weights have inclusion variables."""
    return any(True for _, q in named_posteriors(model) for _ in q.inclusion_parameters())


def density_of(model: nn.Module) -> float:
    """The share of the weights that are there; vectors, which are never pruned, left out."""
    found = [q for _, q in named_posteriors(model) if len(q.shape) > 1]
    return sum(q.num_active for q in found) / max(1, sum(q.shape.numel() for q in found))
