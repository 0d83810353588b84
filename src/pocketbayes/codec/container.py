"""The file itself: a valid safetensors file with one JSON description and a checksum.

See docs/format.md. Nothing in it is code, and nothing is looked up by a name from the file but
what the closed tables of families and networks hold.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from pocketbayes.checkpoints import write_atomically
from pocketbayes.errors import FormatError

VERSION = 2
_READ = (1, 2)
_KEY = "pocketbayes"
_NO_DIGEST = "0" * 64


@dataclass(frozen=True)
class Container:
    """The parts of one file."""

    description: dict[str, Any]
    sections: dict[str, Tensor]
    size: int
    sha256: str

    @property
    def version(self) -> int:
        """The version of its format."""
        return int(self.description["version"])


def packed(description: dict[str, Any], sections: dict[str, Tensor]) -> bytes:
    """The file as bytes; equal content gives equal bytes."""
    head = {"version": VERSION, "sha256": _NO_DIGEST} | description
    try:
        text = json.dumps(head, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise FormatError(f"the model's description is not JSON: {error}") from error
    flat = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in sections.items()}
    data: bytes = safetensors.torch.save(flat, {_KEY: text})
    digest = hashlib.sha256(data).hexdigest()
    return data.replace(_field(_NO_DIGEST), _field(digest), 1)


def unpacked(data: bytes) -> Container:
    """The parts of a file's bytes, if every one of them is as it was written."""
    try:
        sections = safetensors.torch.load(data)
    except Exception as error:  # the parser's own error, and unknown types of tensors
        raise FormatError(f"not a safetensors file, or cut short: {error}") from error
    description = _description(data)
    digest = description.get("sha256")
    _check_digest(data, digest)
    version = description.get("version")
    if not isinstance(version, int) or version not in _READ:
        raise FormatError(
            f"this file has version {version!r}; this library reads versions up to {VERSION}: use "
            "a library as new as the one that wrote it"
        )
    return Container(description, sections, len(data), str(digest))


def write_container(path: Path, data: bytes) -> None:
    """Puts the bytes under this name, whole or not at all."""
    try:
        write_atomically(path, lambda file: file.write(data))
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


def _description(data: bytes) -> dict[str, Any]:
    end = 8 + int.from_bytes(data[:8], "little")
    metadata = json.loads(data[8:end]).get("__metadata__", {})
    if _KEY not in metadata:
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


def _field(digest: str) -> bytes:
    """The digest as it stands in the file: JSON text inside of a JSON string."""
    return rf"\"sha256\":\"{digest}\"".encode()


def _check_digest(data: bytes, digest: object) -> None:
    """The SHA-256 of the whole file, with the digest's own 64 characters as zeros."""
    if not isinstance(digest, str) or len(digest) != 64 or data.count(_field(digest)) != 1:
        raise FormatError("the description has no checksum of 64 hexadecimal digits")
    blanked = data.replace(_field(digest), _field(_NO_DIGEST))
    if hashlib.sha256(blanked).hexdigest() != digest:
        raise FormatError(
            "the checksum does not fit: the file was damaged or changed; copy it anew"
        )
