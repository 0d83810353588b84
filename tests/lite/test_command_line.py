"""Pictures and tables as files: what `pocketbayes predict` makes of them."""

import csv
import io
import os
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from program_models import GOLDEN

import pocketbayes as pb
from pocketbayes.data import images_from_files, normalised, table_from_file
from pocketbayes.layers import update_description
from pocketbayes.layers.description import add_noise_parameter
from pocketbayes.models import build_network

IMAGES = {"kind": "image", "shape": [1, 8, 8], "mean": [0.3], "std": [0.2], "resize": "crop"}
TABLE = {"kind": "table", "target": {"name": "y", "mean": 5.0, "std": 2.0}, "columns": [
    {"name": "size", "mean": 2.0, "std": 3.0, "fill": 1.5, "empty": True},
    {"name": "paid", "values": ["false", "true"]},
    {"name": "kind", "values": ["1", "red"], "empty": True, "other": True},
    {"name": "plain", "mean": 0.0, "std": 1.0}]}  # fmt: skip


@pytest.fixture
def told(lite, capsys):
    from pocketbayes_lite.__main__ import main

    def run(*arguments):
        status, said = main([str(a) for a in arguments]), capsys.readouterr()
        assert status == (1 if said.err else 0)
        return said.err or list(csv.reader(io.StringIO(said.out), delimiter="\t"))

    return run


def model_for(path, width, outputs, **facts):
    torch.manual_seed(0)
    net = build_network("mlp", input_shape=(width,), num_outputs=outputs, hidden=(8,))
    model = pb.bayesianize_(net, std_init=0.1).eval()
    update_description(model, **facts)
    return model


@pytest.mark.parametrize("mode", ["L", "RGBA", "I;16", "P"])
@pytest.mark.parametrize("resize", ["crop", "stretch"])
def test_pictures_are_read_as_the_library_reads_them(lite, tmp_path, mode, resize):
    from pocketbayes_lite.pictures import images

    random, path = np.random.default_rng(0), tmp_path / "a.png"
    made = {
        "L": lambda: Image.fromarray(random.integers(0, 256, (21, 17), np.uint8)),
        "RGBA": lambda: Image.fromarray(random.integers(0, 256, (9, 12, 4), np.uint8)),
        "I;16": lambda: Image.fromarray(random.integers(0, 65536, (8, 8)).astype(np.uint16)),
        "P": lambda: Image.fromarray(random.integers(0, 256, (8, 8, 3), np.uint8)).quantize(9),
    }
    made[mode]().save(path)
    for channels in (1, 3):
        known = IMAGES | {"resize": resize, "shape": [channels, 8, 8]}
        known |= {"mean": [0.3] * channels, "std": [0.2] * channels}
        pixels, _ = images_from_files([path], known)
        found = images([path], known)
        np.testing.assert_allclose(found, normalised(pixels, known).numpy(), atol=1e-6)


def test_a_picture_from_file_to_answer(told, tmp_path):
    names = ("no", "yes")
    model = model_for(tmp_path, 64, 2, likelihood="categorical", class_names=names)
    x = torch.zeros(1, 1, 8, 8)
    update_description(model, preprocess=IMAGES)
    pb.save(model, tmp_path / "m.pocket", lossless=True, example=x)
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    rows = told("predict", tmp_path / "m.pocket", tmp_path / "a.png", "--estimator", "mean")
    given = (torch.from_numpy(pixels).float()[None, None] / 255 - 0.3) / 0.2
    expected = pb.predict(model, given, estimator="mean")
    assert rows[0][:3] == ["input", "class", "probability"]
    assert rows[1][1] == names[int(expected.label[0])]
    assert float(rows[1][2]) == pytest.approx(float(expected.confidence[0]), abs=1e-4)
    assert "cannot be read" in told("predict", tmp_path / "m.pocket", tmp_path / "none.png")
    shown = dict(row[:2] for row in told("inspect", tmp_path / "m.pocket"))
    assert shown["inputs"] == "1 x 8 x 8"
    assert shown["likelihood"] == "categorical"


CELLS = "kind;plain;size;paid\nred;1;7;True\n1.0;2; ;no\nblue;3;nan;yes\n;4;1e3;false\n"


def test_rows_are_read_as_the_library_reads_them(lite, tmp_path):
    from pocketbayes_lite.rows import table

    path = tmp_path / "rows.csv"
    path.write_text(CELLS)
    expected, names, _ = table_from_file(path, TABLE)
    found_names, found = table(path, TABLE)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-6)
    assert found_names == names


def test_a_table_from_file_to_answer(told, tmp_path):
    model = model_for(tmp_path, 9, 1, likelihood="gaussian", preprocess=TABLE)
    add_noise_parameter(model, (1,), "noise_log_std")
    pb.save(model, tmp_path / "m.pocket", lossless=True, example=torch.zeros(1, 9))
    (tmp_path / "rows.csv").write_text(CELLS)
    rows = told("predict", tmp_path / "m.pocket", tmp_path / "rows.csv")
    x, _, _ = table_from_file(tmp_path / "rows.csv", TABLE)
    expected = pb.predict(model, x)
    low, high = expected.interval(0.9)
    for row, mean, std, a, b in zip(rows[1:], expected.mean, expected.std, low, high, strict=True):
        wanted = [5 + 2 * float(mean), 2 * float(std), 5 + 2 * float(a), 5 + 2 * float(b)]
        assert [float(cell) for cell in row[1:5]] == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize("likelihood", ["poisson", "negative-binomial", "student-t"])
def test_counts_from_file_to_answer(told, tmp_path, likelihood):
    plain = TABLE | {"target": {"name": "y", "mean": 0.0, "std": 1.0}}
    model = model_for(tmp_path, 9, 1, likelihood=likelihood, preprocess=plain)
    for name in ("noise_log_scale", "noise_log_freedom", "noise_log_dispersion"):
        add_noise_parameter(model, (1,), name)
    pb.save(model, tmp_path / "m.pocket", lossless=True, example=torch.zeros(1, 9))
    (tmp_path / "rows.csv").write_text(CELLS)
    asked = ("--estimator", "mean")
    rows = told("predict", tmp_path / "m.pocket", tmp_path / "rows.csv", *asked)
    x, _, _ = table_from_file(tmp_path / "rows.csv", plain)
    expected = pb.predict(model, x, estimator="mean")
    low, high = expected.interval(0.9)
    assert rows[0] == ["input", "value", "std", "low 90%", "high 90%", "doubt"]
    for row, mean, std, a, b in zip(rows[1:], expected.mean, expected.std, low, high, strict=True):
        wanted = [float(mean), float(std), float(a), float(b)]
        assert [float(cell) for cell in row[1:5]] == pytest.approx(wanted, rel=1e-3)


def test_names_run_no_formula_and_drive_no_terminal(told, tmp_path):
    names = ("=1+1", "@\x1b[31m", "-1.5")
    facts = {"likelihood": "bernoulli", "preprocess": TABLE, "class_names": names}
    model = model_for(tmp_path, 9, 3, **facts)
    pb.save(model, tmp_path / "m.pocket", example=torch.zeros(1, 9))
    (tmp_path / "rows.csv").write_text(CELLS)
    rows = told("predict", tmp_path / "m.pocket", tmp_path / "rows.csv")
    assert rows[0][1:4] == ["p(=1+1)", "p(@\\x1b[31m)", "p(-1.5)"]
    update_description(model, likelihood="categorical")
    pb.save(model, tmp_path / "m.pocket", example=torch.zeros(1, 9))
    rows = told("predict", tmp_path / "m.pocket", tmp_path / "rows.csv")
    assert {row[1] for row in rows[1:]} <= {"'=1+1", "'@\\x1b[31m", "-1.5"}
    assert all(float(cell) >= 0 for row in rows[1:] for cell in row[2:6])
    assert "\x1b" not in told("predict", tmp_path / "m\x1b.pocket", tmp_path / "rows.csv")


def test_a_pipe_does_not_block(told, tmp_path):
    os.mkfifo(tmp_path / "m.pocket")
    assert "is no file" in told("inspect", tmp_path / "m.pocket")


@pytest.mark.parametrize(("text", "match"), [
    ("size,paid,kind\n1,yes,red\n", "lacks the column 'plain'"),
    ("size,paid,kind,plain\n1,yes,red\n", "line 2 of .* has 3 cells, not 4"),
    ("size,paid,kind,plain\nx,yes,red,1\n", "line 2, column 'size' .* must be a number"),
    ("size,paid,kind,plain\n1,maybe,red,1\n", "training did not know; it knew: false, true"),
    ("size,paid,kind,plain\n1,yes,red,\n", "is missing: fill it in"),
    ("size,paid,kind,plain\n", "rows below"),
])  # fmt: skip
def test_bad_rows_are_named(lite, tmp_path, text, match):
    from pocketbayes_lite.rows import table

    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(lite.LiteError, match=match):
        table(tmp_path / "rows.csv", TABLE)


@pytest.mark.parametrize(("column", "match"), [
    ({"name": "size", "date": "day", "mean": 0.0, "std": 1.0}, "is a date"),
    ({"name": 3}, "how rows become inputs"),
])  # fmt: skip
def test_columns_that_are_not_read(lite, tmp_path, column, match):
    from pocketbayes_lite.rows import table

    (tmp_path / "rows.csv").write_text("size\n1\n")
    with pytest.raises(lite.LiteError, match=match):
        table(tmp_path / "rows.csv", TABLE | {"columns": [column]})


def test_what_is_missing_is_said(told, lite, monkeypatch, tmp_path):
    assert "does not say how its inputs are prepared" in told(
        "predict", GOLDEN / "program-head.pocket", tmp_path / "a.png"
    )
    from pocketbayes_lite.pictures import images

    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(lite.LiteError, match="pip install pillow"):
        images([tmp_path / "a.png"], IMAGES)
