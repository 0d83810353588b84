"""Broken CSV and Parquet files: each fault is named with its place."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from table_files import COLUMNS, write_csv, write_parquet

import pocketbayes as pb
from pocketbayes.data import open_dataset

FAULTS = {
    "empty value": ("x,y\n1,2.5\n2,\n3,\n", r"line 3, .*'y'.*2 of 3 targets.*--drop-empty-targets"),
    "empty class": ("x,y\n1,a\n2,\n3,b\n", r"line 3, column 'y'.*is empty, as 1 of 3"),
    "nan": ("x,y\n1,2.5\n2,NaN\n", r"line 3, column 'y'.*is empty"),
    "infinite": ("x,y\n1,2.5\n2,1e999\n", r"line 3, column 'y'.*'1e999'"),
    "infinite cell": ("x,y\n1,2.5\n-inf,1\n", r"line 3, column 'x'.*'-inf'"),
    "too large": ("x,y\n1e39,2.5\n2,1.5\n", r"line 2, column 'x'.*float32"),
    "word": ("x,y\n1,2.5\n2,3.5\nabc,4.5\n", r"line 4, column 'x'.*'abc'"),
    "underscore": ("x,y\n1,2.5\n2,3.5\n1_0,4.5\n", r"line 4, column 'x'.*'1_0'"),
    "no date": ("d,y\n2020-01-01,1\n2020-01-02,2\nsoon,3\n", r"line 4, column 'd'.*'soon'.*a date"),
    "no such day": ("d,y\n2020-02-28,1\n2020-02-29,2\n2021-02-29,3\n", r"line 4, .*'2021-02-29'"),
    "date to predict": ("x,y\n1,2020-01-01\n2,2020-01-02\n", r"column 'y'.*is a date"),
    "ragged": ("x,y\n1,2\n3\n", r"line 3 of .* 1 cells, the header has 2"),
    "too long": ("x,y\n1,2\n3,4,5\n", r"line 3 .* 3 cells"),
    "ragged after a cell of two lines": ('x,y\n"1\n",2\n\n3\n', "line 5 of .* 1 cells"),
    "word after a cell of two lines": ('c,x,y\n"a\nb",1,2\na,2,3\na,z,4\n', "line 5, .*'z'"),
    "duplicate": ("x,x,y\n1,2,3\n", "two columns named 'x'"),
    "nameless": (",x,y\n0,1,2\n", "column 1 .*has no name.*index=False"),
    "no header": ("1,2.5\n3,4.5\n", "must name the columns"),
    "empty": ("", "is empty"),
    "blank": ("\n\n", "is empty"),
    "only a header": ("x,y\n", "no row"),
    "only a target": ("y\n1.5\n2.5\n", "no column to learn from"),
    "one row": ("x,y\n1,2.5\n", "one row cannot be split"),
    "one class": ("x,y\n1,a\n2,a\n", "1 different values"),
    "open quote": ('x,y\n1,2\n1,"2.5\n3,4\n', "cannot be read as CSV.*line 3"),
    "huge cell": ("x,y\n1,2\n" + 200_000 * "a" + ",3\n", "cannot be read as CSV.*line 3"),
    "names": ("name,y\nann,1\nbob,2\ncid,3\n", "column 'name'.*such as .*identifier.*--drop name"),
    "nothing to learn from": ("x,e,y\n1,,1\n1,,2\n1,,3\n", "no column to learn from"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_a_csv_are_named(tmp_path, fault):
    text, message = FAULTS[fault]
    path = tmp_path / "broken.csv"
    path.write_text(text)
    with pytest.raises(pb.DataError, match=message) as caught:
        open_dataset("csv", "train", file=str(path))
    if fault != "one row":
        assert "broken.csv" in str(caught.value)


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"x,y\n\xff\xfe,1\n")
    with pytest.raises(pb.DataError, match=r"line 2 of .*a\.csv is not UTF-8 \(byte 0xff\)"):
        open_dataset("csv", "train", file=str(path))
    path.write_text("x,y\n1,2\n", encoding="utf-16")
    with pytest.raises(pb.DataError, match=r"line 1 of .*seems to be in UTF-16: save it as UTF-8"):
        open_dataset("csv", "train", file=str(path))


def test_faults_of_a_parquet_are_named(tmp_path):
    path = tmp_path / "a.parquet"
    for columns, message in (
        ({"x": [1, 2], "y": [None, 2.5]}, "row 1, column 'y'.*is empty"),
        ({"x": [1, 2], "y": [1.5, float("nan")]}, "row 2, column 'y'.*is empty"),
        ({"x": [1, 2], "y": ["a", None]}, "row 2, column 'y'.*is empty"),
        ({"x": [1, 2], "y": pa.nulls(2)}, "row 1, column 'y'.*2 of 2"),
        ({"x": [1.0, float("inf")], "y": [1.5, 2.5]}, "row 2, column 'x'.*'inf'"),
        ({"c": [[1], [2]], "y": [1.5, 2.5]}, "column 'c'.*list.*--drop c"),
        ({"x": [1, 2], "d": np.array(["2020-01-01"] * 2, "M8[s]")}, "column 'd'.*is a date"),
        ({"x": pa.array([], pa.int64()), "y": pa.array([], pa.int64())}, "no row"),
    ):
        with pytest.raises(pb.DataError, match=message):
            open_dataset("parquet", "train", file=write_parquet(path, columns))
    twins = pa.Table.from_arrays([pa.array([1, 2])] * 2, names=["x", "x"])
    pq.write_table(twins, path)
    with pytest.raises(pb.DataError, match="two columns named 'x'"):
        open_dataset("parquet", "train", file=str(path))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(pb.DataError, match=r"a\.parquet cannot be read as Parquet"):
        open_dataset("parquet", "train", file=str(path))


def test_unknown_target_and_task(tmp_path):
    path = write_csv(tmp_path / "a.csv", COLUMNS)
    with pytest.raises(pb.DataError, match=r"no column 'size'.*age, colour, fixed, kind"):
        open_dataset("csv", "train", file=path, target="size")
    with pytest.raises(pb.PocketBayesError, match="task must be one of"):
        open_dataset("csv", "train", file=path, task="ranking")
    with pytest.raises(pb.DataError, match=r"line 2, .*'kind'"):
        open_dataset("csv", "train", file=path, task="regression")
    with pytest.raises(pb.DataError, match=r"no column 'colr' to drop; did you mean 'colour'"):
        open_dataset("csv", "train", file=path, drop=["colr"])
    with pytest.raises(pb.DataError, match=r"'kind' .*is the target"):
        open_dataset("csv", "train", file=path, drop=["kind"])
    with pytest.raises(pb.DataError, match="must be a list"):
        open_dataset("csv", "train", file=path, drop="age")
    with pytest.raises(pb.DataError, match="no split 'val'"):
        open_dataset("csv", "val", file=path)
