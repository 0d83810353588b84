"""An open .pocket file, and its answers."""

import ctypes as ct
import os
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pocketbayes_lite.errors import LiteError
from pocketbayes_lite.handles import Handles
from pocketbayes_lite.library import (
    CLASSES,
    FLOATS,
    LABELS,
    MEAN,
    MOMENTS,
    ONE_PASS,
    VALUES,
    WEIGHT,
    Answer,
    Ask,
    library,
)
from pocketbayes_lite.predictions import (
    Array,
    ClassPrediction,
    LabelPrediction,
    Prediction,
    ValuePrediction,
    require_level,
)

ESTIMATORS = {"mean": MEAN, "one_pass": ONE_PASS, "moments": MOMENTS, "weight": WEIGHT}
DEFAULT_DRAWS, MOST_DRAWS = 30, 100_000
_OF_CLASSES = ("probs", "entropy", "aleatoric", "epistemic", "label")
_OF_VALUES = ("mean", "std", "aleatoric", "epistemic")


def load(path: str | os.PathLike[str]) -> "Model":
    """The model in a file that `pb.save(model, path, example=x)` wrote.

    Safe on files from anywhere: they hold no code, and all sizes are checked.

    Raises:
        LiteError: the file is damaged, or has no program of its network.
    """
    found = Path(path)
    try:
        if found.exists() and not found.is_file():
            raise LiteError(f"{path} is no file: a pipe or device might block, or never end")
        data = found.read_bytes()
    except OSError as error:
        raise LiteError(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        return read(data)
    except LiteError as error:
        raise LiteError(f"{path}: {error}") from error


def read(data: bytes) -> "Model":
    """The model in the bytes of such a file."""
    return Model(Handles(data, DEFAULT_DRAWS))


class Model:
    """A network that predicts with uncertainty; several threads may do so at once."""

    def __init__(self, handles: Handles) -> None:
        self._handles, pointer = handles, handles.first.pointer
        engine = library()
        self._kind = engine.pocket_kind(pointer)
        self.members: int = engine.pocket_members(pointer)
        self.input_shapes = [handles.shape(i) for i in range(engine.pocket_inputs(pointer))]
        self.takes_whole_numbers = [
            bool(engine.pocket_is_whole(pointer, i)) for i in range(len(self.input_shapes))
        ]
        self.output_shape = handles.shape(-1)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What the file says of its model: "likelihood", "preprocess", "training" and so on."""
        return self._handles.facts()

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of classes or labels, if the file has them."""
        names = self.facts.get("class_names")
        return None if names is None else tuple(names)

    @property
    def likelihood(self) -> str:
        """What an output means."""
        return self.facts.get("likelihood") or "categorical"

    @property
    def memory(self) -> int:
        """Bytes that one thread holds beside the file's numbers."""
        return int(library().pocket_memory(self._handles.first.pointer))

    @cached_property
    def default_estimator(self) -> str:
        """What `predict` does if nothing is said; "none": no weight is random."""
        pointer = self._handles.first.pointer
        name = {n: name for name, n in ESTIMATORS.items()}[self._default]
        if name in ("one_pass", "moments") or library().pocket_has_random_weights(pointer):
            return name
        return "none"  # a network, several, or draws of dropout that stays on

    @cached_property
    def _default(self) -> int:
        return int(library().pocket_default(self._handles.first.pointer))

    def predict(
        self,
        x: ArrayLike | tuple[ArrayLike, ...],
        estimator: str | None = None,
        num_samples: int = DEFAULT_DRAWS,
        seed: int = 0,
        level: float = 0.9,
        normals: ArrayLike | None = None,
    ) -> Prediction:
        """Predicts with uncertainty.

        Args:
            x: a batch, or one example, of the shape that the network was saved for, prepared as
                in training; a tuple, if it takes several inputs.
            estimator: "weight" (draws of the whole network), "mean" (the mean network alone),
                "one_pass" (of a model that `distill_` taught) or "moments" (mean and variance go
                through the network). None: one pass if taught; moments for one value with Gaussian
                noise by a chain of linear layers; else "weight".
            num_samples: draws of the network, or of the Gaussian of one pass and moments.
            seed: makes draws repeat.
            level: of `.interval()`.
            normals: (num_samples, outputs) standard normal numbers that stand for that Gaussian;
                None: spread well, always the same.

        Returns:
            `ClassPrediction`, `LabelPrediction` or `ValuePrediction`.

        Raises:
            LiteError: what is asked for, or an input, is not what it must be.
        """
        ask, spread = self._ask(estimator, num_samples, seed, level, normals)
        inputs, single = self._inputs(x)
        found = self._answered(inputs, ask, ("outputs", *self._wanted()))
        found = {name: a[0] if single else a for name, a in found.items()}
        draws = self._draws(ask.estimator, num_samples)
        about = {"estimator": estimator or self.default_estimator, "num_samples": draws}
        return self._told(found, single, about, inputs, ask, spread)

    def samples(
        self,
        x: ArrayLike | tuple[ArrayLike, ...],
        estimator: str | None = None,
        num_samples: int = DEFAULT_DRAWS,
        seed: int = 0,
        normals: ArrayLike | None = None,
    ) -> Array:
        """(S, N, ...) the network's outputs of each draw, without any likelihood; see `predict`."""
        ask, spread = self._ask(estimator, num_samples, seed, 0.9, normals)
        inputs, single = self._inputs(x)
        draws = self._draws(ask.estimator, num_samples)
        (made,) = self._answered(inputs, ask, ("samples",), draws).values()
        del spread  # kept until here
        return made[:, 0] if single else made

    def _ask(
        self,
        estimator: str | None,
        num_samples: int,
        seed: int,
        level: float,
        normals: ArrayLike | None,
    ) -> tuple[Ask, Array | None]:
        """What the engine is asked, and the numbers that this points to."""
        number = self._number_of(estimator)
        if type(num_samples) is not int or not 1 <= num_samples <= MOST_DRAWS:
            raise LiteError(f"num_samples must be from 1 to {MOST_DRAWS:,}; got {num_samples!r}")
        if type(seed) is not int or not 0 <= seed < 2**64:
            raise LiteError(f"seed must be a whole number from 0 to 2^64 - 1; got {seed!r}")
        spread = None if normals is None else self._normals(normals, num_samples)
        ask = Ask(number, num_samples, seed, require_level(level))
        if spread is not None:
            ask.normals = spread.ctypes.data_as(FLOATS)
        return ask, spread

    def _number_of(self, estimator: str | None) -> int:
        if estimator in ("lrt", "flipout"):
            raise LiteError(
                f'estimator="{estimator}" draws noise of its own for every output, which the '
                'engine does not: "weight" draws whole networks'
            )
        if estimator is not None and estimator not in ESTIMATORS:
            raise LiteError(f"estimator must be one of {', '.join(ESTIMATORS)}; got {estimator!r}")
        return self._default if estimator is None else ESTIMATORS[estimator]

    def _wanted(self) -> tuple[str, ...]:
        return _OF_VALUES if self._kind == VALUES else _OF_CLASSES

    def _draws(self, number: int, asked: int) -> int:
        """How many were made: an ensemble makes as many of each member."""
        is_random = self._default != MEAN
        return self.members * (-(-asked // self.members) if number != MEAN and is_random else 1)

    def _told(
        self,
        found: dict[str, NDArray[Any]],
        single: bool,
        about: dict[str, Any],
        inputs: list[Array],
        ask: Ask,
        normals: Array | None,
    ) -> Prediction:
        all_of: dict[str, Any] = about | found | {"facts": self.facts}
        if self._kind == CLASSES:
            return ClassPrediction(class_axis=0 if single else 1, **all_of)
        if self._kind == LABELS:
            return LabelPrediction(**all_of)
        interval = partial(self._interval, inputs, ask, normals, single)  # keeps `normals`
        return ValuePrediction(**all_of, level=ask.level, interval_at=interval)

    def _interval(
        self, inputs: list[Array], ask: Ask, normals: Array | None, single: bool, level: float
    ) -> tuple[Array, Array]:
        """Bounds of the same draws, which are made again."""
        again = Ask(ask.estimator, ask.draws, ask.seed, require_level(level), ask.normals)
        found = self._answered(inputs, again, ("lower", "upper"))
        low, high = (found[name][0] if single else found[name] for name in ("lower", "upper"))
        return low, high

    def _answered(
        self, inputs: list[Array], ask: Ask, wanted: tuple[str, ...], draws: int = 1
    ) -> dict[str, NDArray[Any]]:
        """What the engine says."""
        rows, answer = len(inputs[0]), Answer()
        made = {name: np.zeros((rows, *self._shape_of(name)), np.float32) for name in wanted}
        if "samples" in made:
            made["samples"] = np.zeros((draws, rows, *self.output_shape), np.float32)
        if "label" in made:
            made["label"] = np.zeros(made["label"].shape, np.int32)
        for name, array in made.items():
            setattr(answer, name, array.ctypes.data)
        given = (FLOATS * len(inputs))(*(x.ctypes.data_as(FLOATS) for x in inputs))
        with self._handles.one(ask.draws, ask.estimator == MOMENTS) as handle:
            if library().pocket_predict(
                handle.pointer, given, rows, ct.byref(ask), ct.byref(answer)
            ):
                raise LiteError(library().pocket_error(handle.pointer).decode(errors="replace"))
        if "label" in made:
            made["label"] = made["label"].astype(np.int64)
        return made

    def _shape_of(self, name: str) -> tuple[int, ...]:
        whole = self.output_shape
        if name in ("outputs", "probs"):
            return whole
        if self._kind == CLASSES:
            return whole[1:]
        if self.likelihood == "heteroscedastic":
            return (whole[0] // 2, *whole[1:])
        return whole

    def _inputs(self, x: ArrayLike | tuple[ArrayLike, ...]) -> tuple[list[Array], bool]:
        """One array for each input, with a batch axis; and whether there was none."""
        several = x if isinstance(x, tuple) and len(self.input_shapes) > 1 else (x,)
        if len(several) != len(self.input_shapes):
            raise LiteError(f"the network takes {len(self.input_shapes)} inputs; pass a tuple")
        arrays = [self._array(i, part) for i, part in enumerate(several)]
        single = all(a.shape == s for a, s in zip(arrays, self.input_shapes, strict=True))
        arrays = [a[None] for a in arrays] if single else arrays
        shapes = [a.shape[1:] for a in arrays]
        if shapes != self.input_shapes or len({len(a) for a in arrays}) > 1:
            got = ", ".join(str(a.shape) for a in arrays)
            wanted = ", ".join(str(("N", *s)).replace("'", "") for s in self.input_shapes)
            raise LiteError(f"the input has shape {got}; the network was saved for {wanted}")
        if len(arrays[0]) == 0:
            raise LiteError("there is nothing to predict: the input has no rows")
        return arrays, single

    def _array(self, number: int, x: ArrayLike) -> Array:
        try:
            given = np.asarray(x)
            made = np.ascontiguousarray(given, np.float32).reshape(given.shape)
        except (TypeError, ValueError) as error:
            raise LiteError(f"the input is no array of numbers: {error}") from error
        if self.takes_whole_numbers[number] and not (made == np.rint(made)).all():
            raise LiteError("the network takes whole numbers; the input has others")
        return made

    def _normals(self, normals: ArrayLike, draws: int) -> Array:
        made = np.ascontiguousarray(normals, np.float32)
        wanted = (-(-draws // self.members), self.output_shape[0] if self.output_shape else 1)
        if made.shape != wanted:
            raise LiteError(f"normals have shape {made.shape}; they must have {wanted}")
        return made
