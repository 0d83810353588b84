"""The nine UCI regressions with Gal's splits, as tables.

DATA/uci_regression.npz holds NAME/data, NAME/features, NAME/target and NAME/test_K (row numbers).
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from pocketbayes.data import TableSet

UCI_SETS = (
    "bostonHousing", "concrete", "energy", "kin8nm", "naval-propulsion-plant", "power-plant",
    "protein-tertiary-structure", "wine-quality-red", "yacht",
)  # fmt: skip


def uci_tables(root: Path, name: str, split: int) -> tuple[TableSet, TableSet]:
    """Rows to train on and rows to test on, both standardised by the first."""
    with np.load(root / "uci_regression.npz") as file:
        rows, features = file[f"{name}/data"], file[f"{name}/features"].astype(int)
        target, test = int(file[f"{name}/target"]), file[f"{name}/test_{split}"].astype(int)
    columns = [{"name": f"x{i}", "mean": 0.0, "std": 1.0} for i in features]
    preprocess = {"kind": "table", "columns": columns, "target": {"name": "y"}}
    x, y = (torch.tensor(rows[:, i], dtype=torch.float64) for i in (features, target))
    everything = TableSet(x, y, preprocess)
    train = everything.subset(np.setdiff1d(np.arange(len(rows)), test)).refitted()
    return train, replace(everything.subset(test), preprocess=train.preprocess)
