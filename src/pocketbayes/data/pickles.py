"""CIFAR's pickled batches, read without running anything that a pickle may ask for.

Not even numpy rebuilds the arrays: stand-ins collect what the file says of them, and the bytes
are then taken as what they must be.
"""

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from pocketbayes.data.files import Bytes, reading
from pocketbayes.errors import DataError


class _Array:
    """Stands for numpy.ndarray and for the function that makes an empty one."""

    def __init__(self, *_: object) -> None:
        self.state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state


class _Type:
    """Stands for numpy.dtype."""

    def __init__(self, code: object, *_: object) -> None:
        self.code = code

    def __setstate__(self, state: object) -> None:
        """Byte order and alignment, which bytes do not have."""


class _Latin1:
    """Stands for _codecs.encode, by which Python 3 writes bytes into an old pickle."""

    def __new__(cls, text: str, codec: str) -> bytes:  # type: ignore[misc]
        if not isinstance(text, str) or codec not in ("latin1", "latin-1"):
            raise pickle.UnpicklingError(f"it encodes by {codec!r}, which no array needs")
        return text.encode("latin1")

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("it alters a function, which no array needs")


_ALLOWED: dict[tuple[str, str], type] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Type,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("_codecs", "encode"): _Latin1,
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type:
        found = _ALLOWED.get((module, name))
        if found is None:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is code and not data")
        return found


def read_batch(path: Path) -> dict[str, Any]:
    """The entries of one pickled batch, byte arrays among them as numpy arrays."""
    with reading(path, "a CIFAR batch"), path.open("rb") as file:
        content = _ArrayUnpickler(file, encoding="bytes").load()
        if not isinstance(content, dict):
            raise DataError(f"{path} holds a {type(content).__name__}, not a CIFAR batch")
        return {_text(key): _value(value) for key, value in content.items()}


def _text(key: object) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else str(key)


def _value(value: object) -> object:
    return _byte_array(value.state) if isinstance(value, _Array) else value


def _byte_array(state: Any) -> Bytes:
    """An array from (version, shape, type, whether columns come first, bytes)."""
    _, shape, kind, columns_first, data = state
    code = _text(kind.code)
    if code not in ("u1", "uint8") or not isinstance(data, bytes):
        raise ValueError(f"an array of type {code}; images are bytes (u1)")
    order = "F" if columns_first else "C"
    return np.frombuffer(data, np.uint8).reshape(shape, order=order).copy()  # type: ignore[call-overload, no-any-return]
