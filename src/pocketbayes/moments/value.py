"""The value that is carried: a tensor of independent Gaussians, and the table of rules for it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn

from pocketbayes.errors import PocketBayesError

Pair = tuple[Any, Tensor | None]  # mean and variance; None: certain
Function = TypeVar("Function", bound=Callable[..., Any])

RULES: dict[str, Callable[..., Any]] = {}
_HALVES = (torch.float16, torch.bfloat16)
_carrying: ContextVar[bool] = ContextVar("carrying moments", default=False)
# These read what a tensor is, not what it holds.
METADATA = {
    "shape", "ndim", "dtype", "device", "layout", "is_cuda", "is_cpu", "is_mps", "is_meta",
    "is_nested", "is_sparse", "is_quantized", "is_mkldnn", "is_leaf", "requires_grad", "grad_fn",
    "grad", "names", "itemsize", "nbytes", "size", "dim", "ndimension", "numel", "nelement",
    "__len__", "is_floating_point", "is_complex", "is_contiguous", "is_inference", "element_size",
    "get_device", "_version", "is_same_size", "is_signed", "stride", "storage_offset",
}  # fmt: skip


def rule(*names: str) -> Callable[[Function], Function]:
    """Enters a function `rule(func, *args, **kwargs)` for the operations of these names.

    An operation's name is that of the function or method of torch, without leading or trailing
    underscores: `torch.relu`, `F.relu` and `Tensor.relu_` are all "relu".
    """

    def entered(function: Function) -> Function:
        RULES.update(dict.fromkeys(names, function))
        return function

    return entered


@contextmanager
def carrying() -> Iterator[None]:
    """Inside, Bayesian layers give the moments of their outputs instead of draws."""
    token = _carrying.set(True)
    try:
        yield
    finally:
        _carrying.reset(token)


def is_carrying() -> bool:
    """Whether moments are carried at this moment; never in code that a compiler looks at."""
    return not torch.compiler.is_dynamo_compiling() and _carrying.get()


def by_rule(
    rule_of: Callable[[str], Callable[..., Any] | None],
    unknown: Callable[[str], Exception],
    overwritten: Callable[[Any, Any, str], Any],
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
) -> Any:
    """An operation of torch on tensors without content, by the rule of its name.

    What works in place hands its first argument and its result to `overwritten`.
    """
    name, kwargs = func.__name__, dict(kwargs or {})
    if name == "__get__":
        name = func.__self__.__name__
    if name in METADATA:
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    found = rule_of(name)
    if found is None or kwargs.pop("out", None) is not None:
        raise unknown(name)
    in_place = kwargs.pop("inplace", False) or (name[-1] == "_" and name[0] != "_")
    result = found(func, *args, **kwargs)
    return overwritten(args[0], result, name) if in_place else result


def _rule_of(name: str) -> Callable[..., Any] | None:
    """`add`, `__add__` and `add_` have one rule."""
    return RULES.get(name.strip("_"))


class Moments(Tensor):
    """Mean and variance of every number of a tensor, which the code of a network takes for one.

    `positions` says for each dimension whether noise is common to all places along it: then it is
    fully correlated there, and stds add in sums. All else counts as independent. Both are kept in
    float32 at least. An operation in place gives this object new moments; views of it that were
    taken before keep the old.
    """

    expected: Tensor
    variance: Tensor
    positions: tuple[bool, ...]

    @staticmethod
    def __new__(
        cls, expected: Tensor, variance: Tensor, positions: tuple[bool, ...] | None = None
    ) -> "Moments":
        """A tensor without content of its own."""
        if expected.dtype in _HALVES:
            expected, variance = expected.float(), variance.float()
        if variance.shape != expected.shape:
            variance = variance.expand(expected.shape)
        made: Moments = Tensor._make_wrapper_subclass(
            cls, expected.shape, dtype=expected.dtype, device=expected.device
        )
        made.expected, made.variance = expected, variance
        made.positions = positions or (False,) * expected.dim()
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
        return by_rule(_rule_of, no_rule, _overwritten, func, args, kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Only what passes the table by, scripted code for instance, comes here."""
        raise no_rule(str(func))

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"Moments(expected={self.expected}, variance={self.variance})"

    def like(self, expected: Tensor, variance: Tensor) -> Self:
        """Other moments of the same shape."""
        return type(self)(expected, variance, self.positions)


def _overwritten(target: Any, result: Any, name: str) -> Any:
    if not isinstance(target, Moments) or not isinstance(result, Moments):
        raise PocketBayesError(
            f'estimator="moments" cannot write random values into a plain tensor, as {name} '
            f"{running_module()}: write x = x + y in place of x += y, or predict with another "
            "estimator"
        )
    target.expected, target.variance = result.expected, result.variance
    target.positions = result.positions
    return target


def no_rule(operation: str) -> PocketBayesError:
    """The error that names an operation without a rule, and the module that it was called in."""
    return PocketBayesError(
        f'estimator="moments" has no rule for the operation {operation!r} {running_module()}: '
        "predict with another estimator, or write it by operations that have a rule"
    )


def running_module() -> str:
    """The innermost module that runs at this moment, by its name in the outermost one."""
    frame, running = sys._getframe(1), list[nn.Module]()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module):
            running.append(owner)
        frame = frame.f_back  # type: ignore[assignment]
    if not running:
        return "outside of any module"
    for outer in reversed(running):
        for name, module in outer.named_modules():
            if module is running[0]:
                return f"in {name or 'the network'} ({_kind(module)})"
    return f"in a {_kind(running[0])}"


def _kind(module: nn.Module) -> str:
    return getattr(type(module), "_plain_class", type(module)).__name__


def parts_of(value: Any) -> tuple[Any, Tensor | None]:
    """Mean and variance; of what is certain, itself and None."""
    return (value.expected, value.variance) if isinstance(value, Moments) else (value, None)


def joined_positions(dimensions: int, *values: Any) -> tuple[bool, ...]:
    """Noise that is common along a dimension in one of these is so in what they broadcast to."""
    found = [False] * dimensions
    for value in values:
        if isinstance(value, Moments):
            for place, common in enumerate(reversed(value.positions), 1):
                found[-place] = found[-place] or common
    return tuple(found)


def combined(expected: Tensor, variance: Tensor, *sources: Any) -> Moments:
    """Moments of what these broadcast to."""
    return Moments(expected, variance, joined_positions(expected.dim(), *sources))
