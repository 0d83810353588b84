"""Trying out what was written: answers by the compiler here, sizes for a Cortex-M4."""

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from pocketbayes.deploy.c_models import CModel
from pocketbayes.deploy.c_tables import Array
from pocketbayes.deploy.plans import Plan
from pocketbayes.errors import PocketBayesError
from pocketbayes.layers import tensors_of
from pocketbayes.prediction import predict

CORTEX_M4 = ("-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard")
_STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror")
_ARM = "arm-none-eabi-gcc"


class Measured(NamedTuple):
    """Bytes that a linker needs for a model and the functions of math.h that it calls."""

    flash: int
    ram: int


def measured(made: CModel) -> Measured | None:
    """By the cross compiler for a Cortex-M4; None: there is none, or it has no C library."""
    tools = shutil.which(_ARM), shutil.which("arm-none-eabi-size")
    if not all(tools):
        return None
    with tempfile.TemporaryDirectory() as folder:
        _write(made, Path(folder))
        entry = f"-Wl,--gc-sections,--entry={made.facts.name}_predict"
        command = [
            _ARM, *_STRICT, *CORTEX_M4, "-Os", "-ffunction-sections", "-fdata-sections", entry,
            "-nostartfiles", "--specs=nano.specs", "-o", "a.elf", f"{made.facts.name}.c", "-lm",
        ]  # fmt: skip
        if subprocess.run(command, cwd=folder, capture_output=True).returncode:
            return None
        told = subprocess.run(
            ["arm-none-eabi-size", "a.elf"], cwd=folder, capture_output=True, text=True
        ).stdout
    text, data, bss = map(int, told.splitlines()[1].split()[:3])
    return Measured(text + data, data + bss)


def compared(made: CModel, model: nn.Module, plan: Plan) -> float | None:
    """The largest difference from what `predict` answers on the example; None: no compiler here."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    pred = predict(
        model, plan.example, plan.num_samples, estimator=plan.estimator,
        likelihood=plan.likelihood.name, single=False,
    )  # fmt: skip
    rows = tensors_of(plan.example)[0].float().numpy()
    with tempfile.TemporaryDirectory() as folder:
        _write(made, Path(folder))
        library = Path(folder) / "model.so"
        command = [compiler, "-std=c99", "-O1", "-fPIC", "-shared", "-o", str(library)]
        command += [str(Path(folder) / f"{made.facts.name}.c"), "-lm"]
        if subprocess.run(command, capture_output=True).returncode:
            return None
        found = answers_of(library, made, rows)
    names = [name for name in found if name not in ("label", "lower", "upper")]
    known = {name: getattr(pred, name).numpy().reshape(found[name].shape) for name in names}
    return max(float(np.abs(found[n] - known[n]).max()) for n in names)


def answers_of(library: Path, made: CModel, rows: Array) -> dict[str, Array]:
    """All answers of a compiled model, row by row."""
    kinds: dict[str, Any] = {"float": ctypes.c_float, "int": ctypes.c_int}
    fields = [(key, kinds[kind] * n if n else kinds[kind]) for kind, key, n in made.facts.fields]
    answer = type("Answer", (ctypes.Structure,), {"_fields_": fields})()
    predict_one = getattr(ctypes.CDLL(str(library)), f"{made.facts.name}_predict")
    found: dict[str, list[Array]] = {key: [] for key, _ in fields}
    for number, row in enumerate(rows):
        flat = np.ascontiguousarray(row, np.float32)
        if code := predict_one(ctypes.c_void_p(flat.ctypes.data), ctypes.byref(answer)):
            raise PocketBayesError(
                f"in C, {made.facts.name}_predict refuses row {number} of the example with {code}, "
                "as its header says of inputs too large: pass an example as in training"
            )
        for key, values in found.items():
            values.append(np.array(getattr(answer, key)))
    return {key: np.stack(values) for key, values in found.items()}


def _write(made: CModel, folder: Path) -> None:
    (folder / f"{made.facts.name}.c").write_text(made.source)
    (folder / f"{made.facts.name}.h").write_text(made.header)
