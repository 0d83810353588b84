"""Programs in the engine: the golden ones, every operation, and nothing hostile."""

import ctypes as ct
import json
import random
import sys

import numpy as np
import pytest
from built import EngineError, described, engine_of, engine_of_program, file_of, program_in
from program_models import GOLDEN, KNOWN, NAMES, network

import pocketbayes as pb
from pocketbayes.errors import FormatError
from pocketbayes.programs import (
    Buffer,
    Input,
    Operation,
    Program,
    Weight,
    decoded,
    encoded,
    planned,
    run,
)
from pocketbayes.programs.operators import OPERATORS

sys.path.insert(0, str(GOLDEN.parent / "programs"))
from test_bytecode import DATA, FITTING_NOTHING, HEAD, SHAPES_OF_WEIGHTS

B, W = Buffer, Weight


@pytest.mark.parametrize("name", NAMES)
def test_golden_programs_give_their_outputs(library, name):
    known = json.loads(KNOWN.read_text())[name]
    path = GOLDEN / f"program-{name}.pocket"
    model = pb.load(path, network(name))
    engine = engine_of(library, model, program_in(path))
    x, expected = np.array(known["input"], np.float32), np.array(known["mean_outputs"])
    for rows in (1, len(x), 24):  # one by one, few, and many at once
        repeated = np.resize(x, (rows, *x.shape[1:]))
        found = engine.predict(repeated)["outputs"]
        wanted = np.resize(expected.mean(0), (rows, *expected.shape[2:]))
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def op(name, *fields, shape=(4, 6, 8), second=None, weights=(), kind=0):
    inputs = (Input(kind, shape),) + (() if second is None else (Input(0, second),))
    return Program(inputs, (Operation(name, fields),), B(len(inputs))), weights


X, Y = B(0), B(1)
VECTORS = [(6,), (6,), (6,), (6,)]
CASES = [
    op("linear", X, W(0), W(1), shape=(7,), weights=[(5, 7), (5,)]),
    op("linear", X, W(0), None, shape=(3, 20, 7), weights=[(33, 7)]),
    op("linear", X, W(0), None, shape=(70,), weights=[(130, 70)]),
    op("conv", X, W(0), W(1), 1, (1, 1), (1, 1), (1, 1), weights=[(5, 4, 3, 3), (5,)]),
    op("conv", X, W(0), None, 2, (2, 3), (2, 1), (1, 2), shape=(4, 9, 11), weights=[(6, 2, 3, 2)]),
    op("conv", X, W(0), None, 4, (1, 1), (1, 1), (1, 1), weights=[(4, 1, 3, 3)]),
    op("conv", X, W(0), None, 1, (2, 2), (0, 0), (1, 1), weights=[(18, 4, 1, 1)]),
    op("conv", X, W(0), None, 1, (3,), (2,), (2,), shape=(4, 29), weights=[(6, 4, 3)]),
    op("conv", X, W(0), None, 1, (1, 1), (1, 1), (1, 1), shape=(3, 32, 32), weights=[(7, 3, 3, 3)]),
    op("norm", X, W(0), W(1), W(2), W(3), 1e-3, shape=(6, 3, 2), weights=VECTORS),
    op("norm", X, None, None, W(0), W(1), 1e-3, shape=(6,), weights=VECTORS[:2]),
    op("layer_norm", X, W(0), W(1), 2, 1e-3, weights=[(6, 8), (6, 8)]),
    op("group_norm", X, W(0), None, 2, 1e-3, weights=[(4,)]),
    op("embedding", X, W(0), shape=(5,), weights=[(9, 4)], kind=1),
    op("lstm", X, W(0), W(1), W(2), W(3), 0, shape=(5, 3),
       weights=[(16, 3), (16, 4), (16,), (16,)]),
    op("lstm", X, W(0), W(1), None, None, 1, shape=(5, 3), weights=[(16, 3), (16, 4)]),
    op("gru", X, W(0), W(1), W(2), W(3), 1, shape=(5, 3), weights=[(12, 3), (12, 4), (12,), (12,)]),
    op("attention", X, X, X, None, 1, 0.4),
    op("attention", X, Y, Y, None, 0, 0.4, second=(4, 5, 8)),
    op("attention", X, X, X, W(0), 0, 0.4, weights=[(6, 6)]),
    op("attention", X, X, X, W(0), 0, 0.4, shape=(2, 3, 6, 8), weights=[(3, 1, 6)]),
    op("matmul", X, Y, second=(8, 70)),
    op("matmul", X, Y, shape=(3, 1, 6, 8), second=(4, 8, 2)),
    *(op(n, X, Y, second=s) for n in ("add", "subtract", "multiply", "divide", "maximum", "minimum")
      for s in ((4, 6, 8), (6, 1), (1, 6, 8), ())),
    op("add", X, W(0), shape=(1, 6, 1), weights=[(3, 1, 5)]),
    op("affine", X, 2.5, -0.5),
    op("concat", (X, Y, X, W(0)), 1, second=(4, 2, 8), weights=[(4, 1, 8)]),
    op("reshape", X, (8, 24)),
    op("reshape", W(0), (8, 3), weights=[(4, 6)]),
    op("permute", X, (2, 0, 1)),
    op("permute", X, (1, 0, 2)),
    op("slice", X, 2, 1, 3, 2),
    op("slice", X, 0, 1, 1, 2),
    op("pad", X, 1, 2, 3),
    op("pad", X, 2, 0, 1),
    op("expand", X, (5, 4, 3, 8), shape=(4, 1, 8)),
    op("max_pool", X, (2, 3), (2, 1), (1, 1), (1, 2), 0),
    op("max_pool", X, (3, 3), (2, 2), (1, 0), (1, 1), 1, shape=(4, 6, 10)),
    op("max_pool", X, (3,), (2,), (1,), (1,), 1),
    op("avg_pool", X, (3, 3), (2, 2), (1, 1), 0, 1),
    op("avg_pool", X, (3, 2), (2, 2), (1, 0), 1, 0, shape=(4, 6, 9)),
    op("avg_pool", X, (3, 3), (2, 2), (1, 1), 1, 1, shape=(4, 6, 9)),
    op("adaptive_avg_pool", X, (4, 3)),
    *(op(n, X, a, k) for n in ("mean", "sum", "amax")
      for a, k in (((1, 2), 0), ((0, 2), 1), ((1,), 0))),
    *(op(n, X, a) for n in ("softmax", "log_softmax") for a in (0, 1, 2)),
    op("constant", (2, 3), (1.0, 2.0, 3.0, 4.0, 5.0, 6.5)),
    op("dropout", X, 0.3, 0),
    op("upsample", X, (2, 3)),
    op("prelu", X, W(0), weights=[(4,)]),
    op("prelu", X, W(0), weights=[(1,)]),
    *(op(n, X) for n in (
        "relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", "softplus", "exp", "log", "sqrt",
        "abs", "hardswish", "hardsigmoid")),
    op("leaky_relu", X, 0.1),
    op("elu", X, 0.7),
    op("clamp", X, -0.5, 1.0),
]  # fmt: skip


def test_every_operation_has_a_case():
    assert {program.operations[0].name for program, _ in CASES} == set(OPERATORS)


@pytest.mark.parametrize("rows", [1, 19])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0].operations[0].name)
def test_every_operation_is_that_of_the_reference(library, case, rows):
    program, shapes = case
    name, made = program.operations[0].name, np.random.default_rng(0)
    is_positive = name in ("log", "sqrt", "norm")
    arrays = {i: made.normal(size=s).astype(np.float32) for i, s in enumerate(shapes)}
    if is_positive:
        arrays = {i: abs(a) + 0.1 for i, a in arrays.items()}
    inputs = []
    for given in program.inputs:
        shape = (rows, *given.shape)
        x = made.integers(0, 9, shape) if given.kind else 2 * made.normal(size=shape)
        inputs.append((abs(x) + 0.1 if is_positive else x).astype(np.float32))
    found = engine_of_program(library, encoded(program), arrays).predict(*inputs)["outputs"]
    for row in range(rows):
        expected = run(program, arrays, *(x[row] for x in inputs)).output
        scale = max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(found[row], expected, atol=2e-6 * scale)


@pytest.mark.parametrize("rows", [2, 16])
def test_an_index_outside_of_a_table_is_refused(library, rows):
    program, _ = op("embedding", X, W(0), shape=(2,))
    engine = engine_of_program(library, encoded(program), {0: np.ones((5, 3), np.float32)})
    for bad in (-1.0, 5.0):
        with pytest.raises(EngineError, match="rows of an embedding"):
            engine.predict(np.full((rows, 2), bad, np.float32))


def verdicts(library, data, shapes):
    """What both say: None or an error."""
    kept = []
    weights = [described(f"w{i:02}", s, np.zeros(1), kept) for i, s in enumerate(shapes)]
    file, error = file_of(weights, bytes(data)), ct.create_string_buffer(256)
    refused = library.pocket_check(
        bytes(data), ct.c_size_t(len(data)), file.weights, len(shapes), error
    )
    try:
        planned(decoded(data), shapes)
        ours = None
    except FormatError as wrong:
        ours = str(wrong)
    return ours, error.value.decode() if refused else None


def assert_same_verdict(library, data, shapes=SHAPES_OF_WEIGHTS):
    ours, theirs = verdicts(library, data, shapes)
    assert (ours is None) == (theirs is None), (ours, theirs)
    return ours is None


def test_what_fits_nothing_is_refused(library):
    for program in FITTING_NOTHING:
        data = encoded(program)
        assert not assert_same_verdict(library, data)
        named = program.operations[0].name
        assert named in (told := verdicts(library, data, SHAPES_OF_WEIGHTS)[1]) or "input 0" in told


def test_other_bytes_get_the_same_verdict(library):
    chance, seen = random.Random(0), 0
    for _ in range(4000):
        data = bytearray(DATA)
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(len(data))] = chance.choice(
                [0, 1, 127, 255, chance.randrange(256)]
            )
        seen += assert_same_verdict(library, data)
    assert 0 < seen < 4000
    for size in range(len(DATA)):
        assert not assert_same_verdict(library, DATA[:size])
    for _ in range(1000):
        assert_same_verdict(library, HEAD + chance.randbytes(chance.randrange(60)))


def test_unknown_operations_and_versions_are_named(library):
    assert "operation 99" in verdicts(library, HEAD + b"\1\x63\2\2\0", [])[1]
    assert "version" in verdicts(library, b"\2" + DATA[1:], SHAPES_OF_WEIGHTS)[1]


def test_work_and_memory_have_bounds(library):
    wide = Operation("expand", (W(1), (2**24, 4)))
    many = encoded(Program((Input(0, ()),), (wide,) * 33, B(1)))
    assert not assert_same_verdict(library, many, [(4,), (4,)])
    side = Operation("expand", (W(0), (2**13, 2**13)))
    steps = side, *(Operation("matmul", (B(1), B(1))) for _ in range(8))
    assert assert_same_verdict(library, encoded(Program((Input(0, ()),), steps[:8], B(2))), [(1,)])
    assert not assert_same_verdict(library, encoded(Program((Input(0, ()),), steps, B(2))), [(1,)])


def test_a_mutated_program_that_fits_runs_as_the_reference_does(library):
    """Also under sanitizers: nothing that is read or written lies outside."""
    chance, made, ran = random.Random(1), np.random.default_rng(0), 0
    arrays = {i: made.random(s, np.float32) for i, s in enumerate(SHAPES_OF_WEIGHTS)}
    while ran < 60:
        data = bytearray(DATA)
        for _ in range(chance.randint(1, 2)):
            data[chance.randrange(len(data))] = chance.randrange(80)
        try:
            program = decoded(data)
            if planned(program, SHAPES_OF_WEIGHTS).work > 10**6:
                continue
        except FormatError:
            continue
        ran += 1
        given = [np.ones((5, *i.shape), np.float32) for i in program.inputs]
        try:
            with np.errstate(all="ignore"):
                expected = run(program, arrays, *(x[0] for x in given)).output
        except FormatError:
            continue
        if program.places:
            program = Program(*list(vars(program).values())[:3], ())
        found = engine_of_program(library, encoded(program), arrays).predict(*given)["outputs"]
        np.testing.assert_allclose(found[3], expected, rtol=1e-4, atol=1e-4)
