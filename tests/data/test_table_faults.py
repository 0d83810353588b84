"""Broken CSV and Parquet files: each fault is named with its place."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from table_files import COLUMNS, write_csv, write_parquet

import pocketbayes as pb
from pocketbayes.data import open_dataset

FAULTS = {
    "missing number": ("x,y\n1,2.5\n,3.5\n", r"row 2 after the header, column 'x'.*missing"),
    "nan": ("x,y\n1,2.5\nNaN,3.5\n", r"row 2 .*column 'x'.*missing"),
    "na": ("x,y\n1,2.5\nNA,3.5\n", r"row 2 .*column 'x'.*missing"),
    "infinite": ("x,y\n1,2.5\n2,1e999\n", r"row 2 .*column 'y'.*'1e999'"),
    "too large": ("x,y\n1e39,2.5\n2,1.5\n", r"row 1 .*column 'x'.*float32"),
    "word": ("x,y\n1,2.5\n2,3.5\nabc,4.5\n", r"row 3 .*column 'x'.*'abc'"),
    "underscore": ("x,y\n1,2.5\n2,3.5\n1_0,4.5\n", r"row 3 .*column 'x'.*'1_0'"),
    "missing word": ("c,y\na,1.5\nb,2.5\n,3.5\n", r"row 3 .*column 'c'.*missing"),
    "missing class": ("x,y\n1,a\n2,\n3,b\n", r"row 2 .*column 'y'.*missing"),
    "ragged": ("x,y\n1,2\n3\n", r"row 2 after the header .* 1 cells, the header has 2"),
    "too long": ("x,y\n1,2\n3,4,5\n", r"row 2 .* 3 cells"),
    "duplicate": ("x,x,y\n1,2,3\n", "two columns named 'x'"),
    "nameless": (",x,y\n0,1,2\n", "column 1 .*has no name.*index=False"),
    "no header": ("1,2.5\n3,4.5\n", "must name the columns"),
    "empty": ("", "is empty"),
    "blank": ("\n\n", "is empty"),
    "only a header": ("x,y\n", "no row"),
    "only a target": ("y\n1.5\n2.5\n", "no column besides"),
    "one row": ("x,y\n1,2.5\n", "one row cannot be split"),
    "one class": ("x,y\n1,a\n2,a\n", "1 different values"),
    "open quote": ('x,y\n1,"2.5\n', "cannot be read as CSV"),
    "many words": (
        "c,y\n" + "".join(f"w{i},{i}.5\n" for i in range(101)),
        "column 'c'.* 101 different words",
    ),
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
    with pytest.raises(pb.DataError, match=r"a\.csv cannot be read as CSV"):
        open_dataset("csv", "train", file=str(path))


def test_faults_of_a_parquet_are_named(tmp_path):
    path = tmp_path / "a.parquet"
    for columns, message in (
        ({"x": [1, None], "y": [1.5, 2.5]}, "row 2 .*column 'x'.*missing"),
        ({"x": [1.0, float("nan")], "y": [1.5, 2.5]}, "row 2 .*column 'x'.*missing"),
        ({"c": ["a", None], "y": [1.5, 2.5]}, "row 2 .*column 'c'.*missing"),
        ({"c": [[1], [2]], "y": [1.5, 2.5]}, "column 'c'.*list"),
        ({"d": np.array(["2020-01-01"] * 2, "M8[s]"), "y": [1.5, 2.5]}, "column 'd'.*timestamp"),
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
    with pytest.raises(pb.DataError, match=r"row 1 .*'kind'"):
        open_dataset("csv", "train", file=path, task="regression")
    with pytest.raises(pb.DataError, match="no split 'val'"):
        open_dataset("csv", "val", file=path)
