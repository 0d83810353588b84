"""Small tables as CSV and Parquet files."""

import csv

import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = {
    "age": [20, 30, 40, 50, 60, 70, 80, 90, 35, 45],
    "colour": ["red", "blue", "red", "green", "blue", "red", "red", "blue", "green", "red"],
    "fixed": [1.5] * 10,
    "kind": ["a", "b", "a", "b", "a", "b", "a", "b", "a", "b"],
}


def write_csv(path, columns, separator=","):
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return str(path)


def write_parquet(path, columns):
    pq.write_table(pa.table(columns), path)
    return str(path)
