"""What a newcomer meets first."""

import inspect
import subprocess
import sys

import pytest

import pocketbayes as pb

HEAVY = {"lightning_fabric", "torchmetrics", "sklearn", "scipy", "rich", "matplotlib"}


ALONE = f"""
import sys, time, torch
start = time.perf_counter()
import pocketbayes as pb
print(time.perf_counter() - start)
print(*({HEAVY} & set(sys.modules)))
pb.bayesianize_, pb.load, pb.fit, pb.Sharing
import pocketbayes.cli
print("torch._dynamo" in sys.modules)
"""


def imported_alone() -> tuple[float, str, str]:
    """Seconds of an import after that of torch, what it loads, and whether torch's compiler is."""
    command = [sys.executable, "-c", ALONE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, heavy, compiler = done.stdout.splitlines()
    return float(seconds), heavy, compiler


def test_import_is_light_and_leaves_torchs_compiler_alone():
    for seconds, heavy, compiler in (imported_alone() for _ in range(3)):
        assert heavy == ""
        assert compiler == "False"
        if seconds < 0.3:
            return
    pytest.fail("no import took less than 0.3 seconds")


FIRST_FIT = f"""
import sys, torch
import pocketbayes as pb
x = torch.randn(8, 2)
model = pb.bayesianize_(torch.nn.Linear(2, 2))
result = pb.fit(model, [(x, (x[:, 0] > 0).long())], epochs=1, progress=False, device="cpu")
pb.save(result.model, sys.argv[1])
print(*({HEAVY | {"torch._dynamo", "sympy"}} & set(sys.modules)))
"""


def test_training_on_a_cpu_loads_no_framework(tmp_path):
    command = [sys.executable, "-c", FIRST_FIT, str(tmp_path / "m.pocket")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"rich"}


@pytest.mark.parametrize("name", [n for n in pb.__all__ if n != "__version__"])
def test_every_public_name_is_there_and_documented(name):
    thing = getattr(pb, name)
    assert inspect.getdoc(thing)
    if inspect.isfunction(thing) and name not in ("named_posteriors", "replace_posterior"):
        assert "Example" in thing.__doc__ or ">>>" in thing.__doc__


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no attribute 'bayesianise'"):
        _ = pb.bayesianise
    assert "predict" in dir(pb)
