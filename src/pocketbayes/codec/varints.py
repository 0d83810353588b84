"""Integers of any size in as few bytes as they need: zigzag and LEB128."""

import numpy as np
from numpy.typing import NDArray

from pocketbayes.errors import FormatError

_LONGEST = 10


def varints(values: NDArray[np.integer]) -> bytes:
    """7 bits a byte, lowest first, the top bit set on all but an integer's last byte."""
    values = values.astype(np.int64)
    rest = ((values << 1) ^ (values >> 63)).astype(np.uint64)
    columns = []
    for _ in range(_LONGEST):
        columns.append((rest & np.uint64(127)).astype(np.uint8))
        rest = rest >> np.uint64(7)
    digits = np.stack(columns, 1)
    length = np.maximum(1, _LONGEST - (digits[:, ::-1] != 0).argmax(1))
    length[(digits == 0).all(1)] = 1
    place = np.arange(_LONGEST)
    digits |= np.where(place < length[:, None] - 1, 128, 0).astype(np.uint8)
    whole: NDArray[np.uint8] = digits[place < length[:, None]]
    return whole.tobytes()


def varints_in(data: bytes | memoryview) -> NDArray[np.int64]:
    """The integers in some bytes."""
    digits = np.frombuffer(data, np.uint8)
    last = np.flatnonzero(digits < 128)
    if len(digits) and (len(last) == 0 or last[-1] != len(digits) - 1):
        raise FormatError("an integer is cut short")
    first = np.concatenate([[0], last[:-1] + 1]) if len(last) else last
    if len(last) and int((last - first).max()) >= _LONGEST:
        raise FormatError("an integer has more than 64 bits")
    place = np.arange(len(digits)) - np.repeat(first, last - first + 1)
    parts = (digits & 127).astype(np.uint64) << (7 * place).astype(np.uint64)
    whole = np.bitwise_or.reduceat(parts, first) if len(last) else parts
    return (whole >> np.uint64(1)).astype(np.int64) ^ -(whole & np.uint64(1)).astype(np.int64)
