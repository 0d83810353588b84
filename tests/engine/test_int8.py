"""Products of 8-bit integers: exact where they can be, bounded elsewhere."""

import ctypes as ct
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from built import EngineError, compiled, engine_of_program
from torch.nn.functional import conv2d

from pocketbayes.programs import Buffer, Input, Operation, Program, Weight, encoded

CPU = Path("/proc/cpuinfo")
BUILDS = {  # what its instructions need
    "plain": (["-DPOCKET_PLAIN_INT8"], ""),
    "avx2": (["-march=x86-64-v3"], "avx_vnni"),
    "avx512": (["-march=x86-64-v4"], "avx512_vnni"),
}


@pytest.fixture(scope="session", params=BUILDS)
def eight(request, tmp_path_factory):
    """The engine with each kind of products that this processor has."""
    flags, needed = BUILDS[request.param]
    if needed and (not CPU.exists() or needed not in CPU.read_text().split()):
        pytest.skip(f"needs a processor with {needed}")
    optimised = "-O2 -ffp-contract=fast -fno-math-errno -fno-trapping-math"
    others = os.environ.get("POCKET_ENGINE_FLAGS", optimised).split()
    return compiled(tmp_path_factory.mktemp(request.param), *others, *flags)


def opened(library, name, shape, weight, fields=(), bias=None, int8=True, more=()):
    """One operation with weights, and what follows it."""
    arrays = {0: weight} | ({} if bias is None else {1: bias})
    own = Operation(name, (Buffer(0), Weight(0), None if bias is None else Weight(1), *fields))
    operations = (own, *more)
    program = Program((Input(0, shape),), operations, Buffer(len(operations)))
    options = {"draws": 0, "moments": False, "int8": int8}
    return engine_of_program(library, encoded(program), arrays, **options)


def outputs(engine, x):
    return engine.predict(x, wanted=["outputs"])["outputs"]


def layers(engine):
    return engine.library.pocket_int8(ct.c_void_p(engine.handle))


def linear(shape, width):
    def exact(x, w):
        return x @ w.T

    return "linear", shape, (width, shape[-1]), (), exact


def conv(shape, width, kernel, groups=1, stride=(1, 1), padding=(0, 0), dilation=(1, 1)):
    def exact(x, w):
        x, w = torch.from_numpy(x), torch.from_numpy(w)
        return conv2d(x, w, None, stride, padding, dilation, groups).numpy()

    weight = (width, shape[0] // groups, *kernel)
    return "conv", shape, weight, (groups, stride, padding, dilation), exact


CASES = [
    linear((33,), 150),
    linear((70,), 67),
    linear((63,), 300),
    linear((1001,), 129),
    linear((5, 66), 130),
    linear((37, 65), 131),
    conv((3, 9, 11), 17, (3, 3), padding=(1, 1)),
    conv((5, 12, 7), 9, (3, 2), padding=(2, 0), stride=(2, 1), dilation=(1, 2)),
    conv((16, 8, 8), 33, (5, 5), stride=(4, 3), padding=(2, 2)),
    conv((130, 5, 5), 66, (1, 1), stride=(2, 2)),
    conv((67, 6, 6), 70, (1, 1)),
    conv((21, 7, 7), 27, (3, 3), groups=3, padding=(1, 1)),
    conv((64, 40, 40), 64, (1, 1), stride=(5, 5)),
    conv((130, 1, 1), 270, (1, 1), groups=2),
    conv((54, 1, 1), 90, (3, 3), groups=3, padding=(1, 1)),
    conv((10, 30, 33), 20, (3, 3), groups=2, padding=(1, 2)),
]
TITLES = [f"{c[0]}-{'x'.join(map(str, (*c[1], *c[2])))}" for c in CASES]
ROWS = (1, 2, 3, 17)


@pytest.mark.parametrize("lowest", [0, -100])
@pytest.mark.parametrize("case", CASES, ids=TITLES)
def test_integers_are_multiplied_exactly(eight, case, lowest):
    """Each example has a unit of its own, a power of two; then 8 bits lose nothing."""
    name, shape, weight, fields, exact = case
    made = np.random.default_rng(0)
    w = made.integers(-127, 128, weight)
    w.reshape(len(w), -1)[:, 0] = 127  # the unit of a row is 1
    bias = made.integers(-9, 10, weight[0]).astype(np.float32)
    engine = opened(eight, name, shape, w.astype(np.float32), fields, bias)
    assert layers(engine) == 1
    for rows in ROWS:
        x = made.integers(lowest, lowest + 256, (rows, *shape))
        ends = x.reshape(rows, -1) if name == "conv" else x.reshape(-1, shape[-1])
        ends[:, 0], ends[:, 1] = lowest, lowest + 255
        unit = (2.0 ** np.arange(rows)).reshape(-1, *(1 for _ in shape))
        found = outputs(engine, (x * unit).astype(np.float32))
        wanted = exact(x.astype(np.float64), w.astype(np.float64))
        unit = unit.reshape(-1, *(1 for _ in wanted.shape[1:]))
        sides = [1] * wanted.ndim
        sides[-1 if name == "linear" else 1] = -1
        shifted = np.float32(wanted) * np.float32(unit) + bias.reshape(sides)
        np.testing.assert_allclose(found, shifted, rtol=2e-7)


@pytest.mark.parametrize("case", CASES, ids=TITLES)
def test_errors_are_within_half_a_unit_of_inputs_and_weights(eight, case):
    """|y8 - y| <= (s |w|_1 + t |x|_1 + s t n / 2) / 2, with units s of inputs and t of weights.

    Rounding is to the nearest, so that where all weights are positive errors have no sign.
    """
    name, shape, weight, fields, exact = case
    made = np.random.default_rng(1)
    w = made.normal(size=weight).astype(np.float32)
    w[::2] = np.abs(w[::2])
    x = made.normal(0.3, size=(20, *shape)).astype(np.float32)
    own = x.reshape(20, -1)
    if name == "linear" and len(shape) > 1 and shape[0] < 16:  # a unit for every row of inputs
        own = x.reshape(20, shape[0], -1)
    unit = (own.max(-1) - own.min(-1)) / 255
    s = np.asarray(unit).reshape(*unit.shape, *(1 for _ in range(len(shape) + 1 - unit.ndim)))
    t = np.abs(w.reshape(len(w), -1)).max(1) / 127
    t = t if name == "linear" else t[:, None, None]
    ones = np.ones_like(x, dtype=np.float64)
    a, b, n = (exact(p.astype(np.float64), q.astype(np.float64)) for p, q in (
        (ones, np.abs(w)), (np.abs(x), np.ones_like(w)), (ones, np.ones_like(w))))  # fmt: skip
    bound = (s * a + t * b + s * t * n / 2) / 2
    engine = opened(eight, name, shape, w, fields)
    wanted = exact(x.astype(np.float64), w.astype(np.float64))
    found = outputs(engine, x) - wanted
    error = np.abs(found)
    assert (error <= bound * 1.0001 + 1e-5).all()
    assert (error / bound).max() > 0.001
    positive = (found / bound)[:, ::2] if name == "conv" else (found / bound)[..., ::2]
    assert abs(positive.mean()) < 0.05
    plain = outputs(opened(eight, name, shape, w, fields, int8=False), x)
    assert np.abs(plain - wanted).max() < 1e-3 * np.abs(wanted).max() < error.max() * 10


def test_an_example_is_answered_as_if_alone(eight):
    """Units are those of an example: what is in others does not matter."""
    w = np.random.default_rng(2).normal(size=(40, 30)).astype(np.float32)
    engine = opened(eight, "linear", (30,), w)
    x = np.random.default_rng(3).normal(size=(16, 30)).astype(np.float32)
    among_large = np.vstack([x[:5], 1e6 * x[5:]])
    assert (outputs(engine, x)[:5] == outputs(engine, among_large)[:5]).all()


@pytest.mark.parametrize(("name", "shape", "weight", "fields"), [
    ("linear", (6,), (3, 6), ()),
    ("linear", (1000,), (1, 1000), ()),
    ("linear", (33000,), (20, 33000), ()),
    ("conv", (1, 9, 9), (20, 1, 3, 3), (1, (1, 1), (1, 1), (1, 1))),
    ("conv", (32, 9, 9), (32, 1, 3, 3), (32, (1, 1), (1, 1), (1, 1))),
    ("conv", (64, 9, 9), (4, 64, 1, 1), (1, (1, 1), (0, 0), (1, 1))),
])  # fmt: skip
def test_layers_that_gain_nothing_are_floats(eight, name, shape, weight, fields):
    """Few outputs, one channel; and 8 bits of so many inputs could go beyond 32."""
    made = np.random.default_rng(0)
    w, x = made.normal(size=weight), made.normal(size=(3, *shape))
    one, other = (opened(eight, name, shape, w, fields, int8=on) for on in (False, True))
    assert layers(other) == 0
    assert (outputs(one, x) == outputs(other, x)).all()


def test_sparse_layers_are_floats(eight):
    w = np.random.default_rng(0).normal(size=(64, 16, 3, 3))
    w[np.random.default_rng(1).random(w.shape) > 0.1] = 0
    fields = (1, (1, 1), (1, 1), (1, 1))
    assert layers(opened(eight, "conv", (16, 9, 9), w, fields)) == 0
    assert layers(opened(eight, "conv", (16, 9, 9), w + 1, fields)) == 1


def test_a_processor_without_the_instruction_answers_in_float(tmp_path):
    made = np.random.default_rng(0)
    library = compiled(tmp_path, "-O1", "-march=native", "-DPOCKET_NO_INT8")
    w, x = made.normal(size=(128, 128)), made.normal(size=(3, 128))
    one, other = (opened(library, "linear", (128,), w, int8=on) for on in (False, True))
    assert layers(one) == layers(other) == 0
    assert (outputs(one, x) == outputs(other, x)).all()


@pytest.mark.parametrize("shape", [(64,), (64, 9, 9)])
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_not_finite_stays_so(eight, shape, wrong):
    """Within a network: 1e30 squared, and that less itself; and weights that are none."""
    name, size = ("linear", (64, 64)) if len(shape) == 1 else ("conv", (64, 64, 1, 1))
    fields = () if name == "linear" else (1, (1, 1), (1, 1), (1, 1))
    w = np.random.default_rng(0).normal(size=size)
    operations = [Operation("multiply", (Buffer(0), Buffer(0)))]
    if np.isnan(wrong):
        operations.append(Operation("subtract", (Buffer(1), Buffer(1))))
    operations.append(Operation(name, (Buffer(len(operations)), Weight(0), None, *fields)))
    program = encoded(Program((Input(0, shape),), tuple(operations), Buffer(len(operations))))
    engine = engine_of_program(eight, program, {0: w}, draws=0, moments=False, int8=True)
    assert layers(engine) == 1
    x = np.ones((20, *shape))
    assert np.isfinite(outputs(engine, x)).all()
    x[17].flat[5] = 1e30
    for rows in (x, x[17:]):
        with pytest.raises(EngineError, match=f"row {17 if len(rows) > 3 else 0} is not finite"):
            outputs(engine, rows)
    w[3].flat[7] = wrong
    with pytest.raises(EngineError, match="row 0 is not finite"):
        outputs(opened(eight, name, shape, w, fields), np.ones((1, *shape)))


def test_inputs_that_are_all_the_same(eight):
    w = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    engine = opened(eight, "linear", (64,), w)
    for value in (0, 1, -3, 1e-38, -1e-42, 1e30):
        x = np.full((2, 64), value, np.float32)
        np.testing.assert_allclose(
            outputs(engine, x), x @ w.T, atol=0.04 * abs(value) * 64 + 1e-30, rtol=0
        )
