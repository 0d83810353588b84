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
    whole: bool  # draws of whole weights
    owns: bool  # its weights, which others may read

    def can(self, draws: int, moments: bool, whole: bool) -> bool:
        """Whether it has room for so many draws, and for those of weights; and knows moments.

        Weights are packed otherwise for moments: what a handle answers must not depend on which.
        """
        return self.moments == moments and self.draws >= draws and self.whole >= whole


class Handles:
    """The file, read once; and as many places to work as there are threads that predict.

    Two handles at most have weights of their own: the first, and one with what moments need. Of
    a kind (with moments, with draws of whole weights) at most `keep` wait for the next call.
    """

    keep = 1

    def __init__(self, data: bytes, draws: int, int8: bool = False) -> None:
        error = ct.create_string_buffer(256)
        options = Options(draws, 0, int(int8))
        pointer = _checked(library().pocket_load(data, len(data), ct.byref(options), error), error)
        self.first = Handle(pointer, draws, False, True, True)
        self._lock, self._opening, self._free = Lock(), Lock(), [self.first]
        self._with_moments: Handle | None = None
        self.int8_layers = int(library().pocket_int8(pointer))
        self.together = int(library().pocket_together(pointer))
        self.work = float(library().pocket_work(pointer))

    def __del__(self) -> None:
        if hasattr(self, "_with_moments"):  # what others read goes last, and the file's owner
            for handle in sorted(self._free, key=lambda h: (h.owns, h is self.first)):
                library().pocket_close(handle.pointer)

    @contextmanager
    def one(self, draws: int, moments: bool, whole: bool) -> Iterator[Handle]:
        """A handle for this thread alone."""
        handle = self._taken(draws, moments, whole)
        try:
            yield handle
        finally:
            with self._lock:
                self._free.append(handle)
                surplus = self._surplus(handle)
                if surplus is not None:
                    self._free.remove(surplus)
            if surplus is not None:
                library().pocket_close(surplus.pointer)

    def _surplus(self, like: Handle) -> Handle | None:
        """Of its kind the one with least room, if there are too many; never one that owns."""
        alike = [h for h in self._free if (h.moments, h.whole) == (like.moments, like.whole)]
        shared = [h for h in alike if not h.owns]
        if len(alike) <= max(1, self.keep) or not shared:
            return None
        return min(shared, key=lambda h: h.draws)

    def _taken(self, draws: int, moments: bool, whole: bool) -> Handle:
        """A free one that can do it, or a new one in the place of a free one that cannot."""
        with self._lock:
            for handle in reversed(self._free):
                if handle.can(draws, moments, whole):
                    self._free.remove(handle)
                    return handle
            smaller = next((h for h in self._free if not h.owns and h.moments == moments), None)
            if smaller is not None:
                self._free.remove(smaller)
        if smaller is not None:
            draws, whole = max(draws, smaller.draws), whole or smaller.whole
            library().pocket_close(smaller.pointer)
        return self._opened(max(draws, self.first.draws), moments, whole)

    def _opened(self, draws: int, moments: bool, whole: bool) -> Handle:
        error, source = ct.create_string_buffer(256), self.first
        with self._opening:
            if moments and self._with_moments is None:
                options = Options(draws, 1, 0)
                made = library().pocket_again(source.pointer, ct.byref(options), error)
                self._with_moments = Handle(_checked(made, error), draws, True, True, True)
                return self._with_moments
        source = self._with_moments if moments and self._with_moments else source
        made = library().pocket_share(source.pointer, draws, int(whole), error)
        return Handle(_checked(made, error), draws, moments, whole, False)

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


def _checked(pointer: int | None, error: ct.Array[ct.c_char]) -> int:
    if not pointer:
        raise LiteError(error.value.decode(errors="replace"))
    return pointer
