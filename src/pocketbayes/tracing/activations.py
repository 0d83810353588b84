"""Rules of activations."""

from collections.abc import Callable
from typing import Any

from pocketbayes.tracing.arithmetic import affine, binary
from pocketbayes.tracing.value import RULES, Traced, not_possible, number_in, require_weight, rule

_LARGEST = 3.4e38


def _value_by_value(name: str) -> Callable[..., Traced]:
    return lambda _, x, *__, **___: x.emit(name)


_PLAIN = (
    "relu",
    "silu",
    "tanh",
    "sigmoid",
    "exp",
    "log",
    "sqrt",
    "abs",
    "hardswish",
    "hardsigmoid",
)
RULES.update({name: _value_by_value(name) for name in _PLAIN})


@rule("gelu")
def _gelu(_: Any, x: Traced, *, approximate: str = "none") -> Traced:
    return x.emit("gelu_tanh" if approximate == "tanh" else "gelu")


@rule("leaky_relu")
def _leaky_relu(_: Any, x: Traced, negative_slope: float = 0.01) -> Traced:
    return x.emit("leaky_relu", float(negative_slope))


@rule("elu")
def _elu(_: Any, x: Traced, alpha: float = 1.0) -> Traced:
    return x.emit("elu", float(alpha))


@rule("selu")
def _selu(_: Any, x: Traced) -> Traced:
    return affine(x.emit("elu", 1.6732632423543772), 1.0507009873554805, 0.0)


@rule("mish")
def _mish(_: Any, x: Traced) -> Traced:
    return binary("multiply", x, x.emit("softplus").emit("tanh"))


@rule("softplus")
def _softplus(_: Any, x: Traced, beta: float = 1, threshold: float = 20) -> Traced:
    """Log(1 + exp(beta x)) / beta."""
    return affine(affine(x, float(beta), 0.0).emit("softplus"), 1 / beta, 0.0)


@rule("hardtanh")
def _hardtanh(_: Any, x: Traced, min_val: float = -1.0, max_val: float = 1.0) -> Traced:
    return x.emit("clamp", float(min_val), float(max_val))


@rule("relu6")
def _relu6(_: Any, x: Traced) -> Traced:
    return x.emit("clamp", 0.0, 6.0)


@rule("clamp", "clip")
def _clamp(_: Any, x: Traced, min: Any = None, max: Any = None) -> Traced:  # noqa: A002
    low = -_LARGEST if min is None else number_in(min)
    high = _LARGEST if max is None else number_in(max)
    if low is None or high is None:
        raise not_possible("the operation 'clamp' between tensors")
    return x.emit("clamp", low, high)


@rule("clamp_min")
def _clamp_min(_: Any, x: Traced, min: Any) -> Traced:  # noqa: A002
    return _clamp(None, x, min)


@rule("prelu")
def _prelu(_: Any, x: Traced, weight: Any) -> Traced:
    return x.emit("prelu", require_weight(weight, "prelu"))
