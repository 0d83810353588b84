"""C for a microcontroller: compiled here and for a Cortex-M4, its answers are those of predict."""

import ctypes
import json
import math
import re
import shutil
import subprocess

import numpy as np
import pytest
import torch
from program_models import GOLDEN, KNOWN, network
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.codec import as_stored
from pocketbayes.deploy import c_exporting
from pocketbayes.deploy.c_models import c_model
from pocketbayes.deploy.c_running import answers_of
from pocketbayes.deploy.plans import planned
from pocketbayes.layers import Ensemble, describe, named_posteriors, update_description
from pocketbayes.models import lenet5
from pocketbayes.models.residual import BasicBlock, padded_shortcut
from pocketbayes.posteriors import as_packed

STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wdouble-promotion", "-Werror"]
SANITISED = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
CORTEX_M4 = ["-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard", "-Os"]
NEAR = 1e-3
GOLDEN_ANSWERS = json.loads((GOLDEN / "answers.json").read_text())["files"]
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
needs_arm = pytest.mark.skipif(
    shutil.which("arm-none-eabi-gcc") is None, reason="there is no arm-none-eabi-gcc"
)
needs_qemu = pytest.mark.skipif(
    shutil.which("qemu-system-arm") is None, reason="there is no qemu-system-arm"
)


@pytest.fixture
def untried(monkeypatch):
    """Exports that are not compiled by themselves: the test does it."""
    for name in ("compared", "measured"):
        monkeypatch.setattr(c_exporting, name, lambda *_: None)


def bayesian(make, std=0.03, **options):
    """With weights that are not all alike, and norms that have seen something."""
    torch.manual_seed(0)
    model = pb.bayesianize_(make(), std_init=std, **options)
    with torch.no_grad():
        for _, posterior in named_posteriors(model):
            posterior.log_std += 0.3 * torch.randn_like(posterior.log_std)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.2)
                module.running_var.uniform_(0.5, 2)
    return model.eval()


def thinned(model, every=12):
    """With one weight of so many left in large tensors."""
    for name, posterior in list(named_posteriors(model)):
        size = math.prod(posterior.shape)
        if size > 200:
            kept = torch.arange(0, size, every)
            pb.replace_posterior(model, name, as_packed(posterior, kept, "none"))
    return model


def inputs(*shape, rows=3):
    return torch.randn(rows, *shape, generator=torch.Generator().manual_seed(1))


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))


def regression(outputs=2):
    return nn.Sequential(nn.Linear(8, 30), nn.Tanh(), nn.Linear(30, outputs))


def small_lenet():
    """As LeNet-5, with other poolings."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3, groups=2),
        nn.BatchNorm2d(6), nn.LeakyReLU(0.1), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(54, 20),
        nn.ReLU6(), nn.Linear(20, 5),
    )  # fmt: skip


class NarrowResNet(nn.Module):
    """ResNet-20 with a quarter of its channels."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        widths = [(4, 4, 1)] * 3 + [(4, 8, 2), (8, 8, 1), (8, 8, 1), (8, 16, 2)] + [(16, 16, 1)] * 2
        blocks = (BasicBlock(a, b, s, padded_shortcut, 0.0) for a, b, s in widths)
        self.blocks, self.last = nn.Sequential(*blocks), nn.Linear(16, 10)

    def forward(self, x):
        return self.last(self.blocks(self.norm(self.first(x)).relu()).mean((2, 3)))


NETWORKS = {
    "mlp": (mlp, (1, 8, 8)),
    "lenet": (small_lenet, (1, 16, 16)),
    "resnet": (lambda: NarrowResNet(), (3, 16, 16)),
    "odd": (
        lambda: nn.Sequential(
            nn.Conv1d(2, 4, 3, stride=2, padding=2, dilation=2), nn.GELU(), nn.BatchNorm1d(4),
            nn.MaxPool1d(3, 2, 1), nn.SiLU(), nn.AdaptiveAvgPool1d(3), nn.Softplus(),
            nn.Hardswish(), nn.ELU(), nn.Hardsigmoid(), nn.Sigmoid(), nn.Flatten(),
            nn.Linear(12, 3),
        ),
        (2, 17),
    ),
}  # fmt: skip


def compiled(path, *flags, name="found.so"):
    """A shared library of the file, without a warning."""
    library = path.with_name(name)
    command = ["cc", *STRICT, "-fPIC", "-shared", *(flags or ["-O0"]), "-o", library, path, "-lm"]
    subprocess.run(command, check=True)
    return library


def answer_type(header, name):
    """The struct that the header declares."""
    body = re.search(rf"typedef struct {name}_answer {{(.*?)}}", header, re.DOTALL).group(1)
    kinds = {"float": ctypes.c_float, "int": ctypes.c_int}
    fields = [
        (key, kinds[kind] * int(n) if n else kinds[kind])
        for kind, key, n in re.findall(r"(\w+) (\w+)(?:\[(\d+)\])?;", body)
    ]
    return type("Answer", (ctypes.Structure,), {"_fields_": fields})


def run(path, x):
    """All answers of a file, row by row."""
    answer = answer_type(path.with_suffix(".h").read_text(), path.stem)()
    predict = getattr(ctypes.CDLL(str(compiled(path))), f"{path.stem}_predict")
    found = []
    for row in x.float().numpy():
        flat = np.ascontiguousarray(row)
        assert predict(ctypes.c_void_p(flat.ctypes.data), ctypes.byref(answer)) == 0
        found.append({key: np.array(getattr(answer, key)) for key, _ in answer._fields_})
    return {key: np.stack([f[key] for f in found]) for key in found[0]}


def farthest(model, found, x, estimator, **options):
    """The largest difference of an answer from that of predict on the model as its file has it."""
    pred = pb.predict(as_stored(model)[0], x, estimator=estimator, **options)
    names = [n for n in found if n not in ("label", "lower", "upper")]
    return max(
        np.abs(found[n] - getattr(pred, n).numpy().reshape(found[n].shape)).max() for n in names
    )


@needs_cc
@pytest.mark.parametrize("estimator", ["mean", "moments"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_answers_are_those_of_predict(untried, tmp_path, name, sparse, estimator):
    make, shape = NETWORKS[name]
    model, x = bayesian(make), inputs(*shape)
    model = thinned(model) if sparse else model
    path = tmp_path / "net.c"
    pb.export(model, path, to="c", example=x, estimator=estimator, exact=True)
    found = run(path, x)
    assert farthest(model, found, x, estimator) < NEAR
    assert (found["label"] == found["probs"].argmax(1)).all()
    assert ("_gap[" in path.read_text()) == (sparse and name != "odd")


@needs_cc
@pytest.mark.parametrize(
    ("name", "estimator"), [(n, e) for n, f in GOLDEN_ANSWERS.items() for e in f["estimators"]]
)
def test_golden_answers(untried, tmp_path, name, estimator):
    """Those of tests/golden/answers.json, as lite and the browser give them."""
    model = pb.load(GOLDEN / f"program-{name}.pocket", network(name))
    x, path = torch.tensor(json.loads(KNOWN.read_text())[name]["input"]), tmp_path / "net.c"
    if describe(model).likelihood in ("poisson", "negative-binomial", "student-t"):
        pytest.skip(f"C has no {describe(model).likelihood}")
    if isinstance(model, Ensemble) or name in ("attentive", "sequential", "mc-dropout"):
        pytest.skip("C has no ensembles, attention, recurrences or dropout that stays on")
    if name == "spike-slab" and estimator == "moments":
        pytest.skip("C has no moments of weights with gates")
    options = {"exact": True, "tolerance": 1e-3}  # that of the file
    pb.export(model, path, to="c", example=x, estimator=estimator, **options)
    expected, found = GOLDEN_ANSWERS[name]["estimators"][estimator], run(path, x)
    for key, values in found.items():
        wanted = np.array(expected[key]).reshape(values.shape)
        np.testing.assert_allclose(values, wanted, atol=NEAR, rtol=NEAR, err_msg=key)


@needs_cc
@pytest.mark.parametrize(("name", "most"), [("mlp", NEAR), ("lenet", NEAR), ("resnet", 2e-2)])
def test_eight_bits_cost_little(tmp_path, name, most):
    make, shape = NETWORKS[name]
    model, x = bayesian(make), inputs(*shape)
    short, long = (
        pb.export(model, tmp_path / "net.c", to="c", example=x, estimator="mean", exact=exact)
        for exact in (False, True)
    )
    assert long.compared < 2e-5
    assert short.compared < most
    assert short.footprint.flash_bytes < 0.6 * long.footprint.flash_bytes
    assert "exact keeps 16" in str(short)


@needs_cc
@pytest.mark.parametrize("estimator", ["mean", "moments"])
@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic", "bernoulli"])
def test_values_and_labels(untried, tmp_path, likelihood, estimator):
    model, x, path = bayesian(regression), inputs(8), tmp_path / "net.c"
    update_description(model, likelihood=likelihood, temperature=1.3)
    if likelihood == "gaussian":
        model.register_parameter("noise_log_std", nn.Parameter(torch.tensor([-1.0, 0.5])))
    if estimator == "moments":
        update_description(model, moments_factor=0.7)
    pb.export(model, path, to="c", example=x, estimator=estimator, exact=True, level=0.8)
    found = run(path, x)
    assert farthest(model, found, x, estimator) < NEAR
    if likelihood != "bernoulli":
        pred = pb.predict(as_stored(model)[0], x, estimator=estimator)
        low, high = pred.interval(0.8)
        np.testing.assert_allclose(found["lower"], low, atol=NEAR)
        np.testing.assert_allclose(found["upper"], high, atol=NEAR)


@needs_cc
@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("part", ["bias", "weight"])
def test_little_is_random(untried, tmp_path, part, number):
    """Only the first bias or weight; one draw is the mean."""
    model, x, path = bayesian(regression, bias=True), inputs(8), tmp_path / "net.c"
    model.register_parameter("noise_log_std", nn.Parameter(torch.zeros(2)))
    update_description(model, likelihood="gaussian")
    with torch.no_grad():
        for name, posterior in named_posteriors(model):
            if name != f"0.{part}":
                posterior.log_std.fill_(-60)
    pb.export(model, path, to="c", example=x, estimator="moments", num_samples=number)
    assert farthest(model, run(path, x), x, "moments", num_samples=number) < 0.02


@needs_cc
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", ["mlp", "lenet"])
def test_one_pass_is_the_default_of_a_model_with_a_head(untried, tmp_path, name, sparse):
    make, shape = NETWORKS[name]
    model, x, path = bayesian(make, estimator="weight"), inputs(*shape), tmp_path / "net.c"
    model = thinned(model, 5) if sparse else model
    data = TensorDataset(inputs(*shape, rows=120), torch.arange(120) % 5)
    with pytest.warns(UserWarning, match="ever trained"):
        pb.distill_(model, DataLoader(data, 60), epochs=2)
    record = pb.export(model, path, to="c", example=x, exact=True)
    assert record.estimator == "one_pass"
    assert farthest(model, run(path, x), x, "one_pass") < NEAR


@needs_cc
@pytest.mark.parametrize("name", ["lenet", "odd"])
def test_no_undefined_behaviour(untried, tmp_path, name):
    """In a program of its own: the sanitisers want to be there from the start."""
    make, shape = NETWORKS[name]
    model, x, path = thinned(bayesian(make), 5), inputs(*shape), tmp_path / "net.c"
    pb.export(model, path, to="c", example=x, estimator="moments")
    numbers = ", ".join(f"{v:.9g}f" if "e" in f"{v:.9g}" or "." in f"{v:.9g}" else f"{v:.1f}f"
                        for v in x[0].flatten().tolist())  # fmt: skip
    main = tmp_path / "main.c"
    main.write_text(
        f'#include "net.h"\n#include <stdlib.h>\n#include <string.h>\n'
        f"static const float x[] = {{{numbers}}};\n"
        "int main(void)\n{\n    float *own = malloc(sizeof x);\n"
        "    net_answer *answer = malloc(sizeof *answer);\n    memcpy(own, x, sizeof x);\n"
        "    int wrong = net_predict(own, answer);\n    free(own);\n    free(answer);\n"
        "    return wrong;\n}\n"
    )
    program = tmp_path / "main"
    built = subprocess.run(["cc", *STRICT, *SANITISED, "-o", program, main, path, "-lm"])
    assert built.returncode == 0
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def sizes_of(path, *flags):
    """Text, data and bss of the object file."""
    made = path.with_suffix(".o")
    command = ["arm-none-eabi-gcc", *STRICT, *CORTEX_M4, *flags, "-c", "-o", made, path]
    subprocess.run(command, check=True)
    told = subprocess.run(
        ["arm-none-eabi-size", made], check=True, capture_output=True, text=True
    ).stdout
    return tuple(map(int, told.splitlines()[1].split()[:3]))


@needs_arm
@pytest.mark.parametrize("estimator", ["mean", "moments"])
def test_the_digits_network_fits(tmp_path, estimator):
    model, x, path = bayesian(mlp), inputs(1, 8, 8), tmp_path / "digits.c"
    record = pb.export(model, path, to="c", example=x, estimator=estimator)
    size, header = record.footprint, path.with_suffix(".h").read_text()
    text, data, bss = sizes_of(path)
    assert size.flash_bytes <= text + data <= size.flash_bytes + 8000
    assert data + bss == size.ram_bytes
    assert text + data <= size.measured_flash < 64_000
    assert bss <= size.measured_ram < 16_000
    for number in (size.flash_bytes, size.ram_bytes, size.measured_flash, size.measured_ram):
        assert f"{number:,} bytes" in header
        assert f"{number:,} bytes" in str(record)


@needs_arm
def test_lenet_is_as_large_as_it_says(tmp_path):
    model, x, path = bayesian(lenet5), inputs(1, 28, 28), tmp_path / "lenet.c"
    size = pb.export(model, path, to="c", example=x, estimator="moments").footprint
    text, data, bss = sizes_of(path)
    assert size.flash_bytes <= text + data <= size.flash_bytes + 10_000
    assert data + bss == size.ram_bytes
    assert size.ram_bytes == 2 * 4 * 6 * 28 * 28  # the first layer's means and variances


BOARD = """
#include "net.h"
#include <stdint.h>
extern char stack_top;
void reset(void);
__attribute__((section(".vectors"), used)) static void *const vectors[] =
    {&stack_top, (void *)reset};
static const float rows[ROWS][NET_INPUTS] = {INPUTS};
static net_answer answer;

static void ask(int what, const void *with)
{
    register int r0 __asm__("r0") = what;
    register const void *r1 __asm__("r1") = with;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}

static void run(void)
{
    static char text[2 * sizeof answer + 2];
    for (int r = 0; r < ROWS; r++) {
        const uint8_t *bytes = (const uint8_t *)&answer;
        if (net_predict(rows[r], &answer))
            ask(4, "refused");
        for (unsigned i = 0; i < sizeof answer; i++) {
            text[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
            text[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
        }
        text[2 * sizeof answer] = '\\n';
        ask(4, text);
    }
    ask(0x18, (void *)0x20026);
}

void reset(void)
{
    *(volatile uint32_t *)0xe000ed88 |= 0xfu << 20;  /* the floating point unit */
    __asm__ volatile("dsb\\nisb");
    run();
    for (;;)
        ;
}
"""
LAYOUT = """
MEMORY { FLASH : ORIGIN = 0, LENGTH = 4M  RAM : ORIGIN = 0x20000000, LENGTH = 1M }
SECTIONS {
    .text : { KEEP(*(.vectors)) *(.text*) *(.rodata*) *(.ARM.ex*) } > FLASH
    .data : { *(.data*) } > RAM
    .bss : { *(.bss*) *(COMMON) } > RAM
    stack_top = ORIGIN(RAM) + LENGTH(RAM);
}
"""


@needs_arm
@needs_qemu
@pytest.mark.parametrize("estimator", ["mean", "moments"])
@pytest.mark.parametrize("name", ["mlp", "lenet"])
def test_a_cortex_m4_answers_the_same(untried, tmp_path, name, estimator):
    make, shape = NETWORKS[name]
    model, x, path = bayesian(make), inputs(*shape), tmp_path / "net.c"
    pb.export(model, path, to="c", example=x, estimator=estimator)
    rows = ", ".join(f"{{{', '.join(f'{v:.9e}f' for v in r.flatten().tolist())}}}" for r in x)
    (tmp_path / "board.c").write_text(
        BOARD.replace("INPUTS}", f"{rows}}}").replace("ROWS", str(len(x)))
    )
    (tmp_path / "board.ld").write_text(LAYOUT)
    command = ["arm-none-eabi-gcc", "-std=gnu99", *CORTEX_M4, "--specs=nano.specs", "-nostartfiles"]
    command += ["-Wl,--no-warn-rwx-segments"] if _knows_rwx() else []
    command += ["-T", "board.ld", "-o", "board.elf", "board.c", "net.c", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    machine = ["qemu-system-arm", "-M", "mps2-an386", "-nographic", "-monitor", "none"]
    machine += ["-serial", "none", "-semihosting-config", "enable=on,target=native"]
    done = subprocess.run(
        [*machine, "-kernel", "board.elf"], cwd=tmp_path, timeout=60, capture_output=True, text=True
    )
    answers = (done.stdout + done.stderr).split()
    kind, here = answer_type(path.with_suffix(".h").read_text(), "net"), run(path, x)
    assert len(answers) == len(x)
    for number, line in enumerate(answers):
        answer = kind.from_buffer_copy(bytes.fromhex(line))
        for key, _ in kind._fields_:
            np.testing.assert_allclose(
                np.array(getattr(answer, key)), here[key][number], atol=1e-5, rtol=1e-4
            )


def _knows_rwx():
    told = subprocess.run(["arm-none-eabi-ld", "--help"], capture_output=True, text=True).stdout
    return "no-warn-rwx-segments" in told


def test_the_header_tells_names_and_preparation(untried, tmp_path):
    model, path = bayesian(regression), tmp_path / "my-net.c"
    update_description(
        model, class_names=("a */ int x;", 'é"\\?'), likelihood="categorical",
        preprocess={"kind": "image", "shape": [1, 8], "mean": [0.5], "std": [0.25]},
    )  # fmt: skip
    pb.export(model, path, to="c", example=inputs(8))
    header, source = path.with_suffix(".h").read_text(), path.read_text()
    assert "#define MY_NET_INPUT_MEAN {0.5f}" in header
    assert "int my_net_predict(const float *input, my_net_answer *answer);" in header
    assert "a * / int x;" in header
    assert '"\\303\\251\\042\\134\\077"' in source
    assert '#include "my-net.h"' in source
    if shutil.which("cc"):
        compiled(path)
    pb.export(model, tmp_path / "folder", to="c", example=inputs(8))
    assert (tmp_path / "folder" / "model.h").exists()


def test_nan_is_refused(untried, tmp_path):
    path = tmp_path / "net.c"
    pb.export(bayesian(regression), path, to="c", example=inputs(8), likelihood="categorical")
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    predict = ctypes.CDLL(str(compiled(path))).net_predict
    answer = answer_type(path.with_suffix(".h").read_text(), "net")()
    for wrong in (math.nan, math.inf):
        assert predict((ctypes.c_float * 8)(1, wrong), ctypes.byref(answer)) == 1


@needs_cc
@pytest.mark.parametrize("estimator", ["mean", "moments", "one_pass"])
@pytest.mark.parametrize("make", [mlp, small_lenet])
def test_an_answer_that_is_not_finite_is_an_error(untried, tmp_path, make, estimator):
    """No activation, pooling or bound on a variance hides what overflowed before it."""
    shape = (1, 8, 8) if make is mlp else (1, 16, 16)
    model, x, path = bayesian(make, estimator="weight"), inputs(*shape), tmp_path / "net.c"
    if estimator == "one_pass":
        data = TensorDataset(inputs(*shape, rows=60), torch.arange(60) % 5)
        with pytest.warns(UserWarning, match="ever trained"):
            pb.distill_(model, DataLoader(data, 60), epochs=1)
    pb.export(model, path, to="c", example=x, estimator=estimator)
    header = path.with_suffix(".h").read_text()
    assert "or 2 if what\n   is answered is not finite" in header
    predict = ctypes.CDLL(str(compiled(path))).net_predict
    answer, codes = answer_type(header, "net")(), []
    for size in (1.0, 3e38):
        row = np.ascontiguousarray(size * np.sign(x[0].numpy()))
        codes.append(predict(ctypes.c_void_p(row.ctypes.data), ctypes.byref(answer)))
    assert codes == [0, 2]


@needs_cc
def test_values_that_are_not_finite_are_errors(untried, tmp_path):
    model, path = bayesian(regression), tmp_path / "net.c"
    update_description(model, likelihood="gaussian")
    model.register_parameter("noise_log_std", nn.Parameter(torch.zeros(2)))
    pb.export(model, path, to="c", example=inputs(8), estimator="moments")
    answer = answer_type(path.with_suffix(".h").read_text(), "net")()
    predict = ctypes.CDLL(str(compiled(path))).net_predict
    assert predict((ctypes.c_float * 8)(*[1.0] * 8), ctypes.byref(answer)) == 0
    assert predict((ctypes.c_float * 8)(*[3e38] * 8), ctypes.byref(answer)) == 2


@needs_cc
def test_an_example_whose_answers_are_not_finite_is_refused(tmp_path):
    """Before anything is written: by predict, or by the compiled file."""
    x, path = inputs(1, 8, 8), tmp_path / "net.c"
    for row, match in ((3e38, "a prediction is not finite: row 1"), (math.nan, "the example: row")):
        x[1] = row
        with pytest.raises(pb.DataError, match=match):
            pb.export(bayesian(mlp), path, to="c", example=x, estimator="moments")
    assert not path.exists()
    made, library = c_model_of(bayesian(mlp), inputs(1, 8, 8)), tmp_path / "net.so"
    (tmp_path / "net.c").write_text(made.source)
    (tmp_path / "net.h").write_text(made.header)
    compiled(path, name="net.so")
    with pytest.raises(pb.PocketBayesError, match=r"net_predict refuses row 1 of the example with"):
        answers_of(library, made, x.numpy())


def c_model_of(model, x):
    return c_model(model, planned(model, x, "moments", None, 30, None), "net", False)


def test_a_promise_of_sets_binds_no_file_without_sets(untried, tmp_path):
    """C has no prediction sets: any estimator will do, and it says that they are missing."""
    model, x, path = bayesian(mlp), inputs(1, 8, 8, rows=40), tmp_path / "net.c"
    update_description(model, likelihood="categorical")
    pb.conformal(model, [(x, torch.arange(40) % 10)], estimator="weight")
    record = pb.export(model, path, to="c", example=x[:2], estimator="mean")
    assert "no prediction_set" in str(record)
    values = bayesian(regression)
    update_description(values, likelihood="gaussian")
    values.register_parameter("noise_log_std", nn.Parameter(torch.zeros(2)))
    pb.conformal(values, [(inputs(8, rows=40), inputs(2, rows=40))], estimator="weight")
    with pytest.raises(pb.PocketBayesError, match='promised for estimator="weight"'):
        pb.export(values, path, to="c", example=inputs(8), estimator="mean")


class Products(nn.Module):
    def forward(self, x):
        return (x * x).sum(1, keepdim=True) * x


def test_refusals_name_what_and_say_what_to_do(tmp_path):
    x, path = inputs(4), tmp_path / "net.c"

    def exported(make, **options):
        pb.export(bayesian(make), path, to="c", example=x, **options)

    with pytest.raises(pb.PocketBayesError, match=r"operation 1 \(multiply\) is not exported to C"):
        exported(lambda: nn.Sequential(nn.Linear(4, 4), Products()), estimator="mean")
    with pytest.raises(pb.PocketBayesError, match=r"\(layer_norm\) is not exported to C by mom"):
        exported(lambda: nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), estimator="moments")
    with pytest.raises(pb.PocketBayesError, match='likelihood="poisson" is not exported to C'):
        exported(lambda: nn.Linear(4, 1), likelihood="poisson")
    with pytest.raises(pb.PocketBayesError, match='estimator="weight" is not exported to C'):
        exported(lambda: nn.Linear(4, 2), estimator="weight")
    with pytest.raises(pb.PocketBayesError, match="int8 is of ONNX"):
        exported(lambda: nn.Linear(4, 2), int8=True)
    with pytest.raises(pb.PocketBayesError, match="gives no name"):
        pb.export(bayesian(lambda: nn.Linear(4, 2)), tmp_path / "2.c", to="c", example=x)
    assert not path.exists()
    assert describe(bayesian(lambda: nn.Linear(4, 2))).likelihood is None
