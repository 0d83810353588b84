"""Tensors as flat numpy arrays with a name for their type, and short words for type and shape."""

import math
import re
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pocketbayes.errors import FormatError

TYPES = {
    str(kind).removeprefix("torch."): kind
    for kind in (
        torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32,
        torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128,
    )
}  # fmt: skip
_USUAL = "float32"
_WORD = re.compile(r"(?:([a-z0-9]+):)?((?:[0-9]+(?:x[0-9]+)*)?)", re.ASCII)
_MOST_DIGITS, _MOST_AXES, _MOST_VALUES = 20, 64, 1 << 56  # of empty arrays, too, at other axes


class Spec(NamedTuple):
    """Type and shape of a tensor."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        """The number of its values."""
        return math.prod(self.shape)

    @property
    def item_bytes(self) -> int:
        """Bytes of one value."""
        return TYPES[self.dtype].itemsize

    @property
    def is_float(self) -> bool:
        """Whether its values are real numbers."""
        return TYPES[self.dtype].is_floating_point

    def word(self) -> str:
        """As in "64x3x3x3" or, of other types than float32, "int64:10"."""
        size = "x".join(map(str, self.shape))
        return size if self.dtype == _USUAL else f"{self.dtype}:{size}"


def spec_in(word: object) -> Spec:
    """Type and shape from such a word."""
    found = _WORD.fullmatch(word) if isinstance(word, str) else None
    if found is None or (found[1] or _USUAL) not in TYPES:
        raise FormatError(f"{word!r} names no type and shape")
    sizes = found[2].split("x") if found[2] else []
    shape = tuple(int(size[: _MOST_DIGITS + 1]) for size in sizes)
    if len(shape) > _MOST_AXES or math.prod(max(1, size) for size in shape) > _MOST_VALUES:
        raise FormatError(f"{found[0][:40]!r} names no shape that fits any memory")
    return Spec(found[1] or _USUAL, shape)


def spec_of(tensor: Tensor) -> Spec:
    """Type and shape of a tensor."""
    return Spec(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


def flat(tensor: Tensor) -> NDArray[Any]:
    """The values in one row, little-endian; of bfloat16, which numpy lacks, the bits."""
    values = tensor.detach().cpu().contiguous().reshape(-1)
    if values.dtype == torch.bfloat16:
        values = values.view(torch.int16)
    array = values.numpy()
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def tensor_of(values: NDArray[Any], spec: Spec) -> Tensor:
    """The tensor with these values (or, of bfloat16, bits), which it does not copy."""
    tensor = torch.from_numpy(np.ascontiguousarray(values))
    if spec.dtype == "bfloat16":
        tensor = tensor.view(torch.bfloat16)
    return tensor.to(TYPES[spec.dtype]).reshape(spec.shape)


def storage_type(spec: Spec) -> np.dtype[Any]:
    """The numpy type of `flat`."""
    name = "int16" if spec.dtype == "bfloat16" else spec.dtype
    return np.dtype(name).newbyteorder("<")


def as_floats(values: NDArray[Any], spec: Spec) -> NDArray[np.floating]:
    """The values of `flat` as numbers to calculate with."""
    if spec.dtype == "bfloat16":
        return torch.from_numpy(values).view(torch.bfloat16).float().numpy()
    return values


def rounded_to(values: NDArray[np.floating], spec: Spec) -> NDArray[Any]:
    """Numbers as the values of `flat`."""
    if spec.dtype == "bfloat16":
        return torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy()
    return values.astype(storage_type(spec))
