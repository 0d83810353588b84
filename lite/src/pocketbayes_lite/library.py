"""The compiled engine and its structures, as engine/pocket.h has them."""

import ctypes as ct
import sys
from functools import cache
from pathlib import Path
from typing import Any

from pocketbayes_lite.errors import LiteError

FLOATS = ct.POINTER(ct.c_float)
MEAN, ONE_PASS, MOMENTS, WEIGHT = range(4)
CLASSES, LABELS, VALUES = range(3)
_HERE = Path(__file__).parent
_NEWER = (("avx512f avx512bw avx512cd avx512dq avx512vl", "engine-avx512.so"),
          ("avx2 fma bmi1 bmi2 f16c movbe", "engine-avx2.so"))  # fmt: skip


class Options(ct.Structure):
    """`pocket_options`."""

    _fields_ = [("most_draws", ct.c_int), ("moments", ct.c_int), ("int8", ct.c_int)]


class Ask(ct.Structure):
    """`pocket_ask`."""

    _fields_ = [
        ("estimator", ct.c_int), ("draws", ct.c_int), ("seed", ct.c_uint64), ("level", ct.c_float),
        ("normals", FLOATS),
    ]  # fmt: skip


class Answer(ct.Structure):
    """`pocket_answer`: where each array goes."""

    _fields_ = [
        (name, ct.c_void_p)
        for name in (
            "outputs", "variances", "probs", "entropy", "aleatoric", "epistemic", "label", "mean",
            "std", "lower", "upper", "samples",
        )
    ]  # fmt: skip


@cache
def library() -> ct.CDLL:
    """The engine for this processor."""
    path = _HERE / _fitting(_abilities())
    try:
        engine = ct.CDLL(str(path))
    except OSError as error:
        raise LiteError(
            f"the engine {path} cannot be loaded ({error}): install pocketbayes-lite again, "
            "for this platform"
        ) from error
    handle, text, size = ct.c_void_p, ct.c_char_p, ct.c_size_t
    options = ct.POINTER(Options)
    engine.pocket_load.argtypes, engine.pocket_load.restype = [text, size, options, text], handle
    engine.pocket_again.argtypes, engine.pocket_again.restype = [handle, options, text], handle
    engine.pocket_share.argtypes = [handle, ct.c_int, ct.c_int, text]
    engine.pocket_share.restype = handle
    engine.pocket_work.argtypes, engine.pocket_work.restype = [handle], ct.c_double
    engine.pocket_error.argtypes, engine.pocket_error.restype = [handle], text
    engine.pocket_fact.argtypes, engine.pocket_fact.restype = [handle, text, text, size], size
    engine.pocket_memory.argtypes, engine.pocket_memory.restype = [handle], size
    engine.pocket_close.argtypes, engine.pocket_close.restype = [handle], None
    engine.pocket_shape.argtypes = [handle, ct.c_int, ct.POINTER(ct.c_int32)]
    engine.pocket_is_whole.argtypes = [handle, ct.c_int]
    for name in ("kind", "inputs", "members", "default", "has_random_weights", "together", "int8"):
        getattr(engine, f"pocket_{name}").argtypes = [handle]
    ask, answer, inputs = ct.POINTER(Ask), ct.POINTER(Answer), ct.POINTER(FLOATS)
    rows: list[Any] = [handle, inputs, ct.c_int, ct.c_int, ct.c_int, ask]
    engine.pocket_rows.argtypes = [*rows, answer]
    engine.pocket_draws.argtypes = [*rows, handle]
    engine.pocket_number.argtypes = [handle, ask]
    engine.pocket_tell.argtypes = [handle, handle, ct.c_int, ask, answer]
    return engine


def _fitting(abilities: set[str]) -> str:
    """The file of the newest instructions that the processor has."""
    for wanted, name in _NEWER:
        if abilities.issuperset(wanted.split()) and (_HERE / name).is_file():
            return name
    return "engine.so"


def _abilities() -> set[str]:
    """What Linux says of the processor; elsewhere nothing, so that the plain engine runs."""
    if sys.platform != "linux":
        return set()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            line = next((line for line in file if line.startswith("flags")), "")
    except OSError:
        return set()
    return set(line.partition(":")[2].split())
