"""The file itself: a valid safetensors file with a JSON description and a checksum.

See docs/format.md. Nothing in it is code, and nothing is looked up by a name from the file but
what the closed tables of families and networks hold.
"""

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any

import safetensors.torch
from torch import Tensor

from pocketbayes.codec.deflate import MOST, deflated, inflated
from pocketbayes.codec.disk import home_of, regular, write_atomically
from pocketbayes.codec.file_views import FileView, file_view_of
from pocketbayes.codec.json_texts import parsed, written
from pocketbayes.errors import FormatError, PocketBayesError, printable
from pocketbayes.programs import LONGEST

VERSION = 3
_READ = (1, 2, 3)
_KEY = "pocketbayes"
_SECTION = "description"
_PROGRAM = "program"
_IN_THE_HEADER = ("version", "sha256", "model", "members")
_IN_THE_SECTION = ("posteriors", "tables", "arrays", "sections")
_LONGEST_HEADER, _LONGEST_MESSAGE = MOST, 1000
_NOT_ONE = "not a safetensors file, or cut short"
_NO_DIGEST = "0" * 64


@dataclass(frozen=True)
class Container:
    """The parts of one file: its sections or, of version 1, its tensors, to be taken out."""

    description: dict[str, Any]
    sections: Mapping[str, FileView]
    tensors: dict[str, Tensor]
    size: int
    sha256: str
    program: bytes | None = None

    @property
    def version(self) -> int:
        """The version of its format."""
        return int(self.description["version"])


def packed(
    description: dict[str, Any], sections: Mapping[str, FileView], program: bytes | None = None
) -> tuple[list[FileView], Container]:
    """The bytes of a file, piece by piece, and what it holds; equal content gives equal bytes."""
    said = {"version": VERSION, "sha256": _NO_DIGEST} | description
    short = _text({key: said[key] for key in _IN_THE_HEADER if key in said})
    long = _text({key: value for key, value in said.items() if key not in _IN_THE_HEADER})
    if len(long) > MOST:
        raise FormatError(f"the names in the model take more than {MOST:,} bytes")
    stored = {**sections, _SECTION: file_view_of(deflated(long.encode()))}
    if program is not None:
        stored[_PROGRAM] = file_view_of(program)
    pieces = [stored[name] for name in sorted(stored)]
    head = _safetensors_header(short, stored)
    digest = _sha256(chain([head], _bytes_in(pieces)))
    head = head.replace(_field(_NO_DIGEST), _field(digest), 1)
    known = json.loads(short) | json.loads(long) | {"sha256": digest}
    size = len(head) + sum(map(len, pieces))
    return [file_view_of(head), *pieces], Container(known, sections, {}, size, digest, program)


def _text(said: dict[str, Any]) -> str:
    try:
        return written(said)
    except FormatError as error:
        raise FormatError(f"the model's description is {error}") from error


def _bytes_in(pieces: Iterable[FileView]) -> Iterator[memoryview]:
    return chain.from_iterable(piece.chunks() for piece in pieces)


def _safetensors_header(text: str, sections: Mapping[str, FileView]) -> bytes:
    """As `safetensors.serialize` writes it, which would copy all sections twice."""
    header: dict[str, Any] = {"__metadata__": {_KEY: text}}
    end = 0
    for name in sorted(sections):
        begin, end = end, end + len(sections[name])
        header[name] = {"dtype": "U8", "shape": [end - begin], "data_offsets": [begin, end]}
    try:
        coded = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise FormatError(f"a name in the model is no text: {error.object[:80]!r}") from error
    coded += b" " * (-len(coded) % 8)
    if len(coded) > _LONGEST_HEADER:
        raise FormatError(f"the model's description takes more than {_LONGEST_HEADER:,} bytes")
    return len(coded).to_bytes(8, "little") + coded


@contextmanager
def room_beside(path: Path) -> Iterator[IO[bytes]]:
    """A file of no name for the sections, whose sizes stand before them in the file itself.

    Every error names that file.
    """
    _require_name(path)
    try:
        with tempfile.TemporaryFile(dir=home_of(path)) as room:
            yield room
    except OSError as error:
        raise FormatError(f"cannot write {path}: {error.strerror or error}") from error


def write_container(path: Path, pieces: Iterable[FileView]) -> None:
    """Puts the bytes under this name, whole or not at all."""
    write_atomically(path, lambda file: file.writelines(_bytes_in(pieces)))


def _require_name(path: Path) -> None:
    if not path.name or "\0" in str(path):
        raise FormatError(f"{str(path)!r} names no file")


@contextmanager
def opened(path: Path) -> Iterator[Container]:
    """The parts of a file, which stays open; every error names it."""
    _require_name(path)
    try:
        with regular(path) as file:
            yield unpacked(file)
    except OSError as error:
        raise FormatError(f"cannot read {path}: {error.strerror or error}") from error
    except PocketBayesError as error:
        raise FormatError(f"{path}: {_cut(str(error))}") from error


def _cut(message: str) -> str:
    """A message that does not repeat all of a long name, nor drive a terminal by one."""
    cut = message[:_LONGEST_MESSAGE] + "..." * (len(message) > _LONGEST_MESSAGE)
    return "\n".join(map(printable, cut.split("\n")))


def unpacked(file: IO[bytes]) -> Container:
    """The parts of an open file, if every byte of it is as it was written."""
    size = file.seek(0, os.SEEK_END)
    header = _header(file)
    said, begin = _json(header), 8 + len(header)
    entries = {name: entry for name, entry in said.items() if name != "__metadata__"}
    rest = FileView(file, begin, size)
    places = _places(entries, len(rest))
    description = _description(said)
    digest = description.get("sha256")
    _check_digest(bytes(FileView(file, 0, begin).read()), rest, digest)
    _check_version(description)
    if description["version"] == 1:
        return Container(description, {}, _tensors(FileView(file, 0, size)), size, str(digest))
    for name, place in places.items():
        if entries[name].get("dtype") != "U8" or entries[name].get("shape") != [len(rest[place])]:
            raise FormatError(f"section {name}: it is no row of bytes")
    sections = {name: rest[place] for name, place in places.items()}
    program = None
    if description["version"] > 2:
        description = _with_the_rest(description, sections.pop(_SECTION, None))
        program = _program(sections.pop(_PROGRAM, None))
    return Container(description, sections, {}, size, str(digest), program)


def _program(section: FileView | None) -> bytes | None:
    if section is not None and len(section) > LONGEST:
        raise FormatError(f"section {_PROGRAM} has more than {LONGEST:,} bytes")
    return None if section is None else bytes(section.read())


def _with_the_rest(short: dict[str, Any], section: FileView | None) -> dict[str, Any]:
    """The description with what stands in its section; neither may speak for the other."""
    if section is None or len(section) > 2 * MOST:  # a byte takes at most nine bits
        raise FormatError(f"section {_SECTION} is {'missing' if section is None else 'too long'}")
    try:
        long = _object(inflated(bytes(section.read())).decode())
    except (FormatError, UnicodeDecodeError) as error:
        raise FormatError(f"section {_SECTION}: {error}") from error
    if short.keys() - _IN_THE_HEADER or long.keys() - _IN_THE_SECTION:
        raise FormatError("the description says something unknown or in the wrong place")
    return short | long


def _places(entries: Mapping[str, Any], size: int) -> dict[str, slice]:
    """Where each section is; they cover all bytes behind the header without gap or overlap."""
    offsets = {name: _offsets(entry) for name, entry in entries.items()}
    rising = sorted(offsets.values())
    if [0, *(end for _, end in rising)] != [*(begin for begin, _ in rising), size]:
        raise FormatError(f"{_NOT_ONE}: its sections are not all of it")
    return {name: slice(*pair) for name, pair in offsets.items()}


def _offsets(entry: Any) -> tuple[int, int]:
    match entry:
        case {"data_offsets": [int(begin), int(end)]} if begin <= end:
            return begin, end
    raise FormatError("not a safetensors file: a section does not say where it is")


def _tensors(whole: FileView) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load(bytes(whole.read()))
    except Exception as error:  # the parser's own error, and unknown types of tensors
        raise FormatError(f"{_NOT_ONE}: {error}") from error


def read_description(path: Path) -> dict[str, Any]:
    """What a file says of itself; nothing tells whether the rest of it is whole."""
    _require_name(path)
    try:
        with regular(path) as file:
            description = _description(_json(_header(file)))
        _check_version(description)
    except OSError as error:
        raise FormatError(f"cannot read {path}: {error.strerror or error}") from error
    except FormatError as error:
        raise FormatError(f"{path}: {_cut(str(error))}") from error
    return description


def _header(file: IO[bytes]) -> bytes:
    """The header, or as much of it as there is."""
    file.seek(0)
    size = int.from_bytes(file.read(8), "little")
    if size > _LONGEST_HEADER:
        raise FormatError(f"{_NOT_ONE}: its header would take more than {_LONGEST_HEADER:,} bytes")
    return file.read(size)


def _json(header: bytes) -> dict[str, Any]:
    try:
        found = parsed(header.decode())
    except UnicodeDecodeError as error:
        raise FormatError(f"{_NOT_ONE}: its header is no text") from error
    except FormatError as error:
        raise FormatError(f"{_NOT_ONE}: its header is {error}") from error
    return found if isinstance(found, dict) else {}


def _description(said: dict[str, Any]) -> dict[str, Any]:
    metadata = said.get("__metadata__")
    if not isinstance(metadata, dict) or not isinstance(metadata.get(_KEY), str):
        raise FormatError("a safetensors file, but not one of pocketbayes: it has no description")
    return _object(metadata[_KEY])


def _object(text: str) -> dict[str, Any]:
    try:
        description = parsed(text)
    except FormatError as error:
        raise FormatError(f"the description is {error}") from error
    if not isinstance(description, dict):
        raise FormatError("the description is not a JSON object")
    return description


def _check_version(description: dict[str, Any]) -> None:
    version = description.get("version")
    if type(version) is not int or version not in _READ:
        raise FormatError(
            f"this file has version {version!r}; this library reads versions up to {VERSION}: use "
            "a library as new as the one that wrote it"
        )


def _field(digest: str) -> bytes:
    """The digest as it stands in the file: JSON text inside of a JSON string."""
    return rf"\"sha256\":\"{digest}\"".encode()


def _check_digest(head: bytes, rest: FileView, digest: object) -> None:
    """The SHA-256 of the whole file, with the digest's own 64 characters as zeros."""
    known = isinstance(digest, str) and re.fullmatch("[0-9a-f]{64}", digest)
    if not known or head.count(_field(str(digest))) != 1:
        raise FormatError("the description has no checksum of 64 hexadecimal digits")
    blank = head.replace(_field(str(digest)), _field(_NO_DIGEST))
    if _sha256(chain([blank], rest.chunks())) != digest:
        raise FormatError(
            "the checksum does not fit: the file was damaged or changed; copy it anew"
        )


def _sha256(pieces: Iterable[bytes | memoryview]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()
