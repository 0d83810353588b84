"""Names of classes, inputs and columns are anybody's: they run no formula and drive no terminal."""

import csv
import io
import os
import random

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import pocketbayes as pb
from pocketbayes.cli import app
from pocketbayes.commands.predict import as_csv
from pocketbayes.layers import update_description
from pocketbayes.models import build_network
from pocketbayes.report import as_cell, facts_table, rows_table
from pocketbayes.report.tables import console

ESCAPE = "\x1b[31mred\x07\x9b0m"
FORMULAS = [
    "=1+1", "=cmd|' /C calc'!A0", "+1+1", "-1+1", "-cat", "@SUM(1)", " =1", "\t=1", "\r=1", "\n=1",
    "\N{NO-BREAK SPACE}=1", "\N{ZERO WIDTH JOINER}=1",
    "\N{FULLWIDTH EQUALS SIGN}1", "\N{FULLWIDTH PLUS SIGN}1", "--1", "-1.5.2", "+", "=",
]  # fmt: skip
NUMBERS = ["-1.5", "+1", "-1e-7", "-.5", "3", "0", "-2.", "1E5"]
WORDS = ["a", "a=b", "no-one", "x@y", "", "5 x 3", "'=1", "é", "caf\N{COMBINING ACUTE ACCENT}"]


def runs(cell):
    """Whether a spreadsheet takes a cell for a formula, by its first letter."""
    return cell[:1] in tuple("=+-@\t\r\n\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}")


@pytest.mark.parametrize("word", FORMULAS)
def test_a_word_is_no_formula(word):
    cell = as_cell(word)
    assert not runs(cell.strip(" "))
    assert word.strip()[-1] in cell


@pytest.mark.parametrize("word", NUMBERS + WORDS)
def test_numbers_and_other_words_stay_what_they_are(word):
    assert as_cell(word) == word


@pytest.mark.parametrize(
    "name",
    [
        "Screenshot 2024-01-01 at 1.02.03\N{NARROW NO-BREAK SPACE}PM.png", "a\N{NO-BREAK SPACE}b",
        "\u0645\u06cc\N{ZERO WIDTH NON-JOINER}\u062e\u0648\u0627\u0647\u0645",
        "\U0001f468\N{ZERO WIDTH JOINER}\U0001f469",
    ],
)  # fmt: skip
def test_names_of_files_and_words_of_any_language_stay_what_they_are(name):
    assert as_cell(name) == name


@pytest.mark.parametrize("name", ["a\u202eb", "\u2066a", "\x7f", "\x9b", "\x00", "\udcff"])
def test_what_turns_text_around_or_is_none_is_spelled_out(name):
    assert as_cell(name).isascii()


@pytest.mark.parametrize("value", [-1.5, -1, float("-inf"), True, None])
def test_values_stay_what_they_are(value):
    assert as_cell(value) is value


def test_a_table_is_read_back_and_its_numbers_are_numbers():
    text = as_csv(
        [{"input": "=1,2", "p(\x1b)": -1.5, "class": "-2"}, {"a": "x", "b": 0.1, "c": '"'}]
    )
    rows = list(csv.reader(io.StringIO(text)))
    assert rows == [["input", "p(\\x1b)", "class"], ["'=1,2", "-1.5", "-2"], ["x", "0.1", '"']]


def test_no_text_at_all_drives_a_terminal():
    chance = random.Random(0)
    for _ in range(300):
        word = "".join(chr(chance.randrange(0x300)) for _ in range(9))
        assert all(
            c.isprintable() or c in "\N{NO-BREAK SPACE}\N{SOFT HYPHEN}" for c in as_cell(word)
        )


def test_tables_on_the_terminal_show_names_as_they_are(capsys):
    rows = [{f"p({ESCAPE}[bold])": 0.5, "class": ESCAPE}]
    console().print(rows_table(ESCAPE, rows))
    console().print(facts_table(ESCAPE, {f"{ESCAPE}[red]": ESCAPE}))
    said = capsys.readouterr().out
    assert all(c.isprintable() or c == "\n" for c in said)
    assert "[bold]" in said
    assert "\\x1b[31mred\\x07" in said


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """A model whose classes have such names, and pictures that have, too."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    net = build_network("mlp", input_shape=(1, 4, 4), num_outputs=3, hidden=(4,))
    model = pb.bayesianize_(net)
    images = {"kind": "image", "shape": [1, 4, 4], "mean": [0.5], "std": [0.5]}
    names = (f"={ESCAPE}", f"@{ESCAPE}", f"-{ESCAPE}")
    update_description(model, likelihood="categorical", class_names=names, preprocess=images)
    pb.save(model, "m.pocket")
    chance = np.random.default_rng(0)
    os.mkdir("pictures")
    for name in (b"=1+1.png", b"\xff\x1b[31m.png", b"@1.png"):
        made = io.BytesIO()
        Image.fromarray(chance.integers(0, 256, (4, 4), np.uint8)).save(made, "png")
        with open(b"pictures/" + name, "wb") as file:
            file.write(made.getvalue())
    os.chdir("pictures")
    return tmp_path / "m.pocket"


def test_predictions_of_hostile_names(hostile):
    inputs = sorted(os.listdir("."))
    args = ["predict", str(hostile), *inputs, "--csv", "out.csv"]
    said = CliRunner().invoke(app, [*args, "--num-samples", "2"], catch_exceptions=False)
    assert said.exit_code == 0
    with open("out.csv", newline="", encoding="utf-8") as file:
        text = file.read()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 3
    assert not any(runs(row["class"]) or runs(row["input"]) for row in rows)
    assert all(c.isprintable() or c == "\n" for c in text + said.output)
    told = CliRunner().invoke(app, ["inspect", str(hostile)], catch_exceptions=False).output
    assert all(c.isprintable() or c == "\n" for c in told)
