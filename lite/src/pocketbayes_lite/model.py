"""An open .pocket file, and its answers."""

import ctypes as ct
import os
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pocketbayes_lite.arguments import as_numbers, require_level, require_whole
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
from pocketbayes_lite.parts import Call, answer_by, number_of_threads
from pocketbayes_lite.predictions import (
    Array,
    ClassPrediction,
    LabelPrediction,
    Prediction,
    ValuePrediction,
)

ESTIMATORS = {"mean": MEAN, "one_pass": ONE_PASS, "moments": MOMENTS, "weight": WEIGHT}
DEFAULT_DRAWS, MOST_DRAWS = 30, 100_000
_OF_CLASSES = ("probs", "entropy", "aleatoric", "epistemic", "label")
_OF_VALUES = ("mean", "std", "aleatoric", "epistemic")


def load(path: str | os.PathLike[str], threads: int | None = None, int8: bool = False) -> "Model":
    """The model in a file that `pb.save(model, path, example=x)` wrote.

    Safe on files from anywhere: they hold no code, and all sizes are checked.

    Args:
        path: of the file.
        threads: at most so many share a call; None: OMP_NUM_THREADS, or the cores that it may use.
        int8: "mean" and "one_pass" multiply dense layers as 8-bit integers where that is faster on
            this processor; answers change. `Model.int8_layers` says how many layers do.

    Raises:
        LiteError: the file is damaged, or has no program of its network.
    """
    if isinstance(path, str) and not path:
        raise LiteError("the path is empty: name a .pocket file")
    try:
        found = Path(path)
        if found.is_dir():
            raise LiteError(f"{path} is a folder: name the file, such as model.pocket in a run's")
        if found.exists() and not found.is_file():
            raise LiteError(f"{path} is no file: a pipe or device might block, or never end")
        data = found.read_bytes()
    except OSError as error:
        raise LiteError(f"{path} cannot be read: {error.strerror or error}") from error
    except (TypeError, ValueError) as error:
        raise LiteError(f"{path!r} is no path: {error}; read(data) takes bytes") from error
    try:
        return read(data, threads, int8)
    except LiteError as error:
        raise LiteError(f"{path}: {error}") from error


def read(
    data: bytes | bytearray | memoryview, threads: int | None = None, int8: bool = False
) -> "Model":
    """The model in the bytes of such a file."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise LiteError(
            f"read takes the bytes of a file; got {type(data).__name__}. load(path) takes a path"
        )
    model = Model(Handles(bytes(data), DEFAULT_DRAWS, int8))
    model.threads = number_of_threads(threads)
    return model


class Model:
    """A network that predicts with uncertainty; several threads may do so at once."""

    threads = 1  # at most so many share the work of a call

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
    def int8_layers(self) -> int:
        """How many layers multiply 8-bit integers, after `load(path, int8=True)`.

        Sparse and small ones do not; none does where the processor has no instruction for it. If
        it is 0, answers are those without int8, bit for bit.
        """
        return self._handles.int8_layers

    @property
    def memory(self) -> int:
        """Bytes that the open file holds beside its numbers: weights made ready, room to work.

        Not counted: another such, once moments are asked for; and what each further thread or
        caller works with, drawn weights among it, kept for `threads` of a kind between calls.
        """
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
        draws = self._draws(ask)
        found = self._answered(inputs, ask, ("outputs", *self._wanted()), draws)
        found = {name: a[0] if single else a for name, a in found.items()}
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
        draws = self._draws(ask)
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
        draws = require_whole(num_samples, "num_samples", 1, MOST_DRAWS)
        seed = require_whole(seed, "seed", 0, 2**64 - 1)
        spread = None if normals is None else self._normals(normals, draws)
        ask = Ask(number, draws, seed, require_level(level))
        if spread is not None:
            ask.normals = spread.ctypes.data_as(FLOATS)
        return ask, spread

    def _number_of(self, estimator: str | None) -> int:
        if isinstance(estimator, str) and estimator in ("lrt", "flipout"):
            raise LiteError(
                f'estimator="{estimator}" draws noise of its own for every output, which the '
                'engine does not: "weight" draws whole networks'
            )
        if estimator is None:
            return self._default
        if not isinstance(estimator, str) or estimator not in ESTIMATORS:
            raise LiteError(f"estimator must be one of {', '.join(ESTIMATORS)}; got {estimator!r}")
        return ESTIMATORS[estimator]

    def _wanted(self) -> tuple[str, ...]:
        return _OF_VALUES if self._kind == VALUES else _OF_CLASSES

    def _draws(self, ask: Ask) -> int:
        """How many are made: an ensemble makes as many of each member."""
        return int(library().pocket_number(self._handles.first.pointer, ct.byref(ask)))

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
        found = self._answered(inputs, again, ("lower", "upper"), self._draws(again))
        low, high = (found[name][0] if single else found[name] for name in ("lower", "upper"))
        return low, high

    def _answered(
        self, inputs: list[Array], ask: Ask, wanted: tuple[str, ...], draws: int
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
        call = Call((inputs, made), given, rows, ask, answer, draws, self.output_shape)
        answer_by(self._handles, call, self.threads)
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
        made = as_numbers(x, "the input")
        if self.takes_whole_numbers[number] and not (made == np.rint(made)).all():
            raise LiteError("the network takes whole numbers; the input has others")
        return made

    def _normals(self, normals: ArrayLike, draws: int) -> Array:
        made = as_numbers(normals, "normals")
        wanted = (-(-draws // self.members), self.output_shape[0] if self.output_shape else 1)
        if made.shape != wanted:
            raise LiteError(f"normals have shape {made.shape}; they must have {wanted}")
        return made
