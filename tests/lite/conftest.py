"""pocketbayes-lite, built from this checkout into a wheel and unpacked for the tests.

It is compiled for this processor alone, which takes a third of the time of the wheel that is
released.
"""

import importlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    pytest.importorskip("hatchling", reason="needs hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps"]
    done = subprocess.run(
        [*command, "--no-index", "--wheel-dir", folder, ROOT / "lite"],
        env=os.environ | {"POCKETBAYES_LITE_NATIVE": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="session")
def unpacked(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lite")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder)
    return folder


@pytest.fixture(scope="session")
def lite(unpacked):
    """The package; one that is installed is not looked at."""
    kept = {n: sys.modules.pop(n) for n in list(sys.modules) if n.startswith("pocketbayes_lite")}
    sys.path.insert(0, str(unpacked))
    yield importlib.import_module("pocketbayes_lite")
    sys.path.remove(str(unpacked))
    for name in [n for n in sys.modules if n.startswith("pocketbayes_lite")]:
        del sys.modules[name]
    sys.modules.update(kept)
