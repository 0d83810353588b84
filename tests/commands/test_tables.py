"""A messy table from the first command to the last, as a new user would go."""

import csv
import datetime as dt
import json

import numpy as np
import pytest
from table_files import write_csv, write_parquet
from typer.testing import CliRunner

import pocketbayes as pb
from pocketbayes.cli import app
from pocketbayes.data import MemoryLoader, open_dataset, table_from_file, with_validation
from pocketbayes.layers import describe
from pocketbayes.models import build_network

ROWS = 240


def messy_columns():
    """Customers: what they spent, and whether they came back; a tenth of the cells is empty."""
    rng = np.random.default_rng(5)
    age = rng.integers(18, 80, ROWS)
    colour = rng.choice(["red", "blue", "green"], ROWS)
    member = rng.random(ROWS) < 0.5
    spent = 2.0 * age + 40 * (colour == "red") + 20 * member + rng.normal(0, 5, ROWS)
    days = [dt.date(2020, 1, 1) + dt.timedelta(int(d)) for d in rng.integers(0, 900, ROWS)]
    times = [dt.datetime(2021, 1, 1) + dt.timedelta(hours=int(h)) for h in range(ROWS)]
    columns = {
        "customer": [f"c{n:04}" for n in range(ROWS)], "age": age.tolist(),
        "colour": colour.tolist(), "joined": days, "seen": times, "member": member.tolist(),
        "shop": ["north"] * ROWS, "spent": spent.round(2).tolist(),
        "back": (spent > np.median(spent)).tolist(),
    }  # fmt: skip
    for name in ("age", "colour", "joined", "member"):
        columns[name] = [None if rng.random() < 0.1 else cell for cell in columns[name]]
    columns["spent"][7] = columns["back"][7] = None
    return columns


NEW = {
    "member": ["true", "false", "true"], "customer": ["c9001", "c9002", "c9003"],
    "seen": ["2021-01-05T10:00", "", "2021-01-05T10:00"], "shop": ["north", "south", ""],
    "colour": ["red", "mauve", ""], "joined": ["2020-05-05"] * 3, "age": ["30", "", "70"],
}  # fmt: skip


def run(*words, code=0):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, done.output + str(done.exception)
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("messy")
    columns = messy_columns()
    write_csv(folder / "customers.csv", columns)
    write_parquet(folder / "customers.parquet", columns)
    write_csv(folder / "new.csv", NEW)
    write_parquet(folder / "new.parquet", NEW)
    return folder


def test_faults_of_a_first_try_say_what_to_do(folder):
    words = ["train", "--data", "csv", "--file", folder / "customers.csv", "--model", "mlp"]
    done = run(*words, "--out", folder / "failed", code=1)
    assert "line 9, column 'back'" in str(done.exception)
    assert "--drop-empty-targets" in str(done.exception)
    done = run(*words, "--drop-empty-targets", "--out", folder / "failed2", code=1)
    assert "--drop customer" in str(done.exception)
    done = run(*words, "--drop-empty-targets", "--drop", "custmer", "--out", folder / "x", code=1)
    assert "did you mean 'customer'" in str(done.exception)


@pytest.mark.parametrize(
    ("kind", "target", "other"),
    [("csv", "spent", "back"), ("parquet", "spent", "back"), ("csv", "back", "spent"),
     ("parquet", "back", "spent")],
)  # fmt: skip
def test_train_evaluate_predict_inspect_report(folder, kind, target, other):
    out = folder / f"{kind}-{target}"
    done = run(
        "train", "--data", kind, "--file", folder / f"customers.{kind}", "--target", target,
        "--drop", f"customer,{other}", "--drop-empty-targets", "--model", "mlp", "--hidden", "16",
        "--epochs", "15", "--out", out, "--device", "cpu",
    )  # fmt: skip
    assert "note: column 'shop' is constant in training and left out" in done.stderr
    numbers = json.loads(run("evaluate", out, "--json").stdout)
    assert numbers["num_examples"] == 48
    if target == "spent":
        assert numbers["rmse"] < 40  # the target's std is 42
    else:
        assert numbers["accuracy"] > 0.6
    held = json.loads(run("evaluate", out, "--split", "validation", "--json").stdout)
    metrics = json.loads((out / "metrics.json").read_text())
    assert held["nll"] == pytest.approx(metrics["validation"]["nll"], abs=1e-5)
    _check_predictions(folder, out, kind)
    said = run("inspect", out).stdout
    for words in ("age", "if empty", "3 words: blue, green, red, (empty), (other)", "time: days",
                  "left out: constant", "left out: asked", f"{target} "):  # fmt: skip
        assert words in said


def _check_predictions(folder, out, kind):
    for file in ("new.csv", "new.parquet"):
        rows = json.loads(run("predict", out, folder / file, "--json").stdout)["predictions"]
        assert [row["unfamiliar"] for row in rows] == ["", "colour=mauve, seen is empty", ""]
    done = run("predict", out, folder / f"new.{kind}", "--csv", out / "answers.csv")
    assert "colour=mauve" in done.stdout
    with (out / "answers.csv").open() as file:
        assert [row["unfamiliar"] for row in csv.DictReader(file)][1].startswith("colour=mauve")
    model = pb.load(out / "model.pocket")
    rows = table_from_file(folder / f"new.{kind}", describe(model).preprocess)
    assert rows.unfamiliar[1] == "colour=mauve, seen is empty"
    prediction = pb.predict(model, rows.inputs)
    assert len(prediction.epistemic) == 3


def test_another_table_with_new_words_is_measured_and_told(folder):
    out, columns = folder / "told", messy_columns()
    words = ["--target", "spent", "--drop", "customer,back", "--drop-empty-targets"]
    run("train", "--data", "csv", "--file", folder / "customers.csv", *words, "--model", "mlp",
        "--hidden", "4", "--epochs", "1", "--out", out)  # fmt: skip
    columns["colour"] = ["mauve"] * ROWS
    write_csv(folder / "other.csv", columns)
    page = folder / "page.html"
    done = run("report", out, "--data", "csv", "--file", folder / "other.csv", "--out", page)
    assert "48 of 48 rows of csv hold what training did not know: colour=mauve" in done.stderr
    assert "colour=mauve" in page.read_text()


def test_features_of_empty_cells_have_a_name(folder):
    out = folder / "gates"
    run("train", "--data", "csv", "--file", folder / "customers.csv", "--target", "spent",
        "--drop", "customer,back", "--drop-empty-targets", "--model", "mlp", "--hidden", "8",
        "--method", "spike-slab", "--granularity", "input", "--layers", "first", "--epochs", "2",
        "--out", out)  # fmt: skip
    found = json.loads(run("features", out, "--json").stdout)["features"]
    assert set(found) == {
        "age", "age is empty", "colour", "joined", "joined is empty", "seen", "member",
    }  # fmt: skip


def test_a_run_of_an_older_version_goes_on_as_it_was(tmp_path):
    """Its network has no input for other words, and its file no value for empty cells."""
    rng = np.random.default_rng(0)
    columns = {"x": rng.normal(size=80).tolist(), "c": rng.choice(["a", "b"], 80).tolist()}
    columns["y"] = rng.normal(size=80).tolist()
    words = ["--data", "csv", "--file", write_csv(tmp_path / "a.csv", columns), "--model", "mlp",
             "--hidden", "4", "--epochs", "1"]  # fmt: skip
    run("train", *words, "--out", tmp_path / "new")
    facts = pb.inspect(tmp_path / "new" / "model.pocket").preprocess
    for column in facts["columns"]:
        column.pop("fill", None)
        column.pop("other", None)
    data, _ = with_validation(
        open_dataset("csv", "train", file=str(tmp_path / "a.csv"), like=facts)
    )
    model = pb.bayesianize_(build_network("mlp", input_shape=(3,), num_outputs=1, hidden=(4,)))
    pb.fit(model, MemoryLoader(data, 16), epochs=1, likelihood="gaussian")
    pb.save(model, tmp_path / "new" / "model.pocket")
    run("train", "--parent", tmp_path / "new", "--epochs", "1", "--out", tmp_path / "next")
    assert pb.inspect(tmp_path / "next" / "model.pocket").preprocess == facts
    run("compress", tmp_path / "new", "--target-bytes", "1MB", "--epochs", "0",
        "--out", tmp_path / "small")  # fmt: skip
    (tmp_path / "b.csv").write_text("x,c\n1,z\n")
    done = run("predict", tmp_path / "next", tmp_path / "b.csv", code=1)
    assert "'z', which training did not know; it knew: a, b" in str(done.exception)
