"""The file itself: a valid safetensors file with one JSON description and a checksum.

See docs/format.md. Nothing in it is code, and nothing is looked up by a name from the file but
what the closed tables of families and networks hold.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from pocketbayes.checkpoints import write_atomically
from pocketbayes.errors import FormatError

VERSION = 2
_READ = (1, 2)
_KEY = "pocketbayes"
_NO_DIGEST = "0" * 64
_LONGEST_HEADER = 100_000_000  # bytes: the bound of safetensors


@dataclass(frozen=True)
class Container:
    """The parts of one file; `sections` may be taken out."""

    description: dict[str, Any]
    sections: dict[str, Tensor]
    size: int
    sha256: str

    @property
    def version(self) -> int:
        """The version of its format."""
        return int(self.description["version"])


def packed(
    description: dict[str, Any], sections: Mapping[str, bytes]
) -> tuple[list[bytes], Container]:
    """The file in pieces, and its description; equal content gives equal bytes."""
    said = {"version": VERSION, "sha256": _NO_DIGEST} | description
    try:
        text = json.dumps(said, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise FormatError(f"the model's description is not JSON: {error}") from error
    data = [sections[name] for name in sorted(sections)]
    head = _safetensors_header(text, sections)
    digest = _sha256([head, *data])
    pieces = [head.replace(_field(_NO_DIGEST), _field(digest), 1), *data]
    known = json.loads(text) | {"sha256": digest}
    return pieces, Container(known, {}, sum(map(len, pieces)), digest)


def _safetensors_header(text: str, sections: Mapping[str, bytes]) -> bytes:
    """As `safetensors.serialize` writes it, which would copy all sections twice."""
    header: dict[str, Any] = {"__metadata__": {_KEY: text}}
    end = 0
    for name in sorted(sections):
        begin, end = end, end + len(sections[name])
        header[name] = {"dtype": "U8", "shape": [end - begin], "data_offsets": [begin, end]}
    coded = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    coded += b" " * (-len(coded) % 8)
    return len(coded).to_bytes(8, "little") + coded


def unpacked(data: bytes) -> Container:
    """The parts of a file's bytes, if every one of them is as it was written."""
    try:
        sections = safetensors.torch.load(data)
    except Exception as error:  # the parser's own error, and unknown types of tensors
        raise FormatError(f"not a safetensors file, or cut short: {error}") from error
    description = _description(data[8 : 8 + int.from_bytes(data[:8], "little")])
    digest = description.get("sha256")
    _check_digest(data, digest)
    _check_version(description)
    return Container(description, sections, len(data), str(digest))


def write_container(path: Path, pieces: Iterable[bytes]) -> None:
    """Puts the bytes under this name, whole or not at all."""
    try:
        write_atomically(path, lambda file: file.writelines(pieces))
    except OSError as error:
        raise FormatError(f"cannot write {path}: {error.strerror or error}") from error


def read_container(path: Path) -> Container:
    """The parts of a file; every error names it."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FormatError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        return unpacked(data)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error


def read_description(path: Path) -> dict[str, Any]:
    """What a file says of itself; nothing tells whether the rest of it is whole."""
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = file.read(min(size, _LONGEST_HEADER))
    except OSError as error:
        raise FormatError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        description = _description(header)
        _check_version(description)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error
    return description


def _description(header: bytes) -> dict[str, Any]:
    try:
        found = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not a safetensors file, or cut short: {error}") from error
    metadata = found.get("__metadata__") if isinstance(found, dict) else None
    if not isinstance(metadata, dict) or not isinstance(metadata.get(_KEY), str):
        raise FormatError("a safetensors file, but not one of pocketbayes: it has no description")
    try:
        description = json.loads(metadata[_KEY], parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"the description is not JSON: {error}") from error
    if not isinstance(description, dict):
        raise FormatError("the description is not a JSON object")
    return description


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not a JSON number")


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


def _check_digest(data: bytes, digest: object) -> None:
    """The SHA-256 of the whole file, with the digest's own 64 characters as zeros."""
    known = isinstance(digest, str) and re.fullmatch("[0-9a-f]{64}", digest)
    if not known or data.count(_field(str(digest))) != 1:
        raise FormatError("the description has no checksum of 64 hexadecimal digits")
    view, field = memoryview(data), _field(str(digest))
    place = data.index(field)
    if _sha256([view[:place], _field(_NO_DIGEST), view[place + len(field) :]]) != digest:
        raise FormatError(
            "the checksum does not fit: the file was damaged or changed; copy it anew"
        )


def _sha256(pieces: Iterable[bytes | memoryview]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()
