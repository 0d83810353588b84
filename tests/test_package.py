"""What a newcomer meets first."""

import inspect
import subprocess
import sys

import pytest

import pocketbayes as pb

HEAVY = {"lightning_fabric", "torchmetrics", "sklearn", "scipy", "rich", "matplotlib"}


def import_alone() -> tuple[float, str]:
    """The seconds that an import takes after that of torch, and what is loaded along."""
    code = "import sys, time, torch; t = time.perf_counter(); import pocketbayes; "
    code += f"print(time.perf_counter() - t, *({HEAVY} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, _, heavy = done.stdout.strip().partition(" ")
    return float(seconds), heavy


def test_import_is_light():
    tries = (import_alone() for _ in range(3))
    for seconds, heavy in tries:
        assert heavy == ""
        if seconds < 0.3:
            return
    pytest.fail("no import took less than 0.3 seconds")


def test_torchs_compiler_is_not_imported_along():
    code = "import sys, pocketbayes as pb; pb.bayesianize_, pb.load, pb.fit, pb.Sharing; "
    code += "import pocketbayes.cli; print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


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
