"""Programs as bytes: what is read is what was written, and nothing hostile gets through."""

import random
import struct
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketbayes.errors import FormatError
from pocketbayes.programs import (
    Buffer,
    Input,
    Operation,
    Place,
    Program,
    Weight,
    decoded,
    encoded,
    planned,
    run,
)
from pocketbayes.programs.bytecode import LONGEST
from pocketbayes.programs.interpreter import FUNCTIONS
from pocketbayes.programs.operators import OPERATORS
from pocketbayes.programs.shapes import SHAPES

B, W = Buffer, Weight
# Small, and of many kinds: a convolution, a norm, pooling, a recurrence, attention.
SHAPES_OF_WEIGHTS = [(4, 2, 3, 3), (4,), (3, 8), (12, 3), (12, 3), (12,), (5, 3)]
PROGRAM = Program(
    (Input(0, (2, 6, 8)), Input(1, (2,))),
    (
        Operation("conv", (B(0), W(0), W(1), 1, (1, 1), (1, 1), (1, 1))),
        Operation("norm", (B(2), None, W(1), W(1), W(1), 0.125)),
        Operation("relu", (B(3),)),
        Operation("max_pool", (B(4), (2, 2), (2, 2), (0, 0), (1, 1), 0)),
        Operation("mean", (B(5), (1,), 0)),
        Operation("reshape", (B(6), (2, 8))),
        Operation("linear", (B(7), W(2), None)),
        Operation("embedding", (B(1), W(6))),
        Operation("concat", ((B(8), B(9)), 0)),
        Operation("lstm", (B(10), W(3), W(4), W(5), None, 1)),
        Operation("attention", (B(11), B(11), B(11), None, 1, 0.5)),
        Operation("constant", ((3,), (1.0, -2.0, 0.5))),
        Operation("multiply", (B(12), B(13))),
        Operation("slice", (B(14), 0, 1, 2, 2)),
        Operation("affine", (B(15), 2.0, -1.0)),
    ),
    B(16),
    (Place(B(2), 0), Place(B(7), 1)),
)
DATA = encoded(PROGRAM)


def weights():
    made = np.random.default_rng(0)
    return {i: made.random(shape, np.float32) for i, shape in enumerate(SHAPES_OF_WEIGHTS)}


def outputs(program):
    made = np.random.default_rng(1)
    given = [made.random(i.shape, np.float32) if i.kind == 0 else np.ones(i.shape, np.float32)
             for i in program.inputs]  # fmt: skip
    return run(program, weights(), *given)


def test_every_operation_has_a_rule_and_a_function():
    assert OPERATORS.keys() == SHAPES.keys() == FUNCTIONS.keys()
    assert len({operator.code for operator in OPERATORS.values()}) == len(OPERATORS)
    assert all(set(operator.fields) <= set("nlrRxXywv") for operator in OPERATORS.values())


def test_the_format_page_has_the_table_of_operations(pytestconfig):
    page = (pytestconfig.rootpath / "docs" / "format.md").read_text()
    told = {}
    for line in page.partition("## Program")[2].partition("\n## ")[0].splitlines():
        cells = [cell.strip() for cell in line.replace("\\|", "").split("|")]
        if len(cells) > 4 and cells[1][:1].isdigit():
            first, _, last = cells[1].replace(", ", "-").partition("-")
            codes = range(int(first), int(last or first) + 1)
            names = cells[2].split(", ")
            assert len(codes) == len(names), line
            told |= {
                n: (c, cells[3].strip("`").replace(" ", ""))
                for c, n in zip(codes, names, strict=True)
            }
    assert told == dict(OPERATORS)


def test_a_program_comes_back():
    assert decoded(DATA) == PROGRAM
    assert encoded(decoded(DATA)) == DATA


def test_shapes_are_those_of_the_reference():
    plan = planned(PROGRAM, SHAPES_OF_WEIGHTS)
    found = outputs(PROGRAM)
    assert plan.shapes[PROGRAM.output.number] == found.output.shape == (2, 3)
    assert [plan.shapes[p.operand.number] for p in PROGRAM.places] == [
        p.shape for p in found.places
    ]
    assert plan.work > 4 * 6 * 8 * 2 * 9


def test_known_bytes_of_a_small_program():
    """As the page says: version, inputs, operations, output, places."""
    program = Program(
        (Input(0, (300,)),),
        (Operation("linear", (B(0), W(1), W(0))), Operation("relu", (B(1),))),
        B(2),
    )
    known = [1, 1, 0, 1, 0xAC, 0x02, 2, 1, 2, 3, 1, 40, 2, 2, 0]
    assert encoded(program) == bytes(known)


def read_and_run(data):
    """None: it was refused; else the program was run."""
    try:
        program = decoded(data)
        assert encoded(program) == bytes(data)  # there is one way to write a program
        planned(program, SHAPES_OF_WEIGHTS)
    except FormatError:
        return None
    try:
        with np.errstate(all="ignore"):
            return outputs(program)
    except FormatError as error:
        assert "embedding" in str(error)  # the one rule about values  # noqa: PT017
        return None


@settings(max_examples=300, deadline=None)
@given(place=st.integers(0, len(DATA) - 1), value=st.integers(0, 255))
def test_other_bytes_are_refused_or_another_program(place, value):
    read_and_run(DATA[:place] + bytes([value]) + DATA[place + 1 :])


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_refused_or_a_program(data):
    read_and_run(data)
    read_and_run(b"\1\1\0\1\6" + data)


def test_nothing_hostile_takes_much_memory_or_time():
    chance, seen = random.Random(0), 0
    tracemalloc.start()
    for _ in range(1000):
        data = bytearray(DATA)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.choice(
                [0, 1, 127, 128, 255, chance.randrange(256)]
            )
        try:
            planned(decoded(data), SHAPES_OF_WEIGHTS)
            seen += 1
        except FormatError:
            pass
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()
    assert 0 < seen < 1000


def test_every_prefix_is_refused():
    for size in range(len(DATA)):
        with pytest.raises(FormatError):
            decoded(DATA[:size])
    with pytest.raises(FormatError, match="follows"):
        decoded(DATA + b"\0")


HEAD = b"\1\1\0\1\6"  # one input of six reals


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cut short"),
        (b"\2" + DATA[1:], "version 2"),
        (b"\1\0\0\2\0", "inputs"),
        (b"\1\21" + b"\0\1\6" * 17 + b"\0\2\0", "inputs"),
        (b"\1\1\2\1\6\0\2\0", "none of"),
        (b"\1\1\0\x09" + b"\1" * 9 + b"\0\2\0", "integers of a list"),
        (b"\1\1\0\1\x86\0\0\2\0", "more bytes than it needs"),
        (b"\1\1\0\1\xff\xff\xff\xff\x08\0\2\0", "more than 31 bits"),
        (b"\1\1\0\1" + b"\xff" * 20, "more than 31 bits"),
        (HEAD + b"\x81\x80\x01", "operations"),
        (HEAD + b"\1\x63\2\2\0", "operation 99"),
        (HEAD + b"\1\x28\0\2\0", "operand is missing"),
        (HEAD + b"\1\x28\4\2\0", "not there yet"),
        (HEAD + b"\1\1\2\2\0\2\0", "must be a weight"),
        (HEAD + b"\1\x11\2" + struct.pack("<ff", float("nan"), 0) + b"\2\0", "not finite"),
        (HEAD + b"\1\x11\2" + struct.pack("<ff", 1, float("inf")) + b"\2\0", "not finite"),
        (HEAD + b"\1\x12\0\0\2\0", "operands"),
        (HEAD + b"\1\x20\1\6\x81\x08" + b"\0" * 4 * 1025 + b"\2\0", "numbers"),
        (HEAD + b"\0\1\0", "no buffer"),
        (HEAD + b"\0\2\1\2\2", "none of"),
        (b"\1" * (LONGEST + 1), "bytes"),
    ],
)
def test_hostile_bytes_are_refused(data, message):
    with pytest.raises(FormatError, match=message):
        decoded(data)


def of(name, *fields, shape=(4, 6, 8), second=None):
    inputs = (Input(0, shape),) + (() if second is None else (Input(0, second),))
    return Program(inputs, (Operation(name, fields),), B(len(inputs)))


FITTING_NOTHING = [
    of("linear", B(0), W(2), None, shape=(7,)),
    of("linear", B(0), W(2), None, shape=()),
    of("linear", B(0), W(2), W(1), shape=(8,)),
    of("linear", B(0), W(0), None),
    of("linear", B(0), W(99), None, shape=(8,)),
    of("conv", B(0), W(0), None, 1, (1, 1), (0, 0), (1, 1), shape=(3, 6, 8)),
    of("conv", B(0), W(0), None, 0, (1, 1), (0, 0), (1, 1)),
    of("conv", B(0), W(0), None, 3, (1, 1), (0, 0), (1, 1)),
    of("conv", B(0), W(0), None, 2, (0, 1), (0, 0), (1, 1)),
    of("conv", B(0), W(0), None, 2, (1,), (0,), (1,)),
    of("conv", B(0), W(0), None, 2, (1, 1), (0, 0), (1, 9)),
    of("conv", B(0), W(1), None, 2, (1, 1), (0, 0), (1, 1)),
    of("norm", B(0), None, None, W(1), W(1), 0.1, shape=(5, 2)),
    of("norm", B(0), None, None, W(1), W(1), 0.1, shape=()),
    of("norm", B(0), None, None, W(1), W(1), -0.1),
    of("layer_norm", B(0), None, None, 4, 0.1),
    of("layer_norm", B(0), None, None, 0, 0.1),
    of("layer_norm", B(0), W(1), None, 1, 0.1),
    of("group_norm", B(0), None, None, 3, 0.1),
    of("group_norm", B(0), None, None, 0, 0.1),
    of("embedding", B(0), W(1)),
    of("lstm", B(0), W(3), W(4), None, None, 2, shape=(5, 3)),
    of("lstm", B(0), W(3), W(4), None, None, 0, shape=(5, 4)),
    of("lstm", B(0), W(3), W(1), None, None, 0, shape=(5, 3)),
    of("gru", B(0), W(3), W(4), None, None, 0, shape=(5, 3)),
    of("attention", B(0), B(0), B(0), None, 2, 1.0),
    of("attention", B(0), B(0), B(0), W(1), 0, 1.0),
    of("attention", B(0), B(0), B(1), None, 0, 1.0, second=(4, 5, 8)),
    of("attention", B(0), B(0), B(0), None, 0, 1.0, shape=(4,)),
    of("matmul", B(0), B(0)),
    of("matmul", B(0), W(1)),
    of("add", B(0), B(1), second=(3,)),
    of("concat", (B(0), B(1)), 0, second=(4, 6)),
    of("concat", (B(0), B(1)), 0, second=(4, 6, 7)),
    of("concat", (B(0),), 3),
    of("reshape", B(0), (191,)),
    of("reshape", B(0), (192, 0)),
    of("permute", B(0), (0, 1)),
    of("permute", B(0), (0, 1, 1)),
    of("slice", B(0), 3, 0, 1, 1),
    of("slice", B(0), 1, 0, 1, 7),
    of("slice", B(0), 1, 0, 0, 1),
    of("slice", B(0), 1, 0, 1, 0),
    of("slice", B(0), 1, 1, 3, 3),
    of("pad", B(0), 3, 1, 1),
    of("pad", B(0), 0, 2**31 - 1, 2**31 - 1),
    of("expand", B(0), (4, 6, 9)),
    of("expand", B(0), (6, 8)),
    of("max_pool", B(0), (2, 2), (2, 2), (2, 0), (1, 1), 0),
    of("max_pool", B(0), (2, 2), (2, 2), (0, 0), (1, 1), 2),
    of("max_pool", B(0), (9, 9), (2, 2), (0, 0), (1, 1), 0),
    of("max_pool", B(0), (), (), (), (), 0),
    of("max_pool", B(0), (2**31 - 1,), (1,), (2**30 - 1,), (1,), 0),
    of("conv", B(0), W(0), None, 2, (2**28, 2**28), (2**30, 2**30), (1, 1)),
    of("attention", B(0), B(0), B(0), None, 0, 1.0, shape=(2**14, 1)),
    of("max_pool", B(0), (2, 2), (2,), (0, 0), (1, 1), 0),
    of("avg_pool", B(0), (2, 2), (2, 2), (0, 0), 0, 2),
    of("adaptive_avg_pool", B(0), (0,)),
    of("adaptive_avg_pool", B(0), ()),
    of("mean", B(0), (), 0),
    of("mean", B(0), (1, 0), 0),
    of("mean", B(0), (1, 1), 0),
    of("sum", B(0), (3,), 0),
    of("amax", B(0), (0,), 2),
    of("softmax", B(0), 3),
    of("constant", (3,), (1.0,)),
    of("dropout", B(0), 1.5, 0),
    of("dropout", B(0), -0.5, 0),
    of("dropout", B(0), 0.5, 2),
    of("upsample", B(0), (0,)),
    of("upsample", B(0), ()),
    of("upsample", B(0), (2**20, 2**20)),
    of("prelu", B(0), W(2)),
    of("relu", B(0), shape=(0, 4)),
    of("relu", B(0), shape=(2**14, 2**13)),
]


@pytest.mark.parametrize("program", FITTING_NOTHING, ids=lambda p: p.operations[0].name)
def test_operands_that_do_not_fit_are_refused(program):
    program = decoded(encoded(program))
    with pytest.raises(FormatError, match=r"operation 0|input 0"):
        planned(program, SHAPES_OF_WEIGHTS)


def test_work_and_memory_have_bounds():
    wide = Operation("expand", (W(1), (2**24, 4)))
    many = tuple(wide for _ in range(33))
    with pytest.raises(FormatError, match=r"operation 31 \(expand\).*memory or work"):
        planned(Program((Input(0, ()),), many, B(1)), [(4,), (4,)])
    side = Operation("expand", (W(0), (2**13, 2**13)))
    steps = side, *(Operation("matmul", (B(1), B(1))) for _ in range(8))
    planned(Program((Input(0, ()),), steps[:8], B(2)), [(1,)])
    with pytest.raises(FormatError, match="memory or work"):
        planned(Program((Input(0, ()),), steps, B(2)), [(1,)])


def test_empty_weights_are_refused_and_divide_nothing():
    program = of("lstm", B(0), W(0), W(1), None, None, 0, shape=(5, 3))
    with pytest.raises(FormatError, match="size 0"):
        planned(program, [(0, 3), (0, 0)])


def test_an_index_outside_of_a_table_is_refused():
    program = of("embedding", B(0), W(0), shape=(2,))
    for bad in (-1.0, 5.0):
        with pytest.raises(FormatError, match="rows of an embedding"):
            run(program, {0: np.ones((5, 3), np.float32)}, np.array([0, bad], np.float32))


def test_inputs_of_another_shape_are_refused():
    with pytest.raises(FormatError, match="input 0 has shape"):
        run(of("relu", B(0)), {}, np.ones((4, 6), np.float32))


def test_programs_need_no_torch():
    code = "import sys, pocketbayes.programs; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
