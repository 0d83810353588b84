"""The wheel: its size, its speed, and what it refuses; nothing crashes."""

import contextlib
import json
import os
import resource
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest
import torch
from hostile_files import mended
from program_models import GOLDEN

from pocketbayes import __version__

COLD = """
import time
begin = time.process_time()
import pocketbayes_lite as lite
imported = time.process_time() - begin
model = lite.load({path!r})
pred = model.predict([0.0] * 6)
import json, sys
print(json.dumps([imported, float(pred.probs.sum()), "torch" in sys.modules]))
"""


def test_the_wheel_is_small_and_for_this_platform(wheel, lite):
    name, version, python, abi, platform = wheel.stem.split("-")
    assert (name, version, python, abi) == ("pocketbayes_lite", __version__, "py3", "none")
    assert platform != "any"
    assert wheel.stat().st_size < 400_000  # three times of it are less than 1 MB
    assert lite.__version__ == __version__


def spent_by_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_an_environment_with_numpy_alone_predicts_at_once(wheel, tmp_path):
    """The least time of five: import at most 0.2 s, from start to answer at most 0.5 s.

    Time of the processor: other tests run beside this one.
    """
    folder = tmp_path / "environment"
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([*command, "--no-deps", "--no-index", wheel], check=True, env=clean)
    (packages,) = folder.glob("lib/python*/site-packages")
    for part in ("numpy", "numpy.libs"):  # as it is in this environment, and nothing beside it
        found = Path(np.__file__).parents[1] / part
        if found.is_dir():
            (packages / part).symlink_to(found)
    script, whole, imports = COLD.format(path=str(GOLDEN / "program-head.pocket")), [], []
    for _ in range(5):
        begin = spent_by_children()
        done = subprocess.run(
            [python, "-I", "-c", script], capture_output=True, text=True, check=False
        )
        whole.append(spent_by_children() - begin)
        assert done.returncode == 0, done.stderr
        seconds, total, has_torch = json.loads(done.stdout)
        imports.append(seconds)
        assert abs(total - 1) < 1e-5
        assert not has_torch
    assert min(imports) < 0.2
    assert min(whole) < 0.5


def test_damaged_files_are_errors(lite, tmp_path):
    data = (GOLDEN / "program-head.pocket").read_bytes()
    random = np.random.default_rng(0)
    for size in random.integers(0, len(data), 50):
        with pytest.raises(lite.LiteError):
            lite.read(data[:size])
    for place in random.integers(0, len(data), 50):
        with pytest.raises(lite.LiteError):
            lite.read(data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :])
    (tmp_path / "bad.pocket").write_bytes(data[:100])
    with pytest.raises(lite.LiteError, match=r"bad\.pocket"):
        lite.load(tmp_path / "bad.pocket")
    with pytest.raises(lite.LiteError, match="cannot be read"):
        lite.load(tmp_path / "none.pocket")
    with pytest.raises(lite.LiteError, match="is a folder"):
        lite.load(tmp_path)
    with pytest.raises(lite.LiteError, match="path is empty"):
        lite.load("")


def test_a_file_without_a_program_says_what_to_do(lite):
    with pytest.raises(lite.LiteError, match=r"pb\.save\(model, path, example=x\)"):
        lite.load(GOLDEN / "v3-mean-field.pocket")


@pytest.mark.parametrize(("x", "options", "match"), [
    (np.zeros((2, 5)), {}, r"shape \(2, 5\); the network was saved for \(N, 6\)"),
    (np.zeros((0, 6)), {}, "no rows"),
    (np.full((1, 6), np.nan), {}, "NaN or infinite"),
    ("text", {}, "no array of numbers"),
    (["1", "2", "3", "4", "5", "6"], {}, "no array of numbers: its type is <U1"),
    (torch.zeros(1, 6, requires_grad=True), {}, "no array of numbers: .*detach"),
    (np.zeros((1, 6), complex), {}, "its type is complex128; pass real numbers"),
    (np.zeros((1, 6), "datetime64[s]"), {}, "its type is datetime64"),
    (np.ma.masked_less(np.arange(6.0), 2), {}, "masked: fill that in"),
    (np.full((1, 6), 1e300), {}, "NaN or infinite"),
    ([[object()] * 6], {}, "no array of numbers"),
    (np.zeros((1, 6)), {"estimator": []}, "must be one of"),
    (np.zeros((1, 6)), {"num_samples": np.float64(3)}, "whole number from 1 to 100,000"),
    (np.zeros((1, 6)), {"num_samples": True}, "whole number from 1 to 100,000"),
    (np.zeros((1, 6)), {"seed": 2**64}, r"from 0 to 2\^64 - 1"),
    (np.zeros((1, 6)), {"level": "0.9"}, "level"),
    (np.zeros((1, 6)), {"normals": "text"}, "normals is no array"),
    (np.zeros((1, 6)), {"estimator": "lrt"}, '"weight" draws whole networks'),
    (np.zeros((1, 6)), {"estimator": "best"}, "must be one of"),
    (np.zeros((1, 6)), {"num_samples": 0}, "num_samples"),
    (np.zeros((1, 6)), {"seed": -1}, "seed"),
    (np.zeros((1, 6)), {"level": 2.0}, "level"),
    (np.zeros((1, 6)), {"normals": np.zeros((3, 3))}, "normals"),
])  # fmt: skip
def test_refusals(lite, x, options, match):
    model = lite.load(GOLDEN / "program-head.pocket")
    with pytest.raises(lite.LiteError, match=match):
        model.predict(x, **options)
    assert model.predict(np.zeros(6)).label in (0, 1, 2)
    plain = lite.load(GOLDEN / "program-mean-field.pocket")
    with pytest.raises(lite.LiteError, match=r"no one-pass head: pb\.distill_ teaches one"):
        plain.predict(np.zeros(6), "one_pass")
    with pytest.raises(lite.LiteError, match="no prediction set"):
        _ = plain.predict(np.zeros(6)).prediction_set


def test_numbers_of_numpy_are_numbers(lite):
    model, x = lite.load(GOLDEN / "program-mean-field.pocket"), np.ones((1, 6), np.int16)
    plain = model.predict(x, num_samples=7, seed=3, level=0.5)
    asked = {"num_samples": np.int64(7), "seed": np.uint8(3), "level": np.float32(0.5)}
    assert (model.predict(x, **asked).probs == plain.probs).all()
    assert (model.predict(np.ma.array(x), num_samples=7, seed=3).probs == plain.probs).all()


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_bytes_of_any_kind_are_read(lite, kind):
    data = (GOLDEN / "program-head.pocket").read_bytes()
    assert lite.read(kind(data)).likelihood == "categorical"


@pytest.mark.parametrize("given", ["m.pocket", GOLDEN / "program-head.pocket", 3, None])
def test_what_holds_no_bytes_is_an_error(lite, given):
    with pytest.raises(lite.LiteError, match=r"read takes the bytes of a file; .* takes a path"):
        lite.read(given)
    with pytest.raises(lite.LiteError, match=r"cannot be read|no path"):
        lite.load("none.pocket" if isinstance(given, GOLDEN.__class__) else given)


@pytest.mark.parametrize("name", ["mean-field", "head", "residual", "attentive", "sequential"])
def test_answers_that_are_not_finite_are_errors(lite, name):
    """Inputs of 1e30, whose squares are none of float32; others of the batch do not matter."""
    model = lite.load(GOLDEN / f"program-{name}.pocket")
    x = np.zeros((20, *model.input_shapes[0]), np.float32)
    if name == "sequential":
        assert np.isfinite(model.predict(x, "moments").probs).all()
        return
    x[17] = 1e30
    with pytest.raises(lite.LiteError, match=r"answer to row 17 is not finite .*as in training"):
        model.predict(x, "moments")
    assert np.isfinite(model.predict(x[:17], "moments").probs).all()


@pytest.mark.parametrize("name", ["head", "residual-sparse", "deep-ensemble"])
def test_forged_files_answer_or_are_errors(lite, name):
    """One bit in a hundred places is another one, under a checksum that is right."""
    data = (GOLDEN / f"program-{name}.pocket").read_bytes()
    random, answered = np.random.default_rng(1), 0
    for place in random.integers(0, len(data), 100):
        bit = bytes([data[place] ^ 1 << random.integers(8)])
        with contextlib.suppress(lite.LiteError):
            model = lite.read(mended(data[:place] + bit + data[place + 1 :]))
            x = np.zeros((2, *model.input_shapes[0]))
            for estimator in (None, "mean", "moments"):
                model.predict(x, estimator, 5)
            answered += 1
    assert answered
