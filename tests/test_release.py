"""What is released: the wheel alone, in an environment of its own, runs the demo.

The environment is empty but for the wheel. Its dependencies are those of this environment, by a
path file: what this environment has by path files of its own, such as an editable install of this
library, is not there. Nothing is fetched from a network.
"""

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from pocketbayes import __version__

ROOT = Path(__file__).parents[1]
WITHOUT = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}


def run(*command: str | Path, where: Path) -> str:
    """What a command prints, started outside of the checkout and without its environment."""
    clean = {name: value for name, value in os.environ.items() if name not in WITHOUT}
    done = subprocess.run(
        command, cwd=where, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from the source distribution, as `python -m build` does."""
    pytest.importorskip("build", reason="needs build")
    pytest.importorskip("hatchling", reason="needs hatchling")
    folder = tmp_path_factory.mktemp("dist")
    options = ("--no-isolation", "--outdir", folder, ROOT)
    run(sys.executable, "-m", "build", *options, where=folder)
    assert [path.name for path in folder.glob("*.tar.gz")] == [f"pocketbayes-{__version__}.tar.gz"]
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """The folder of an environment with the wheel in it."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    install = ("install", "--quiet", "--no-deps", "--no-index", wheel)
    run(sys.executable, "-m", "pip", "--python", python, *install, where=folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    others = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (packages / "dependencies.pth").write_text("\n".join(others))  # after the install: see pip
    return folder


def test_the_wheel_holds_the_library_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
    files = [path for path in (ROOT / "src").rglob("*") if path.is_file()]
    source = {str(path.relative_to(ROOT / "src")) for path in files if path.suffix != ".pyc"}
    about = f"pocketbayes-{__version__}.dist-info"
    assert {name for name in names if not name.startswith(about)} == source
    assert "pocketbayes/py.typed" in source
    assert f"{about}/licenses/LICENSE" in names


def test_the_demo_runs_from_the_wheel(environment, tmp_path):
    found = run(
        environment / "bin" / "python", "-c", "import pocketbayes; print(pocketbayes.__file__)",
        where=tmp_path,
    )  # fmt: skip
    assert Path(found.strip()).is_relative_to(environment)
    command = environment / "bin" / "pocketbayes"
    shown = json.loads(run(command, "demo", "--epochs", "2", "--json", where=tmp_path))
    rows = {row["method"]: row for row in shown["rows"]}
    assert list(rows) == ["deterministic", "mean-field", "pruned", "one-pass"]
    assert rows["mean-field"]["accuracy"] > 0.6  # of ten classes
    assert rows["pruned"]["weights_kept"] < rows["mean-field"]["weights_kept"] / 3
    for name, row in rows.items():
        assert (tmp_path / "runs" / "demo" / f"{name}.pocket").stat().st_size == row["file_bytes"]
    assert (tmp_path / "runs" / "demo" / "demo.png").stat().st_size > 10_000
