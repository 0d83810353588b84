"""What an answer costs through each runtime, each in a process of its own."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pocketbayes.errors import PocketBayesError, warn

_TIMEOUT = 600.0

# What each is imported as, and code that leaves a function `answer(x)`; `_BEGIN` gives it the rest.
_RUNTIMES = {
    "torch": (
        "torch",
        """
import torch
torch.set_num_threads(threads)
import pocketbayes as pb
made = []
if network:
    import importlib
    sys.path.insert(0, os.getcwd())
    module, _, name = network.partition(":")
    made = [getattr(importlib.import_module(module), name)()]
model = pb.load(path, *made)
def answer(x):
    pb.predict(model, torch.from_numpy(x), estimator=estimator, single=False)
""",
    ),
    "engine": (
        "pocketbayes_lite",
        """
import pocketbayes_lite
model = pocketbayes_lite.load(path)
def answer(x):
    model.predict(x, estimator=estimator)
""",
    ),
    "onnxruntime": (
        "onnxruntime",
        """
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = threads
session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
seed = {i.name: np.array(0) for i in session.get_inputs() if i.name == "seed"}
def answer(x):
    session.run(None, {session.get_inputs()[0].name: x} | seed)
""",
    ),
    "openvino": (
        "openvino",
        """
import openvino
how = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
compiled = openvino.compile_model(path, "CPU", how)
seed = {i.any_name: np.array(0) for i in compiled.inputs if i.any_name == "seed"}
def answer(x):
    compiled({compiled.inputs[0].any_name: x} | seed)
""",
    ),
}
RUNTIMES = tuple(_RUNTIMES)
_ON_ONNX = ("onnxruntime", "openvino")
_BEGIN = """
import json, os, resource, statistics, sys, time
begin = time.perf_counter()
import numpy as np
path, estimator, threads, budget, network, examples, batches = json.loads(sys.argv[1])
examples = np.load(examples)
"""
_END = """
answer(examples[:1])
found = {"first_answer_seconds": time.perf_counter() - begin}
for batch in batches:
    x, spent, end = examples[:batch], [], time.perf_counter() + budget
    answer(x)
    while len(spent) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        answer(x)
        spent.append(time.perf_counter() - start)
    found[f"ms_at_{batch}"] = 1000 * statistics.median(spent) / batch
try:
    with open("/proc/self/status") as status:  # maxrss counts the process that started this one
        found["memory_bytes"] = 1024 * int(status.read().split("VmHWM:")[1].split()[0])
except OSError:
    unit = 1 if sys.platform == "darwin" else 1024
    found["memory_bytes"] = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Timing:
    """What one runtime takes.

    Attributes:
        runtime: its name.
        estimator: what it ran; the engine draws whole weights for noise at every output.
        bytes: of the file that it reads.
        first_answer_seconds: from the start of its imports to the first answer.
        memory_bytes: the most that its process held.
        milliseconds: for an example, by size of batch: the median.
    """

    runtime: str
    estimator: str
    bytes: int
    first_answer_seconds: float
    memory_bytes: int
    milliseconds: dict[int, float]

    def facts(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    def row(self) -> dict[str, str]:
        """As words, for a table."""
        times = {f"ms an example, batch {b}": f"{ms:.3g}" for b, ms in self.milliseconds.items()}
        return {
            "runtime": self.runtime,
            "estimator": self.estimator,
            "file": f"{self.bytes / 1e3:,.1f} kB",
            "first answer": f"{self.first_answer_seconds:.2f} s",
            "memory": f"{self.memory_bytes / 1e6:,.0f} MB",
        } | times


def installed(runtimes: Sequence[str] = RUNTIMES) -> list[str]:
    """Those of the runtimes that are there."""
    return [name for name in runtimes if importlib.util.find_spec(_RUNTIMES[name][0])]


def timed(
    files: dict[str, Path],
    examples: np.ndarray,
    *,
    estimator: str,
    network: str | None = None,
    batches: Sequence[int] = (1, 64),
    threads: int = 1,
    seconds: float = 1.0,
) -> list[Timing]:
    """Measures each runtime on its file, by name; one that fails is left out, with a warning.

    Args:
        files: what each runtime reads.
        examples: inputs, at least as many as the largest batch.
        estimator: as in `predict`.
        network: of your own, package.module:factory, for torch.
        batches: how many examples at a time.
        threads: of torch, onnxruntime and OpenVINO; the engine has one.
        seconds: to spend on each batch.
    """
    found = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "examples.npy"
        np.save(place, examples)
        for name, path in files.items():
            by = estimator
            if name == "engine" and estimator in ("lrt", "flipout"):
                by = "weight"  # it draws whole weights in their place
            given = [str(path), by, threads, seconds, network, str(place), list(batches)]
            try:
                told = _measured(name, given, threads)
            except PocketBayesError as error:
                warn(f"{name} is left out: {error}")
                continue
            times = {batch: told[f"ms_at_{batch}"] for batch in batches}
            facts = path.stat().st_size, told["first_answer_seconds"], told["memory_bytes"]
            found.append(Timing(name, by, *facts, times))
    return found


def reads_onnx(runtime: str) -> bool:
    """Whether a runtime reads what `export` writes; others read .pocket files."""
    return runtime in _ON_ONNX


def _measured(name: str, given: list[Any], threads: int) -> dict[str, Any]:
    """What the process of one runtime tells."""
    code = _BEGIN + _RUNTIMES[name][1] + _END
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code, json.dumps(given)],
            capture_output=True, text=True, timeout=_TIMEOUT, env=environment, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise PocketBayesError(f"it took longer than {_TIMEOUT:g} s") from error
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise PocketBayesError(lines[-1] if lines else f"its process ended with {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
