"""Tables: standardisation, CSV and Parquet, and rows for a trained model."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from table_files import COLUMNS, write_csv, write_parquet

import pocketbayes as pb
from pocketbayes.data import TableSet, open_dataset, table_from_file
from pocketbayes.data.columns import canonical, parsed
from pocketbayes.data.tabular import split_rows


def both(tmp_path, columns):
    """The same table in both formats."""
    return {
        "csv": write_csv(tmp_path / "table.csv", columns),
        "parquet": write_parquet(tmp_path / "table.parquet", columns),
    }


def test_csv_and_parquet_give_the_same_classification(tmp_path):
    sets = [
        open_dataset(kind, split, file=file)
        for split in ("train", "test")
        for kind, file in both(tmp_path, COLUMNS).items()
    ]
    for first, second in (sets[:2], sets[2:]):
        assert torch.equal(first.features, second.features)
        assert torch.equal(first.targets, second.targets)
        assert first.preprocess == second.preprocess == sets[0].preprocess
        assert first.classes == ("a", "b")
        assert first.likelihood == "categorical"
    names = ("age", "colour=blue", "colour=red", "colour=(other)")  # green is once in training
    assert sets[0].feature_names == names
    assert (len(sets[0]), len(sets[2])) == (8, 2)
    assert json.loads(json.dumps(sets[0].preprocess)) == sets[0].preprocess


def test_values_end_up_where_they_belong(tmp_path):
    path = write_csv(tmp_path / "a.csv", COLUMNS)
    train = open_dataset("csv", "train", file=path, test_file=path)
    test = open_dataset("csv", "test", file=path, test_file=path)
    assert torch.equal(train.features, test.features)
    assert train.features[:, 0].tolist() == COLUMNS["age"]
    assert train.features[1].tolist() == [30, 1, 0, 0, 0]
    assert train.preprocess["dropped"] == {"fixed": "constant"}
    assert train.notes == ("column 'fixed' is constant in training and left out",)
    assert train.targets.tolist() == [0, 1] * 5
    x, y = train.batch(range(10))
    ages = np.array(COLUMNS["age"], float)
    assert x[:, 0].tolist() == pytest.approx(((ages - ages.mean()) / ages.std()).tolist(), abs=1e-6)
    assert x[:, 1:4].sum(1).tolist() == [1] * 10
    assert x[:, 4].tolist() == [0] * 10
    assert y.dtype == torch.int64


def test_regression_is_standardised(tmp_path):
    columns = {"x": np.linspace(0, 1, 50).tolist(), "y": np.linspace(5, 9, 50).tolist()}
    path = write_csv(tmp_path / "a.csv", columns)
    train = open_dataset("csv", "train", file=path)
    _, y = train.batch(range(len(train)))
    assert train.likelihood == "gaussian"
    assert train.classes == ()
    assert float(y.mean()) == pytest.approx(0, abs=1e-5)
    assert float(y.std(correction=0)) == pytest.approx(1, abs=1e-5)
    target = train.preprocess["target"]
    assert (y * target["std"] + target["mean"]).tolist() == pytest.approx(train.targets.tolist())


@pytest.mark.parametrize(
    ("values", "likelihood"),
    [
        ([True, False] * 15, "categorical"),
        (["yes", "no"] * 15, "categorical"),
        (list(range(20)) + [3] * 10, "categorical"),
        (list(range(30)), "gaussian"),
        ([0.5, 1.0] * 15, "gaussian"),
        ([1.0, 2.0] * 15, "gaussian"),
    ],
)
def test_the_task_follows_from_the_target(tmp_path, values, likelihood):
    for kind, file in both(tmp_path, {"x": list(range(30)), "y": values}).items():
        assert open_dataset(kind, "train", file=file).likelihood == likelihood


def test_the_task_and_the_target_can_be_given(tmp_path):
    columns = {"y": [10, 2, 10, 2] * 5, "x": [float(i) for i in range(20)]}
    for kind, file in both(tmp_path, columns).items():
        data = open_dataset(kind, "train", file=file, target="y")
        assert data.classes == ("2", "10")
        assert data.feature_names == ("x",)
        forced = open_dataset(kind, "train", file=file, target="y", task="regression")
        assert forced.likelihood == "gaussian"
        floats = open_dataset(kind, "train", file=file, target="x", task="classification")
        assert floats.classes == tuple(map(str, range(20)))


def test_semicolons_tabs_spaces_quotes_and_a_byte_order_mark(tmp_path):
    for separator in ";\t":
        path = write_csv(tmp_path / "a.csv", COLUMNS, separator)
        assert open_dataset("csv", "train", file=path).classes == ("a", "b")
    text = '\ufeff"x", kind\n1, "a, or b"\n\n 2 , c\n3,c\n'
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    data = open_dataset("csv", "train", file=path, test_file=path)
    assert data.classes == ("a, or b", "c")
    assert data.features.tolist() == [[1], [2], [3]]


def test_a_file_is_found_under_the_root(tmp_path, monkeypatch):
    write_csv(tmp_path / "a.csv", COLUMNS)
    assert len(open_dataset("csv", "train", tmp_path, file="a.csv")) == 8
    monkeypatch.setenv("POCKETBAYES_DATA", str(tmp_path))
    assert len(open_dataset("csv", "train", file="a.csv")) == 8
    with pytest.raises(pb.DataError, match=r"no file .*b\.csv nor .*b\.csv.*--root"):
        open_dataset("csv", "train", file="b.csv")
    moved = tmp_path / "gone" / "a.csv"
    assert len(open_dataset("csv", "train", tmp_path, file=moved)) == 8


@given(st.integers(2, 500))
def test_the_split_of_a_file_is_fixed_disjoint_and_a_fifth(rows):
    train, test = split_rows(rows, "train").tolist(), split_rows(rows, "test").tolist()
    assert sorted(train + test) == list(range(rows))
    assert abs(len(test) - rows / 5) <= 0.5 or len(test) == 1
    assert split_rows(rows, "test").tolist() == test


def test_a_test_file_is_encoded_as_the_training_file(tmp_path):
    path = write_csv(tmp_path / "a.csv", COLUMNS)
    other = tmp_path / "b.csv"
    other.write_text("kind,extra,colour,age\nb,?,green,25\n")
    test = open_dataset("csv", "test", file=path, test_file=str(other))
    train = open_dataset("csv", "train", file=path, test_file=str(other))
    assert len(train) == 10
    assert test.features.tolist() == [[25, 0, 1, 0, 0]]
    assert test.targets.tolist() == [1]
    assert test.preprocess == train.preprocess
    for text, message in (
        ("age,colour,kind\n1,red,c\n", "line 2, .*'kind'.* 'c'.*a, b"),
        ("age,kind\n1,a\n", "lacks the columns colour; it has: age, kind"),
    ):
        other.write_text(text)
        with pytest.raises(pb.DataError, match=message):
            open_dataset("csv", "test", file=path, test_file=str(other))


def test_another_file_is_encoded_as_in_the_training_of_a_model(tmp_path):
    columns = {"code": ["1", "2", "x", "x"] * 5, "n": list(range(20)), "y": [7, 3] * 10}
    train = open_dataset("csv", "train", file=write_csv(tmp_path / "a.csv", columns))
    stored = json.loads(json.dumps(train.preprocess))
    shifted = {"y": [3, 3, 7], "n": [100.5, 200.5, 300.5], "code": [1, 2, 2]}
    for kind, file in both(tmp_path, shifted).items():
        options = {"file": file, "like": stored, "classes": train.classes}
        test = open_dataset(kind, "test", test_file=file, **options)
        codes = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0]]
        assert test.features.tolist() == [[*codes[n], 100.5 + 100 * n] for n in range(3)]
        assert [test.classes[label] for label in test.targets] == ["3", "3", "7"]
        assert test.preprocess == stored
        assert len(open_dataset(kind, "test", **options)) == 1
        with pytest.raises(pb.DataError, match="predicts 'y', not 'n'"):
            open_dataset(kind, "test", target="n", **options)
        with pytest.raises(pb.DataError, match="classes="):
            open_dataset(kind, "test", file=file, like=stored)


def test_rows_for_prediction_are_those_of_the_batches(tmp_path):
    for file in both(tmp_path, COLUMNS).values():
        train = open_dataset("csv", "train", file=file, test_file=file)
        rows, labels, unfamiliar = table_from_file(file, train.preprocess)
        assert torch.equal(rows, train.batch(range(10))[0])
        assert labels == [f"{Path(file).name}:{number}" for number in range(1, 11)]
        assert unfamiliar == ("",) * 10
    without = {name: COLUMNS[name] for name in ("colour", "age")} | {"more": [None] * 10}
    for file in both(tmp_path, without).values():
        assert torch.equal(table_from_file(file, train.preprocess)[0], rows)


def test_rows_for_prediction_that_do_not_fit(tmp_path):
    path = write_csv(tmp_path / "a.csv", COLUMNS)
    preprocess = open_dataset("csv", "train", file=path).preprocess
    other = tmp_path / "b.csv"
    for text, message in (
        ("age\n1\n", "lacks the columns colour; it has: age"),
        ("age,colour\nold,red\n", "line 2, .*'age'.*'old'"),
        ("age,colour\n1e99,red\n", "line 2, .*'age'.*'1e99'"),
    ):
        other.write_text(text)
        with pytest.raises(pb.DataError, match=message):
            table_from_file(other, preprocess)


SOUND = {"kind": "table", "columns": [{"name": "x", "mean": 0, "std": 1}], "target": {"name": "y"}}


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "image"},
        {"columns": []},
        {"columns": "x"},
        {"columns": [{"name": "x"}]},
        {"columns": [{"name": "x", "mean": 0, "std": 0}]},
        {"columns": [{"name": "x", "mean": float("inf"), "std": 1}]},
        {"columns": [{"name": 5, "mean": 0, "std": 1}]},
        {"columns": [{"name": "x", "values": []}]},
        {"columns": [{"name": "x", "values": ["a", "a"]}]},
        {"columns": [{"name": "x", "values": [["a"]]}]},
        {"columns": [{"name": "x", "values": ["a"], "other": "yes"}]},
        {"columns": [{"name": "x", "values": ["a", "a"], "mean": 0, "std": 1}]},
        {"columns": [{"name": "x", "mean": 0, "std": 1, "fill": float("nan")}]},
        {"columns": [{"name": "x", "mean": 0, "std": 1, "empty": True}]},
        {"columns": [{"name": "x", "mean": 0, "std": 1, "fill": 0, "empty": 1}]},
        {"columns": [{"name": "x", "mean": 0, "std": 1, "date": "hour"}]},
        {"columns": [{"name": "x", "mean": 0, "std": 1, "date": ["day"]}]},
        {"columns": SOUND["columns"] * 2},
        {"target": None},
        {"target": {"name": None}},
        {"target": {"name": "y", "mean": "a"}},
    ],
)
def test_a_preprocess_of_a_hostile_file_is_an_error(tmp_path, change):
    (tmp_path / "a.csv").write_text("x\n1\n")
    table_from_file(tmp_path / "a.csv", SOUND)
    with pytest.raises(pb.DataError):
        table_from_file(tmp_path / "a.csv", SOUND | change)


@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=2, max_size=40))
def test_numbers_survive_a_csv(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    columns = {"x": range(len(values)), "y": [repr(value) for value in values]}
    data = open_dataset(
        "csv", "train", file=write_csv(path, columns), test_file=str(path), task="regression"
    )
    assert torch.equal(data.targets, torch.tensor(values, dtype=torch.float64))


@given(st.lists(st.text(max_size=5), max_size=10))
def test_parsing_agrees_with_float(cells):
    for cell, number in zip(cells, parsed(cells), strict=True):
        try:
            assert number == float(cell) or np.isnan(float(cell)) or "_" in cell
        except ValueError:
            assert np.isnan(number)


def test_spellings_of_whole_numbers():
    spellings = {"1": "1", "+1": "1", "1.0": "1", "1e2": "100", "-0": "0", "1.5": "1.5"}
    assert {text: canonical(text) for text in spellings} == spellings
    assert [canonical(text) for text in ("a", "inf", "nan", "1_0")] == ["a", "inf", "nan", "1_0"]


def test_wrong_tensors_are_named():
    with pytest.raises(pb.DataError, match="float64"):
        TableSet(torch.zeros(2, 1), torch.zeros(2).double(), SOUND)
    with pytest.raises(pb.DataError, match=r"\(2,\)"):
        TableSet(torch.zeros(2, 1).double(), torch.zeros(2, 1).double(), SOUND)


def test_subset_and_device_keep_everything_else():
    data = TableSet(torch.rand(5, 1).double(), torch.arange(5), SOUND, ("a",), support=(0,))
    part = data.subset([4, 0]).to("cpu")
    assert part.targets.tolist() == [4, 0]
    assert torch.equal(part.features, data.features[[4, 0]])
    assert (part.preprocess, part.classes, part.support) == (SOUND, ("a",), (0,))


def test_large_numbers_with_small_differences_keep_them(tmp_path):
    times = [1_700_000_000 + n for n in range(40)]
    lines = [f"{t},{1e8 + n / 10}" for n, t in enumerate(times)]
    (tmp_path / "a.csv").write_text("\n".join(["time,y", *lines]) + "\n")
    data = open_dataset("csv", "train", file=tmp_path / "a.csv", task="regression")
    x, y = data.batch(range(len(data)))
    assert x.dtype == y.dtype == torch.float32
    assert len(x.unique()) == len(y.unique()) == len(data)
    assert float(y.std()) == pytest.approx(1, abs=0.05)


def test_parquet_without_its_package_says_what_to_install(tmp_path, monkeypatch):
    path = write_parquet(tmp_path / "a.parquet", COLUMNS)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(pb.PocketBayesError, match=r"pip install 'pocketbayes\[tabular\]'"):
        open_dataset("parquet", "train", file=path)
