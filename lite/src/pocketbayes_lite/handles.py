"""Open models of one file: each is used by one thread at a time."""

import ctypes as ct
import json
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple

from pocketbayes_lite.errors import LiteError
from pocketbayes_lite.library import Options, library


class Handle(NamedTuple):
    """An open model, and what it was opened for."""

    pointer: int
    draws: int
    moments: bool

    def can(self, draws: int, moments: bool) -> bool:
        """Whether it has room for so many draws, and a plan for moments."""
        return self.draws >= draws and self.moments >= moments


class Handles:
    """The file, read once; and as many open models as there are threads that predict."""

    def __init__(self, data: bytes, draws: int) -> None:
        error = ct.create_string_buffer(256)
        options = Options(draws, 0)
        pointer = library().pocket_load(data, len(data), ct.byref(options), error)
        if not pointer:
            raise LiteError(error.value.decode(errors="replace"))
        self.first = Handle(pointer, draws, False)
        self._lock, self._free = Lock(), [self.first]

    def __del__(self) -> None:
        if hasattr(self, "first"):  # the first one owns the file
            for handle in [*(h for h in self._free if h is not self.first), self.first]:
                library().pocket_close(handle.pointer)

    @contextmanager
    def one(self, draws: int, moments: bool) -> Iterator[Handle]:
        """A handle for this thread alone."""
        handle = self._taken(draws, moments)
        try:
            yield handle
        finally:
            with self._lock:
                self._free.append(handle)

    def _taken(self, draws: int, moments: bool) -> Handle:
        """A free one that can do it, or a new one in the place of a free one that cannot."""
        with self._lock:
            for handle in reversed(self._free):
                if handle.can(draws, moments):
                    self._free.remove(handle)
                    return handle
            smaller = next((h for h in self._free if h is not self.first), None)
            if smaller is not None:
                self._free.remove(smaller)
        if smaller is not None:
            draws, moments = max(draws, smaller.draws), moments or smaller.moments
            library().pocket_close(smaller.pointer)
        return self._opened(draws, moments)

    def _opened(self, draws: int, moments: bool) -> Handle:
        error = ct.create_string_buffer(256)
        options = Options(draws, int(moments))
        pointer = library().pocket_again(self.first.pointer, ct.byref(options), error)
        if not pointer:
            raise LiteError(error.value.decode(errors="replace"))
        return Handle(pointer, draws, moments)

    def facts(self) -> dict[str, Any]:
        """What the file says of its model."""
        size = library().pocket_fact(self.first.pointer, None, None, 0)
        text = ct.create_string_buffer(size + 1)
        library().pocket_fact(self.first.pointer, None, text, size + 1)
        facts: dict[str, Any] = json.loads(text.value.decode("utf-8", "surrogatepass"))
        return facts

    def shape(self, number: int) -> tuple[int, ...]:
        """Of an input, or of the output: -1."""
        sides = (ct.c_int32 * 8)()
        rank = library().pocket_shape(self.first.pointer, number, sides)
        return tuple(sides[:rank])
