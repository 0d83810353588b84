"""The C engine, compiled for tests: a library for ctypes, and programs of its own."""

import ctypes
import importlib.util
import shutil
import subprocess
import sys
from ctypes import (
    POINTER,
    Structure,
    byref,
    c_char_p,
    c_float,
    c_int,
    c_int32,
    c_size_t,
    c_uint8,
    c_uint32,
    c_void_p,
    create_string_buffer,
)
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

ENGINE = Path(__file__).parents[1] / "engine"
READER = [
    "codings",
    "container",
    "file",
    "inflate",
    "json",
    "layout",
    "model",
    "numbers",
    "places",
    "reading",
    "runs",
    "sections",
    "sha256",
    "shared",
    "statistics",
    "weights",
]
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]


class CWeight(Structure):
    """`pocket_weight` of engine/file.h."""

    _fields_ = (
        ("name", c_char_p), ("rank", c_int), ("shape", c_int32 * 8), ("size", c_uint32),
        ("count", c_uint32), ("index", POINTER(c_uint32)), ("mean", POINTER(c_float)),
        ("std", POINTER(c_float)), ("inclusion", POINTER(c_float)), ("spike_std", c_float),
        ("kind", c_int), ("group", c_int), ("group_axis", c_int), ("label", POINTER(c_uint32)),
        ("codebook", c_int), ("draws_once", c_int),
    )  # fmt: skip


class CFile(Structure):
    """`pocket_file` of engine/file.h."""

    _fields_ = (
        ("arena", c_void_p), ("facts", c_void_p), ("members", c_uint32), ("count", c_uint32),
        ("weights", POINTER(CWeight)), ("program", POINTER(c_uint8)), ("program_size", c_size_t),
    )  # fmt: skip


class Weight(NamedTuple):
    """The same with numpy arrays."""

    shape: tuple[int, ...]
    index: np.ndarray | None
    mean: np.ndarray
    std: np.ndarray | None
    inclusion: np.ndarray | None
    spike_std: float
    kind: int
    group: tuple[int, int]
    label: np.ndarray | None
    codebook: int
    draws_once: bool

    def placed(self, values: np.ndarray) -> np.ndarray:
        """Stored numbers as a dense tensor, 0 elsewhere."""
        if self.index is None:
            return values.reshape(self.shape)
        dense = np.zeros(int(np.prod(self.shape)), values.dtype)
        dense[self.index] = values
        return dense.reshape(self.shape)


class Read(NamedTuple):
    """What the engine made of a file."""

    members: int
    weights: dict[str, Weight]
    program: bytes | None


def compiler() -> list[str]:
    """A C compiler, or a visible skip."""
    if shutil.which("cc"):
        return ["cc"]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc"]
    pytest.skip("no C compiler")


def sanitised() -> list[str]:
    """Options of a program that ends at the first thing that C does not define."""
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    return ["-O1", "-g", *(checks if compiler() == ["cc"] else [])]  # zig has no address sanitiser


def built(target: Path, *options: str, more: tuple[Path, ...] = ()) -> Path:
    """The reader, compiled to this file with these options."""
    sources = [ENGINE / f"{name}.c" for name in READER]
    command = [*compiler(), *STRICT, *options, f"-I{ENGINE}", *sources, *more, "-lm"]
    subprocess.run([*map(str, command), "-o", str(target)], check=True)
    return target


class Engine:
    """The library."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self._library.pocket_read.argtypes = (c_char_p, c_size_t, POINTER(CFile), c_char_p)
        self._library.pocket_free.argtypes = (POINTER(CFile),)

    def read(self, data: bytes) -> Read | str:
        """The weights of a file, or the error."""
        found, error = CFile(), create_string_buffer(256)
        if self._library.pocket_read(data, len(data), byref(found), error):
            assert not found.arena
            assert 10 < len(error.value) < 256
            return error.value.decode(errors="replace")
        weights = [found.weights[k] for k in range(found.count)]
        names = [w.name for w in weights]
        assert names == sorted(names)
        program = bytes(found.program[: found.program_size]) if found.program else None
        made = Read(found.members, {w.name.decode(): _weight(w) for w in weights}, program)
        self._library.pocket_free(byref(found))
        return made


def _weight(w: CWeight) -> Weight:
    def array(pointer: object) -> np.ndarray | None:
        there = bool(pointer)
        return np.ctypeslib.as_array(pointer, (w.count,)).copy() if there else None

    shape = tuple(w.shape[: w.rank])
    assert int(np.prod(shape)) == w.size
    return Weight(
        shape, array(w.index), array(w.mean), array(w.std), array(w.inclusion), w.spike_std,
        w.kind, (w.group, w.group_axis), array(w.label), w.codebook, bool(w.draws_once),
    )  # fmt: skip
