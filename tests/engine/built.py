"""The engine as a shared library, compiled once, and models of the library in it."""

import ctypes as ct
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

import pocketbayes as pb
from pocketbayes.codec.state import plain_state
from pocketbayes.layers import describe, members_of
from pocketbayes.posteriors import Shared, SpikeSlab

ENGINE = Path(__file__).parents[2] / "engine"
FLAGS = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fPIC", "-shared"]
FAST = ["-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"]
ESTIMATORS = {"mean": 0, "one_pass": 1, "moments": 2, "weight": 3}
GRANULARITIES = {"weight": 0, "input": 1, "output": 2}
_FLOATS, _WORDS = ct.POINTER(ct.c_float), ct.POINTER(ct.c_uint32)


class CWeight(ct.Structure):
    _fields_ = [
        ("name", ct.c_char_p), ("rank", ct.c_int), ("shape", ct.c_int32 * 8), ("size", ct.c_uint32),
        ("count", ct.c_uint32), ("index", _WORDS), ("mean", _FLOATS), ("std", _FLOATS),
        ("inclusion", _FLOATS), ("spike_std", ct.c_float), ("kind", ct.c_int), ("group", ct.c_int),
        ("group_axis", ct.c_int), ("label", _WORDS), ("codebook", ct.c_int),
        ("draws_once", ct.c_int),
    ]  # fmt: skip


class CFile(ct.Structure):
    _fields_ = [
        ("arena", ct.c_void_p), ("facts", ct.c_void_p), ("members", ct.c_uint32),
        ("count", ct.c_uint32), ("weights", ct.POINTER(CWeight)), ("program", ct.c_char_p),
        ("program_size", ct.c_size_t),
    ]  # fmt: skip


class CFacts(ct.Structure):
    _fields_ = [
        ("likelihood", ct.c_char_p), ("temperature", ct.c_float), ("moments_factor", ct.c_float),
        ("is_local", ct.c_int), ("keeps_dropout", ct.c_int), ("last_layer", ct.c_char_p),
        ("gone", _FLOATS),
    ]  # fmt: skip


class COptions(ct.Structure):
    _fields_ = [("most_draws", ct.c_int), ("moments", ct.c_int), ("int8", ct.c_int)]


class CAsk(ct.Structure):
    _fields_ = [
        ("estimator", ct.c_int), ("draws", ct.c_int), ("seed", ct.c_uint64), ("level", ct.c_float),
        ("normals", _FLOATS),
    ]  # fmt: skip


ANSWERS = (
    "outputs", "variances", "probs", "entropy", "aleatoric", "epistemic", "label", "mean", "std",
    "lower", "upper", "samples",
)  # fmt: skip


class CAnswer(ct.Structure):
    _fields_ = [(name, ct.c_void_p) for name in ANSWERS]


class EngineError(Exception):
    """What the engine says of something that it refuses."""


def compiled(folder, *flags):
    """The library, or a visible skip where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    library = folder / "engine.so"
    sources = sorted(map(str, ENGINE.glob("*.c")))
    subprocess.run([compiler, *FLAGS, *(flags or FAST), "-o", library, *sources, "-lm"], check=True)
    made = ct.CDLL(str(library))
    made.pocket_open.restype = ct.c_void_p
    made.pocket_error.restype = ct.c_char_p
    made.pocket_memory.restype = ct.c_size_t
    for name in ("pocket_close", "pocket_error", "pocket_memory"):
        getattr(made, name).argtypes = [ct.c_void_p]
    return made


def program_in(path):
    """The section of a file."""
    with safe_open(path, "np") as file:
        return file.get_tensor("program").tobytes()


def floats(values, kept):
    found = np.ascontiguousarray(values, np.float32)
    kept.append(found)
    return found.ctypes.data_as(_FLOATS)


def words(values, kept):
    found = np.ascontiguousarray(values, np.uint32)
    kept.append(found)
    return found.ctypes.data_as(_WORDS)


def described(name, shape, mean, kept, std=None, index=None):
    """A weight as the header has it; `kept` holds its arrays."""
    shape = tuple(shape)
    made = CWeight(name=name.encode(), rank=len(shape), size=int(np.prod(shape)), codebook=-1)
    made.shape[: len(shape)] = shape
    made.count = len(index) if index is not None else made.size
    made.mean = floats(np.ravel(mean), kept)
    if index is not None:
        made.index = words(index, kept)
    if std is not None:
        made.std, made.kind = floats(np.ravel(std), kept), 1
    return made


def of_posterior(name, q, kept):
    """A posterior; what has zeros is stored without them."""
    mean, variance = (t.detach().float().numpy().ravel() for t in q.moments())
    shape = tuple(q.moments()[0].shape)
    if isinstance(q, SpikeSlab) and type(q).__name__ == "SpikeSlab":
        slab, own = (t.detach().float().numpy() for t in q._open())
        made = described(name, shape, slab, kept, np.sqrt(own))
        chances = torch.broadcast_to(q.each(q.inclusion), shape)
        made.inclusion, made.kind = floats(chances.detach().float().numpy().ravel(), kept), 2
        made.group = GRANULARITIES[q.granularity]
        if q.granularity != "weight":
            sides = q.each(q.inclusion).shape
            made.group_axis = next((i for i, n in enumerate(sides) if n > 1), 0)
        return made
    std = np.sqrt(variance)
    index = np.flatnonzero((mean != 0) | (std != 0))
    own = None if not std.any() else std
    if len(index) == len(mean) or isinstance(q, Shared):
        return described(name, shape, mean, kept, own)
    return described(name, shape, mean[index], kept, None if own is None else std[index], index)


def file_of(weights, program, members=1):
    """A file of these weights, sorted by their names' bytes."""
    ordered = sorted(weights, key=lambda w: w.name)
    array = (CWeight * max(1, len(ordered)))(*ordered)
    made = CFile(members=members, count=len(ordered), weights=array, program=program)
    made.program_size, made.kept = len(program), array
    return made


class Engine:
    """An open model."""

    def __init__(self, library, file, kept=(), facts=None, draws=100, moments=True, int8=False):
        self.library, self.file, self.kept = library, file, kept
        error = ct.create_string_buffer(256)
        options = COptions(draws, int(moments), int(int8))
        self.facts = facts or CFacts()
        self.handle = library.pocket_open(
            ct.byref(file), ct.byref(self.facts), ct.byref(options), error
        )
        if not self.handle:
            raise EngineError(error.value.decode())

    def __del__(self):
        if getattr(self, "handle", None):
            self.library.pocket_close(self.handle)

    def shape(self, number=-1):
        sides = (ct.c_int32 * 8)()
        rank = self.library.pocket_shape(ct.c_void_p(self.handle), number, sides)
        return tuple(sides[:rank])

    def predict(self, *inputs, **asked):
        """All answers, or those of some names, as arrays by their names."""
        call = self.caller(*inputs, **asked)
        call()
        return call.answers

    def caller(
        self, *inputs, estimator="mean", draws=1, seed=0, level=0.9, normals=None, wanted=None
    ):
        """A call of the engine with all that it needs, which makes `answers`."""
        kept, rows, shape = [], len(inputs[0]), self.shape()
        given = (_FLOATS * len(inputs))(*(floats(x, kept) for x in inputs))
        ask = CAsk(ESTIMATORS[estimator], draws, seed, level)
        if normals is not None:
            ask.normals = floats(normals, kept)
        made, answer = {}, CAnswer()
        for name in wanted or ANSWERS[:7]:
            made[name] = np.zeros((rows, *shape), np.int32 if name == "label" else np.float32)
            setattr(answer, name, made[name].ctypes.data)
        handle, refs = ct.c_void_p(self.handle), (ct.byref(ask), ct.byref(answer))

        def call():
            if self.library.pocket_predict(handle, given, rows, *refs):
                raise EngineError(self.library.pocket_error(self.handle).decode())

        call.answers, call.kept = made, kept
        return call


def engine_of(library, model, program, likelihood=None, **options):
    """A model of the library in the engine, without a file between."""
    kept, weights = [], []
    posteriors, state = dict(pb.named_posteriors(model)), plain_state(model)
    for name, q in posteriors.items():
        weights.append(of_posterior(name, q, kept))
    for name, tensor in state.items():
        weights.append(described(name, tensor.shape, tensor.detach().float().numpy(), kept))
    known = describe(model)
    likelihood = likelihood or known.likelihood
    estimators = {m._posteriors.estimator for m in model.modules() if hasattr(m, "_posteriors")}
    facts = CFacts(
        likelihood=likelihood.encode() if likelihood else None,
        temperature=known.temperature or 0, moments_factor=known.moments_factor or 0,
        is_local=int("lrt" in estimators), keeps_dropout=int(known.keeps_dropout),
    )  # fmt: skip
    head = known.one_pass
    if head:
        if head["last_variance"]:
            facts.last_layer = head["places"][-1][0].encode()
        if "gone" in head:
            facts.gone = floats(np.array(head["gone"]), kept)
    return Engine(
        library, file_of(weights, program, len(members_of(model))), kept, facts, **options
    )


def engine_of_program(library, program, arrays, **options):
    """Certain weights w0, w1, ... in a program."""
    kept = []
    weights = [described(f"w{i:03}", a.shape, a, kept) for i, a in arrays.items()]
    return Engine(library, file_of(weights, program), kept, **options)
