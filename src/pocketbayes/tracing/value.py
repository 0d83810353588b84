"""The value that is traced: a tensor without numbers that writes down what is done to it.

A network's own code runs on it. Its shape has a batch axis of a size that stands nowhere else in
the network; what is written down is about one example, without that axis.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from pocketbayes.errors import FormatError, ProgramError
from pocketbayes.moments import by_rule, running_module
from pocketbayes.programs import SHAPES, Buffer, Input, Operation, Weight

Function = TypeVar("Function", bound=Callable[..., Any])
Shape = tuple[int, ...]

RULES: dict[str, Callable[..., Any]] = {}
_MOST_CONSTANTS = 1024
_HIDDEN = -1e30  # in place of -inf, which no file holds
_CONVERSIONS = {"__bool__", "__int__", "__float__", "__complex__", "__index__"}
_READ_VALUES = _CONVERSIONS | {
    "item", "tolist", "numpy", "nonzero", "equal", "allclose", "is_nonzero", "__array__",
    "__contains__",
}  # fmt: skip


def rule(*names: str) -> Callable[[Function], Function]:
    """Enters a function `rule(func, *args, **kwargs)` for the operations of these names."""

    def entered(function: Function) -> Function:
        RULES.update(dict.fromkeys(names, function))
        return function

    return entered


class Recorder:
    """What was written down so far, and the shapes of one example's buffers."""

    def __init__(self, inputs: Sequence[Input], batch: int) -> None:
        self.inputs, self.batch = tuple(inputs), batch
        self.operations: list[Operation] = []
        self.shapes: list[Shape] = [given.shape for given in inputs]

    def emit(self, name: str, *fields: Any, batch: int | None) -> "Traced":
        """Writes an operation down; its result has the batch axis there."""
        every = (t for field in fields for t in (field if isinstance(field, tuple) else (field,)))
        shape_of = {t.operand: t.each for t in every if isinstance(t, Traced)}
        plain = tuple(_operands_in(field) for field in fields)
        operation = Operation(name, plain)
        try:
            shape = SHAPES[name](*operation.with_operands(shape_of.__getitem__))
        except FormatError as error:
            raise not_possible(f"{name}: {error}") from error
        self.operations.append(operation)
        self.shapes.append(shape)
        return Traced(self, Buffer(len(self.shapes) - 1), shape, batch)


def _operands_in(field: Any) -> Any:
    if isinstance(field, Traced):
        return field.operand
    if isinstance(field, float):
        return float(np.float32(field))
    return tuple(map(_operands_in, field)) if isinstance(field, tuple) else field


def _rule_of(name: str) -> Callable[..., Any] | None:
    """As of moments; but `__float__` wants a number, and has not the rule of `float`."""
    return None if name in _CONVERSIONS else RULES.get(name.strip("_"))


class Traced(Tensor):
    """An operand of a program, which the code of a network takes for a tensor."""

    recorder: Recorder
    operand: Buffer | Weight
    each: Shape
    batch: int | None

    @staticmethod
    def __new__(
        cls,
        recorder: Recorder,
        operand: Buffer | Weight,
        each: Sequence[int],
        batch: int | None,
        dtype: torch.dtype = torch.float32,
    ) -> "Traced":
        """A tensor without content; `each` is the shape of one example."""
        shape = list(each)
        if batch is not None:
            shape.insert(batch, recorder.batch)
        made: Traced = Tensor._make_wrapper_subclass(
            cls, shape, dtype=dtype, device=torch.device("cpu")
        )
        made.recorder, made.operand, made.each, made.batch = recorder, operand, tuple(each), batch
        return made

    @classmethod
    def __torch_function__(
        cls,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """What the table says about this operation."""
        return by_rule(_rule_of, _unknown, _overwritten, func, args, kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Only what passes the table by, scripted code for instance, comes here."""
        raise not_possible(str(func))

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"Traced({self.operand}, {self.each}, batch={self.batch})"

    def axis(self, dim: int) -> int:
        """The axis of one example that this dimension is; it must not be that of the batch."""
        dim = dim % max(1, self.dim())
        if dim == self.batch:
            raise not_possible("an operation along the axis of examples")
        return dim - (self.batch is not None and dim > self.batch)

    def emit(self, name: str, *fields: Any) -> "Traced":
        """An operation on this value, whose batch axis stays where it is."""
        return self.recorder.emit(name, self, *fields, batch=self.batch)

    def reshaped(self, each: Sequence[int], batch: int | None) -> "Traced":
        """The same numbers in another shape; nothing is written down where it is the same."""
        if tuple(each) == self.each:
            return Traced(self.recorder, self.operand, self.each, batch)
        return self.recorder.emit("reshape", self, tuple(each), batch=batch)


def _overwritten(target: Any, result: Any, name: str) -> Any:
    if not isinstance(target, Traced) or not isinstance(result, Traced):
        raise not_possible(f"{name} into a plain tensor")
    if target.shape != result.shape:
        raise not_possible(f"{name}, which changes a shape in place")
    target.operand, target.each, target.batch = result.operand, result.each, result.batch
    return target


def _unknown(name: str) -> ProgramError:
    if name in _READ_VALUES:
        where = f"control flow that depends on values ({name})"
        return not_possible(where, "rewrite it without that, or save")
    return not_possible(f"the operation {name!r}")


def not_possible(what: str, advice: str = "save") -> ProgramError:
    """The error that names what no program can hold, where it is, and what to do."""
    return ProgramError(
        f"a portable program cannot hold {what}, {running_module()}: {advice} without example= "
        "(the file then needs torch), or write it by operations that docs/format.md lists"
    )


def first_traced(*values: Any) -> Traced:
    """The first of some arguments that is traced."""
    flat = (v for value in values for v in (value if isinstance(value, list | tuple) else (value,)))
    return next(value for value in flat if isinstance(value, Traced))


def as_traced(value: Any, recorder: Recorder) -> Traced:
    """A tensor that the network made itself, as a constant; the same for all examples."""
    if isinstance(value, Traced):
        return value
    plain = torch.as_tensor(value).detach().cpu()
    plain = torch.where(plain, 1.0, 0.0) if plain.dtype == torch.bool else plain.float()
    plain = plain.masked_fill(plain == -math.inf, _HIDDEN)
    batch = next((i for i, n in enumerate(plain.shape) if n == recorder.batch), None)
    if batch is not None:
        if not bool((plain == plain.narrow(batch, 0, 1)).all()):
            raise not_possible("a constant that differs between examples")
        plain = plain.select(batch, 0)
    if plain.numel() > _MOST_CONSTANTS or not bool(plain.isfinite().all()):
        raise not_possible(
            f"a constant of {plain.numel():,} numbers (at most {_MOST_CONSTANTS:,}, finite)",
            "make it a buffer (register_buffer), or save",
        )
    values = tuple(plain.flatten().tolist())
    return recorder.emit("constant", tuple(plain.shape), values, batch=batch)


def number_in(value: Any) -> float | None:
    """The number that an argument is; None: it is a tensor of several, or traced."""
    if isinstance(value, Traced | bool):
        return None
    if isinstance(value, Tensor):
        return float(value) if value.numel() == 1 and value.dim() == 0 else None
    return float(value) if isinstance(value, int | float) else None


def require_weight(value: Any, what: str) -> Traced | None:
    """A tensor of the file, or None."""
    if value is None:
        return None
    if not isinstance(value, Traced) or not isinstance(value.operand, Weight):
        raise not_possible(f"{what} whose weights are computed")
    return value


def require_batch_first(x: Any, what: str) -> Traced:
    """An input with examples along its first axis."""
    if not isinstance(x, Traced) or x.batch != 0:
        raise not_possible(f"{what} of an input without examples along its first axis")
    return x
