"""The guide: every block of code runs, every public name and every page is in it, it builds.

Blocks marked `python` run page by page, from top to bottom, in one namespace and an empty
directory, with `epochs=` of MOST_EPOCHS at most; one with a title is written to the file of that
name instead. Lines of blocks marked `sh` that begin with `pocketbayes` run at their place among
them, in the same process, with `--epochs` set to 1 where the command trains (0 for `compress`,
which has fewer recipes to try), and with what is in STAND_INS for data that has to be downloaded
and for large networks (image folders are drawn). What a command that trains leaves in `runs` is
kept for other pages that have the same line. Lines that begin as in NOT_RUN are not run
(`pocketbayes demo` is run by test_release.py), nor, visibly, blocks with packages of OPTIONAL
that are not installed. Blocks marked `text` are no code, and there are no
others. The README's network and loaders are those of YOURS.
"""

import ast
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from functools import cache
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from PIL import Image

import pocketbayes
from pocketbayes.cli import main
from pocketbayes.compression import chain
from pocketbayes.training import defaults

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NOT_RUN = ("git", "make", "pip", "python", ".venv/bin/pytest", "pocketbayes demo")
OPTIONAL = {
    "pocketbayes_lite": ("pocketbayes_lite", 'backend="engine"'),  # by `make lite`
    "lightning": ("import lightning",),
    "transformers": ("from transformers",),
    "peft": ("from peft",),
    "timm": ("import timm",),
    "torchvision": ("import timm",),
}
PETS = {"cat": 60, "dog": 200}
TRAINS = {"train": "1", "compress": "0", "distill": "1"}
MOST_EPOCHS = 3
STAND_INS = {
    "--data cifar10 --root DATA": "--data digits",
    "--model resnet18": "--model mlp",
    "--compile": "",
    "--size 64": "--size 16",
    "--model mlp": "--model mlp --hidden 64,64",
}
RESULTS = [DOCS / "results.md", *DOCS.glob("results/*.md")]  # written by benchmarks/tables.py
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(set(DOCS.glob("*.md")) - {*RESULTS})]
YOURS = """
import torch
from torch import nn

net, plain_net = (nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 2)) for _ in "ab")
x = torch.randn(200, 64)
train_loader = test_loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long()), batch_size=50
)
"""
FENCE = re.compile(r"^```(.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r'python title="([\w.]+)"')


class Block(NamedTuple):
    """A block of code: what stands behind its fence, its line, and its text."""

    kind: str
    line: int
    text: str


@cache
def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(found[1], text.count("\n", 0, found.start()) + 2, found[2])
        for found in FENCE.finditer(text)
    ]


def commands_in(block: Block) -> list[str]:
    """Lines of a shell block, without comments, joined where they end in a backslash."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [line for line in (re.sub(r"(^|\s)#.*", "", line).strip() for line in lines) if line]


def shortened(command: str) -> list[str]:
    """The arguments of a command, which is to take little time and no data from elsewhere."""
    for written, instead in STAND_INS.items():
        command = command.replace(written, instead)
    arguments = shlex.split(re.sub(r"--epochs \d+", "", command))
    epochs = TRAINS.get(arguments[1])
    return [*arguments, "--epochs", epochs] if epochs else arguments


def few_epochs(said: str) -> str:
    return f"epochs={min(MOST_EPOCHS, int(said.removeprefix('epochs=')))}"


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """By command, a folder with the runs that it made."""
    return {}, tmp_path_factory.mktemp("kept")


def draw_pets() -> None:
    """An image folder as the guide describes it: cats are dark, dogs are light."""
    for split, (kind, shade), number in product(("train", "test"), PETS.items(), range(10)):
        path = Path("pets", split, kind, f"{number}.jpg")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 16), (shade, shade, 20 * number)).save(path)


def run_command(command, kept, monkeypatch) -> None:
    known, folder = kept
    arguments, runs = shortened(command), Path("runs")
    if command in known:
        shutil.copytree(known[command], runs, dirs_exist_ok=True)
        return
    before = set(runs.glob("*"))
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code, command
    if arguments[1] in TRAINS:
        known[command] = folder / str(len(known))
        for made in set(runs.glob("*")) - before:
            shutil.copytree(made, known[command] / made.name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_blocks_run(page, kept, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(chain, "_SECONDS", 0.0)
    monkeypatch.setattr(chain, "_LEAST_STEPS", 20)
    monkeypatch.setattr(defaults, "_LEAST_STEPS", {"values": 30, "classes": 30})
    monkeypatch.setattr(defaults, "_EPOCHS", MOST_EPOCHS)
    namespace, left_out = {"__name__": page.stem}, ""
    if page.stem == "README":
        exec(YOURS, namespace)
    if "--root pets" in page.read_text():
        draw_pets()
    for block in blocks_of(page):
        if block.kind == "sh":
            for command in commands_in(block):
                if not command.startswith(NOT_RUN):
                    assert command.startswith("pocketbayes "), f"{page.name}: {command}"
                    run_command(command, kept, monkeypatch)
        elif block.kind == "python" and (missing := missing_for(block)):
            left_out = f"{missing} is not installed"
        elif block.kind == "python":
            code = "\n" * (block.line - 1) + block.text  # so that an error has the page's line
            code = re.sub(r"\bepochs=\d+", lambda said: few_epochs(said[0]), code)
            with warnings.catch_warnings():
                if of_others(block):  # which warn of workers, devices, each other
                    warnings.simplefilter("ignore")
                exec(compile(code, page, "exec"), namespace)
        elif found := TITLE.fullmatch(block.kind):
            Path(found[1]).write_text(block.text)
            module = Path(found[1]).stem  # of this page: another's may be loaded under its name
            monkeypatch.setitem(sys.modules, module, None)
            del sys.modules[module]
        elif block.kind == "c":
            if shutil.which("cc"):  # against the header that the block before wrote
                check = ["cc", "-std=c99", "-Wall", "-Werror", "-Ifirmware", "-fsyntax-only"]
                subprocess.run([*check, "-xc", "-"], input=block.text, text=True, check=True)
        else:
            assert block.kind == "text", f"{page.name}:{block.line}: a block of what?"
    if left_out:
        pytest.skip(left_out)


def missing_for(block: Block) -> str:
    """A package that this block needs and that is not there."""
    needed = [name for name, words in OPTIONAL.items() if any(w in block.text for w in words)]
    return next((name for name in needed if not find_spec(name)), "")


def of_others(block: Block) -> bool:
    return any(w in block.text for w in ("import lightning", "from transformers", "import timm"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_code_hides_from_the_test(page):
    """Code is in fences: what is indented after an empty line, outside of lists, is none."""
    text = FENCE.sub("", page.read_text())
    assert not re.search(r"^\n {4,}(pocketbayes|python|import|from|pb)\b", text, re.MULTILINE)
    assert "```" not in text


def pages_in(nav) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [page for part in (nav.values() if isinstance(nav, dict) else nav)
            for page in pages_in(part)]  # fmt: skip


def test_every_page_is_in_the_navigation():
    nav = re.search(r"^nav:\n(?:[ -].*\n)+", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    named = pages_in(yaml.safe_load(nav[0])["nav"])
    assert sorted(named) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_every_public_name_is_in_the_reference():
    named = re.findall(r"^::: pocketbayes\.(\w+)$", (DOCS / "api.md").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(set(pocketbayes.__all__) - {"__version__"})


@cache
def defined_in(room: str) -> frozenset[str]:
    """Names that the files of a room define: functions, classes, methods, what is assigned."""
    found = set()
    for path in (ROOT / "src" / "pocketbayes" / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                found.add(node.id if isinstance(node, ast.Name) else node.attr)
    return frozenset(found)


def test_functions_that_the_pages_name_are_there():
    """The last column of tables of formulas names functions and classes: those of `room/`, those
    of the room before, where none is said, or public ones as `pb.name`."""
    for page in PAGES:
        rows = re.findall(r"\| where \|\n\|[-| ]+\|\n((?:\|.*\n)+)", page.read_text())
        seen = set()
        for row in "".join(rows).splitlines():
            named = re.findall(r"`([^`]+)`", re.split(r"(?<!\\)\|", row)[-2])
            assert named, f"{page.name}: {row}"
            room = ""
            for name in named:
                if name.endswith("/"):
                    room = name
                    assert defined_in(room), f"{page.name}: no room {room}"
                elif name.startswith("pb."):
                    assert name[3:] in pocketbayes.__all__, f"{page.name}: {name}"
                else:
                    known = defined_in(room) if room else seen
                    missing = set(name.split(".")) - known
                    assert not missing, f"{page.name}: {missing} of {row} is not in {room}"
                seen |= defined_in(room) if room else set()


def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("mkdocstrings", reason="needs mkdocs-material and mkdocstrings[python]")
    pytest.importorskip("material", reason="needs mkdocs-material")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", tmp_path]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    for page in tmp_path.rglob("*.html"):  # nothing is loaded from elsewhere
        assert not re.search(r'(src|rel="stylesheet" href)="https?://', page.read_text()), page
    assert (tmp_path / "search" / "search_index.json").exists()
    shutil.rmtree(tmp_path)
