"""What one prediction draws with; nothing of it lies in the model, which threads may share."""

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_pop_interpreter_stack

Value = TypeVar("Value")

# Held by whoever seeds torch's default generators for a while, or takes a number of them.
DEFAULT_GENERATORS = threading.RLock()
_SWITCH = threading.Lock()
_silent = 0  # threads that want no warnings
_current: ContextVar["Drawing | None"] = ContextVar("drawing", default=None)
_traced: "Drawing | None" = None  # set in traced code alone: nobody else ever sees another value


class Drawing:
    """The estimator, the random numbers and the draws of one prediction.

    All numbers are a function of the seed; without one, of torch's default generator, which gives
    a seed when the first number is wanted.
    """

    def __init__(
        self,
        estimator: str | None = None,
        seed: int | None = None,
        keeps_dropout: bool = False,
    ) -> None:
        self.estimator, self.keeps_dropout = estimator, keeps_dropout
        self.held: dict[Hashable, dict[str, Tensor]] = {}  # draws that last for a layer's forward
        self.passes: dict[Hashable, Any] = {}  # draws that last for a pass of the network
        self.modules: dict[Hashable, list[Any]] = {}  # of networks, which last for a prediction
        self.repeats = seed is not None  # it was given, not drawn
        self.order: Tensor | None = None  # of traced code: goes through all its draws
        self.maker: Callable[[Tensor, str], Tensor] | None = None  # of code that runs elsewhere
        self.notes: dict[int, Tensor] | None = None  # of traced code, for a one-pass head
        self._seed, self._generators = seed, dict[torch.device, torch.Generator]()
        self._numbers: np.random.Generator | None = None
        self._parts = 0
        self._at_once: tuple[int, int] | None = None  # how many, and torch's number for them

    # No `cached_property` here: that of Python 3.11 makes all threads wait for one another.
    @property
    def seed(self) -> int:
        """What all numbers follow from."""
        if self._seed is None:
            with DEFAULT_GENERATORS:
                self._seed = int(torch.empty((), dtype=torch.int64, device="cpu").random_())
        return self._seed

    @property
    def numbers(self) -> np.random.Generator:
        """Where numbers on a CPU come from: a ziggurat, 2.5 times as fast as torch's (ARM)."""
        if self._numbers is None:
            self._numbers = np.random.Generator(np.random.SFC64(self.seed))
        return self._numbers

    def generator(self, device: torch.device) -> torch.Generator:
        """Where all other numbers come from."""
        if device not in self._generators:
            mixed = np.random.SeedSequence((self.seed, 1 + (device.index or 0)))
            seed = int(mixed.generate_state(1, np.uint64)[0])
            self._generators[device] = torch.Generator(device).manual_seed(seed)
        return self._generators[device]

    def part(self) -> Self:
        """A drawing of its own for the next part of the prediction."""
        self._parts += 1
        if self._seed is None and self.estimator == "mean":  # which will hardly want a number
            part = type(self)(self.estimator, None, self.keeps_dropout)
        else:
            seed = (self.seed + self._parts * 0x9E3779B97F4A7C15) % 2**64  # numpy mixes it
            part = type(self)(self.estimator, seed, self.keeps_dropout)
        part.modules = self.modules
        return part

    def again(self) -> Self:
        """A drawing that gives the same numbers as this one did."""
        same = type(self)(self.estimator, self.seed, self.keeps_dropout)
        same.modules = self.modules
        return same

    def begin_pass(self) -> None:
        """Forgets what was drawn for the last pass."""
        self.passes.clear()

    @property
    def is_at_once(self) -> bool:
        """Whether the code runs for many draws at once, and in no transform inside of that."""
        return self._at_once is not None and self._at_once[1] == _level()

    def in_each(self, shape: Sequence[int], make: Callable[[tuple[int, ...]], Tensor]) -> Tensor:
        """Numbers of this shape; where many draws are made at once, others in each of them."""
        if self._at_once is None:
            return make(tuple(shape))
        count, level = self._at_once
        with temporarily_pop_interpreter_stack():  # which would refuse to draw
            made = make((count, *shape))
        return torch._C._functorch._add_batch_dim(made, 0, level)

    def one_by_one(self, function: Callable[..., Tensor], *values: Tensor | None) -> Tensor:
        """The function of values of which some differ from draw to draw, one draw after another.

        For operations that are slower on all draws at once.
        """
        assert self._at_once is not None
        count, level = self._at_once
        each = [
            torch._C._functorch._remove_batch_dim(value, level, count, 0).unbind()
            if value is not None and is_of_draws(value)
            else [value] * count
            for value in values
        ]
        made = torch.stack([function(*some) for some in zip(*each, strict=True)])
        return torch._C._functorch._add_batch_dim(made, 0, level)

    def as_rows(self, function: Callable[..., Tensor], x: Tensor, *others: Tensor | None) -> Tensor:
        """The function of x, of which rows of all draws come one below the other."""
        assert self._at_once is not None
        count, level = self._at_once
        rows = torch._C._functorch._remove_batch_dim(x, level, count, 0).flatten(0, 1)
        made = function(rows, *others)
        made = made.view(count, -1, *made.shape[1:])
        return torch._C._functorch._add_batch_dim(made, 0, level)

    def at_once(self, count: int, run: Callable[[], Tensor]) -> Tensor:
        """(count, ...) results of `run`, of which each has draws of its own.

        What `run` computes of no draw is computed once. An error if it draws by itself.
        """

        def of_one(_: Tensor) -> Tensor:
            self._at_once = count, _level()
            try:
                return run()
            finally:
                self._at_once = None

        with _without_warnings():  # "error": numbers that are not drawn here would all be the same
            found: Tensor = torch.func.vmap(of_one, randomness="error")(torch.empty(count))
        return found

    @contextmanager
    def here(self) -> Iterator[Self]:
        """Inside, in this thread, layers and posteriors draw by this."""
        token = _current.set(self)
        try:
            yield self
        finally:
            _current.reset(token)


@contextmanager
def no_drawing() -> Iterator[None]:
    """Inside, layers and posteriors draw as in training: by the model and default generators."""
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)


def current_drawing() -> Drawing | None:
    """What this thread draws by; None: by the model itself."""
    return _traced if torch.compiler.is_dynamo_compiling() else _current.get()


def traced_by(drawing: Drawing, run: Callable[[], Value]) -> Value:
    """What `run` gives where a compiler traces all of it: layers and posteriors draw by this.

    A compiler knows nothing of contexts. It follows the global name through what it traces, and
    writes the last value alone, which is None.
    """
    global _traced
    _traced = drawing
    try:
        return run()
    finally:
        _traced = None


def source_of_numbers() -> Drawing | None:
    """The same for random numbers, which under a transform of the network's own are torch's."""
    drawing = current_drawing()
    return None if drawing is None or inside_other_vmap() else drawing


def inside_vmap() -> bool:
    """Whether a `torch.func` transform runs the code at this moment."""
    return torch._C._functorch.maybe_current_level() is not None


def inside_other_vmap() -> bool:
    """Whether one does that is not for many draws of a prediction at once."""
    if not inside_vmap():
        return False
    drawing = current_drawing()
    return drawing is None or not drawing.is_at_once


def is_of_draws(x: Tensor) -> bool:
    """Whether x is another tensor in each of many draws at once."""
    return bool(torch._C._functorch.is_batchedtensor(x))


def _level() -> int:
    level = torch._C._functorch.maybe_current_level()
    assert level is not None
    return int(level)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Inside, torch does not warn that an operation runs draw by draw.

    The switch is for all threads, and torch does not say how it stands: it begins as on.
    """
    global _silent
    with _SWITCH:
        _silent += 1
        _warn(False)
    try:
        yield
    finally:
        with _SWITCH:
            _silent -= 1
            if _silent == 0:
                _warn(True)


def _warn(whether: bool) -> None:
    torch._C._functorch._set_vmap_fallback_warning_enabled(whether)  # type: ignore[attr-defined]
