"""Bytes that stay on disk until they are needed: sections may be as large as the model."""

import io
from collections.abc import Iterable, Iterator
from typing import IO, TypeVar

from pocketbayes.errors import FormatError

_CHUNK = 1 << 20


class FileView:
    """A row of bytes in an open file; its slices are rows in there, too."""

    def __init__(self, file: IO[bytes], begin: int, end: int) -> None:
        self._file, self._begin, self._end = file, begin, end

    def __len__(self) -> int:
        return self._end - self._begin

    def __getitem__(self, part: slice) -> "FileView":
        begin, end, _ = part.indices(len(self))
        return FileView(self._file, self._begin + begin, self._begin + max(begin, end))

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


Data = bytes | memoryview | FileView


def in_memory(data: Data) -> memoryview:
    """Bytes to look at."""
    return data.read() if isinstance(data, FileView) else memoryview(data)


def file_view_of(data: Data) -> FileView:
    """Bytes that may be in memory already."""
    return data if isinstance(data, FileView) else FileView(io.BytesIO(data), 0, len(data))


def appended(file: IO[bytes], pieces: Iterable[bytes | memoryview]) -> FileView:
    """Where these bytes are, now that they stand at the end of a file."""
    begin = file.seek(0, 2)
    file.writelines(pieces)
    return FileView(file, begin, file.tell())


Row = TypeVar("Row", memoryview, FileView)


def cut(data: Row, size: int) -> tuple[Row, Row]:
    """The first bytes, and the others."""
    if len(data) < size:
        raise FormatError("its coded numbers are cut short")
    return data[:size], data[size:]
