"""What a browser runs: built from the sources as it stands there, small, and right in node."""

import gzip
import importlib.util
import re
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DATA = ROOT / "src/pocketbayes/deploy/web"
LARGEST, LARGEST_WITH_PAGE = 60_000, 70_000  # gzipped


def packed(*names):
    return sum(len(gzip.compress((DATA / name).read_bytes(), 9)) for name in names)


@pytest.fixture(scope="module")
def build():
    spec = importlib.util.spec_from_file_location("build_web", ROOT / "web/build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def require_node():
    if shutil.which("node") is None:
        pytest.skip("there is no node")


def require_npm(name):
    require_node()
    if not (ROOT / "web/node_modules" / name).is_dir():
        pytest.skip(f"there is no {name}: npm ci --prefix web")


def test_the_engine_is_what_its_sources_make(build, tmp_path):
    pytest.importorskip("ziglang", reason="needs ziglang")
    (pin,) = re.findall(r"^ziglang==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    if version("ziglang") != pin:
        pytest.skip(f"ziglang is {version('ziglang')}; the engine was built by {pin}")
    require_npm("binaryen")
    made = build.build_engine(tmp_path)
    assert made.read_bytes() == (DATA / made.name).read_bytes(), "run python web/build.py"


def test_the_scripts_are_what_typescript_makes(build, tmp_path):
    require_npm("typescript")
    for made in build.build_script(tmp_path):
        assert made.read_text() == (DATA / made.name).read_text(), "run python web/build.py"


def test_engine_and_script_are_small():
    assert packed("pocketbayes.wasm", "pocketbayes.js") <= LARGEST
    assert packed("pocketbayes.wasm", "page.js", "page.html") <= LARGEST_WITH_PAGE


def test_the_engine_answers_in_node():
    require_node()
    done = subprocess.run(
        ["node", "--test", str(Path(__file__).with_name("golden.test.mjs"))],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
