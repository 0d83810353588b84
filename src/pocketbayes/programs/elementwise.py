"""The reference's operations that go value by value."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
_erf = np.vectorize(math.erf, otypes=[np.float32])


def sigmoid(x: Array) -> Any:
    """1 / (1 + exp(-x)), without overflow."""
    return 0.5 * (1 + np.tanh(0.5 * x))


def _gelu(x: Array) -> Any:
    """x Phi(x)."""
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


def _gelu_tanh(x: Array) -> Any:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _prelu(x: Array, weight: Array) -> Any:
    return np.where(x > 0, x, weight.reshape(-1, *(1,) * (x.ndim - 1)) * x)


def _elu(x: Array, slope: float) -> Any:
    return np.where(x > 0, x, slope * np.expm1(np.minimum(x, 0)))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "matmul": np.matmul,
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "affine": lambda x, factor, shift: np.float32(factor) * x + np.float32(shift),
    "relu": lambda x: np.maximum(x, 0),
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": lambda x: x * sigmoid(x),
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "softplus": lambda x: np.logaddexp(x, 0),
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "abs": np.abs,
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "hardsigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "leaky_relu": lambda x, slope: np.where(x > 0, x, np.float32(slope) * x),
    "elu": _elu,
    "clamp": lambda x, low, high: np.minimum(np.maximum(x, np.float32(low)), np.float32(high)),
    "prelu": _prelu,
}
