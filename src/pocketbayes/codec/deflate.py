"""Text as DEFLATE (RFC 1951), which every language reads.

zlib's own writer will not do: its builds differ in their bytes, and equal models give equal files.
"""

import math
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from pocketbayes.errors import FormatError

MOST = 16_000_000  # bytes of text; what a reader makes of it takes many times as many
MOST_ANYWAY = 1 << 16
MOST_PER_BYTE = 16  # of the data
_EMPTY = b"\0\0\0\xff\xff"  # a block of nothing, which is not the last
_REACH, _LEAST, _LONGEST, _TRIED = 1 << 15, 3, 258, 32


class Match(NamedTuple):
    """Bytes that stood before: how many, how far back, and the bits that saying so saves."""

    length: int
    distance: int
    saved: int


class Scale(NamedTuple):
    """Ranges of numbers: where each begins, and how many bits tell its members apart."""

    begins: tuple[int, ...]
    extra: tuple[int, ...]

    def place(self, value: int) -> int:
        """The range of a number."""
        return bisect_right(self.begins, value) - 1


def _scale(first: int, extra: tuple[int, ...]) -> Scale:
    return Scale(tuple(accumulate((1 << e for e in extra[:-1]), initial=first)), extra)


_DISTANCES = _scale(1, tuple(max(0, k // 2 - 1) for k in range(30)))
_SHORT = _scale(_LEAST, tuple(max(0, k // 4 - 1) for k in range(28)))
_LENGTHS = Scale((*_SHORT.begins, _LONGEST), (*_SHORT.extra, 0))


def deflated(text: bytes) -> bytes:
    """The text in one block of fixed codes, after empty ones if it is long for so few bytes."""
    bits = [(0b1, 1), (0b01, 2)]  # the last block; fixed codes
    for step in _steps(text):
        bits += _symbol(step) if isinstance(step, int) else [*_length(step), *_distance(step)]
    data = _bytes_of([*bits, *_symbol(256)])
    least = math.ceil(len(text) / MOST_PER_BYTE) if len(text) > MOST_ANYWAY else 0
    return _EMPTY * math.ceil(max(0, least - len(data)) / len(_EMPTY)) + data


def inflated(data: bytes) -> bytes:
    """The text, whoever wrote it, if it ends with the data and is not too long for it."""
    most = most_text(len(data))
    reader = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        text = reader.decompress(data, most + 1)
    except zlib.error as error:
        raise FormatError(f"it is not DEFLATE: {error}") from error
    if len(text) > most:
        raise FormatError(f"it is longer than {most:,} bytes, the most for its size")
    if not reader.eof or reader.unused_data:
        raise FormatError("it ends too early or too late")
    return text


def most_text(size: int) -> int:
    """The longest text that so many bytes may stand for."""
    return min(MOST, max(MOST_ANYWAY, MOST_PER_BYTE * size))


def _steps(text: bytes) -> Iterator[int | Match]:
    """Greedily: what stood before, where that saves bits, or the next byte."""
    seen: dict[bytes, list[int]] = {}
    at = 0
    while at < len(text):
        match = _match(text, at, seen.get(text[at : at + _LEAST], []))
        yield match or text[at]
        end = at + (match.length if match else 1)
        for place in range(at, end):
            seen.setdefault(text[place : place + _LEAST], []).append(place)
        at = end


def _match(text: bytes, at: int, places: list[int]) -> Match | None:
    """The one that saves the most bits; of equal ones the nearest."""
    best = Match(0, 0, 0)
    for place in reversed(places[-_TRIED:]):
        if at - place > _REACH:
            break
        beyond = best.length  # a longer one goes on the same there
        if text[place + beyond : place + beyond + 1] != text[at + beyond : at + beyond + 1]:
            continue
        length = _common(text, place, at)
        if length < _LEAST or length <= best.length:
            continue
        saved = _literal_bits(text[at : at + length]) - _match_bits(length, at - place)
        if saved > best.saved:
            best = Match(length, at - place, saved)
    return best if best.saved else None


def _common(text: bytes, one: int, other: int) -> int:
    """How many bytes are the same from both places on."""
    most = min(_LONGEST, len(text) - other)
    return next((k for k in range(most) if text[one + k] != text[other + k]), most)


def _literal_bits(part: bytes) -> int:
    return sum(8 + (byte >= 144) for byte in part)


def _match_bits(length: int, distance: int) -> int:
    place, far = _LENGTHS.place(length), _DISTANCES.place(distance)
    return 7 + (place >= 23) + _LENGTHS.extra[place] + 5 + _DISTANCES.extra[far]


def _length(match: Match) -> list[tuple[int, int]]:
    place = _LENGTHS.place(match.length)
    rest = match.length - _LENGTHS.begins[place]
    return [*_symbol(257 + place), (rest, _LENGTHS.extra[place])]


def _distance(match: Match) -> list[tuple[int, int]]:
    place = _DISTANCES.place(match.distance)
    rest = match.distance - _DISTANCES.begins[place]
    return [(_reversed(place, 5), 5), (rest, _DISTANCES.extra[place])]


def _symbol(symbol: int) -> list[tuple[int, int]]:
    """The fixed code of a byte, of the end (256) or of a range of lengths."""
    for below, first, code, size in (
        (144, 0, 0x30, 8), (256, 144, 0x190, 9), (280, 256, 0, 7), (288, 280, 0xC0, 8),
    ):  # fmt: skip
        if symbol < below:
            return [(_reversed(code + symbol - first, size), size)]
    raise AssertionError(symbol)


def _reversed(code: int, size: int) -> int:
    """Codes stand with their highest bit first, all else with the lowest."""
    return int(f"{code:0{size}b}"[::-1], 2)


def _bytes_of(bits: list[tuple[int, int]]) -> bytes:
    """Values and their sizes, the lowest bits first."""
    done, held, count = bytearray(), 0, 0
    for value, size in bits:
        held |= value << count
        count += size
        while count >= 8:
            done.append(held & 255)
            held, count = held >> 8, count - 8
    return bytes(done) + bytes([held] if count else [])
