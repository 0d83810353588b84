"""`--likelihood` on the command line: from a table to a page, in the target's own units."""

import json
import sys

import numpy as np
import pytest

from pocketbayes import cli
from pocketbayes.likelihoods import LIKELIHOODS

TINY = ["--data", "csv", "--file", "t.csv", "--model", "mlp", "--hidden", "8", "--epochs", "3"]
NUMBERS = [name for name in LIKELIHOODS if name != "categorical"]


@pytest.fixture
def command(tmp_path, monkeypatch, capfd):
    """Runs `pocketbayes WORDS` in this process; returns what it printed."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=160)
    real = 100 + 20 * x + rng.normal(size=160)
    rows = [
        f"{a:.4f},{b},{c},{r:.3f},{'yes' if c else 'no'}"
        for a, b, c, r in zip(x, rng.poisson(np.exp(1 + 0.3 * x)), x > 0, real, strict=True)
    ]
    text = "\n".join(["x,count,there,real,word", *rows]).replace("True", "1").replace("False", "0")
    (tmp_path / "t.csv").write_text(text + "\n")
    monkeypatch.chdir(tmp_path)

    def run(*words, code=0):
        monkeypatch.setattr(sys, "argv", ["pocketbayes", *words])
        capfd.readouterr()
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        out, err = capfd.readouterr()
        assert (stopped.value.code or 0) == code, out + err
        assert "Traceback" not in err
        return out if code == 0 else err

    return run


def target_of(name):
    kinds = {"poisson": "count", "negative-binomial": "count", "bernoulli": "there"}
    return kinds.get(name, "real")


@pytest.mark.parametrize("name", NUMBERS)
def test_a_table_goes_all_the_way(name, command, tmp_path):
    column = target_of(name)
    command("train", *TINY, "--target", column, "--likelihood", name, "--out", "run")
    assert name in command("inspect", "run")
    record = json.loads(command("evaluate", "run", "--json"))
    assert record["likelihood"] == name
    rows = json.loads(command("predict", "run", "t.csv", "--json"))["predictions"]
    assert len(rows) == 160
    if name == "bernoulli":
        assert 0 < rows[0]["p(0)"] < 1
        assert record["accuracy"] >= 0
    else:
        assert rows[0]["low_90"] <= rows[0]["high_90"]
        scale = 20 if column == "real" else 3
        assert scale / 20 < record["crps"] < record["interval_score_90"] < 100 * scale
    if column == "count":
        assert rows[0]["low_90"] == int(rows[0]["low_90"]) >= 0
    command("report", "run", "--out", "page.html")
    assert name in (tmp_path / "page.html").read_text()


def test_a_run_goes_on_with_its_likelihood(command):
    words = ["--target", "count", "--likelihood", "poisson"]
    command("train", *TINY, *words, "--out", "a")
    command("train", "--parent", "a", "--method", "subspace", "--density", "0.5",
            "--epochs", "1", "--out", "b")  # fmt: skip
    assert json.loads(command("evaluate", "b", "--json"))["likelihood"] == "poisson"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--target", "real", "--likelihood", "poisson"], "is no count"),
        (["--target", "count", "--likelihood", "bernoulli"], "neither 0 nor 1"),
        (["--target", "word", "--likelihood", "poisson"], "word"),
        (["--target", "real", "--likelihood", "cauchy"], "--likelihood must be one of"),
        (["--target", "real", "--likelihood", "categorical"], "--task classification"),
        (["--target", "word", "--likelihood", "poisson", "--task", "classification"], "leave it"),
    ],
)
def test_what_does_not_fit_the_target_is_refused(words, message, command):
    code = 2 if "--task" in message or "must be" in message or "leave" in message else 1
    assert message in command("train", *TINY, *words, "--out", "run", code=code)


def test_pictures_have_classes(command):
    words = ["train", "--data", "digits", "--model", "mlp", "--likelihood", "gaussian"]
    assert "is for a table" in command(*words, code=2)
