"""Bytes that stay on disk until they are needed: sections may be as large as the model."""

import io
from collections.abc import Iterable, Iterator
from typing import IO, TypeVar

from pocketbayes.errors import FormatError

_CHUNK = 1 << 20


class Stretch:
    """A row of bytes in an open file; its slices are rows in there, too."""

    def __init__(self, file: IO[bytes], begin: int, end: int) -> None:
        self._file, self._begin, self._end = file, begin, end

    def __len__(self) -> int:
        return self._end - self._begin

    def __getitem__(self, part: slice) -> "Stretch":
        begin, end, _ = part.indices(len(self))
        return Stretch(self._file, self._begin + begin, self._begin + max(begin, end))

    def read(self) -> memoryview:
        """The bytes."""
        self._file.seek(self._begin)
        data = self._file.read(len(self))
        if len(data) < len(self):
            raise FormatError("the file was cut short while it was read")
        return memoryview(data)

    def chunks(self) -> Iterator[memoryview]:
        """The bytes, a few at a time."""
        return (self[low : low + _CHUNK].read() for low in range(0, len(self), _CHUNK))


Data = bytes | memoryview | Stretch


def in_memory(data: Data) -> memoryview:
    """Bytes to look at."""
    return data.read() if isinstance(data, Stretch) else memoryview(data)


def stretch_of(data: Data) -> Stretch:
    """Bytes that may be in memory already."""
    return data if isinstance(data, Stretch) else Stretch(io.BytesIO(data), 0, len(data))


def appended(file: IO[bytes], pieces: Iterable[bytes | memoryview]) -> Stretch:
    """Where these bytes are, now that they stand at the end of a file."""
    begin = file.seek(0, 2)
    file.writelines(pieces)
    return Stretch(file, begin, file.tell())


Row = TypeVar("Row", memoryview, Stretch)


def cut(data: Row, size: int) -> tuple[Row, Row]:
    """The first bytes, and the others."""
    if len(data) < size:
        raise FormatError("its coded numbers are cut short")
    return data[:size], data[size:]
