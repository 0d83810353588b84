"""Simulated regressions, of which one knows the features that matter."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pocketbayes.data.files import require_split
from pocketbayes.data.tables import TableSet
from pocketbayes.errors import DataError, require_count, require_number

Floats = NDArray[np.float64]


def friedman(
    split: str,
    root: Path | None,
    features: int = 50,
    rows: int = 1000,
    noise: float = 1.0,
    data_seed: int = 0,
) -> TableSet:
    """Friedman's first function of five features, among others that do not matter.

    y = 10 sin(pi x1 x2) + 20 (x3 - 1/2)^2 + 10 x4 + 5 x5 + noise N(0, 1), all x uniform on 0..1
    (J. Friedman 1991, Multivariate adaptive regression splines).

    Args:
        split: "train" or "test", which have as many rows.
        root: not needed.
        features: columns in all, at least 5.
        rows: examples in each split.
        noise: the standard deviation of the noise.
        data_seed: another number gives other data of the same kind.
    """
    require_count(features, "features", least=5)

    def draw(rng: np.random.Generator) -> tuple[Floats, Floats]:
        x = rng.random((rows, features))
        return x, friedman_mean(x) + noise * rng.standard_normal(rows)

    return _simulation("friedman", split, draw, tuple(range(5)), rows, noise, data_seed)


def friedman_mean(x: Floats) -> Floats:
    """The function without its noise."""
    wave = 10 * np.sin(np.pi * x[:, 0] * x[:, 1])
    mean: Floats = wave + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    return mean


def sparse_linear(
    split: str,
    root: Path | None,
    features: int = 100,
    relevant: int = 10,
    rows: int = 500,
    noise: float = 1.0,
    data_seed: int = 0,
) -> TableSet:
    """A linear function of a few of many features, all standard normal.

    The coefficients are at random places, of random sign and of a size uniform on 1..2.

    Args:
        split: "train" or "test", which have as many rows and the same coefficients.
        root: not needed.
        features: columns in all.
        relevant: columns with a coefficient.
        rows: examples in each split.
        noise: the standard deviation of the noise.
        data_seed: another number gives other coefficients and data.
    """
    require_count(features, "features")
    if require_count(relevant, "relevant") > features:
        raise DataError(f"relevant={relevant} features of {features}: raise features or lower it")
    require_count(data_seed, "data_seed", least=0)
    coefficients = sparse_coefficients(features, relevant, data_seed)

    def draw(rng: np.random.Generator) -> tuple[Floats, Floats]:
        x = rng.standard_normal((rows, features))
        return x, x @ coefficients + noise * rng.standard_normal(rows)

    support = tuple(np.flatnonzero(coefficients).tolist())
    return _simulation("sparse-linear", split, draw, support, rows, noise, data_seed)


def sparse_coefficients(features: int, relevant: int, data_seed: int) -> Floats:
    """Those of `sparse_linear`: mostly zeros."""
    rng = np.random.default_rng([data_seed, 2])
    coefficients = np.zeros(features)
    places = rng.choice(features, relevant, replace=False)
    coefficients[places] = rng.choice([-1.0, 1.0], relevant) * rng.uniform(1, 2, relevant)
    return coefficients


def sparse_mlp(
    split: str,
    root: Path | None,
    features: int = 50,
    relevant: int = 5,
    units: int = 8,
    rows: int = 1000,
    noise: float = 0.2,
    data_seed: int = 0,
) -> TableSet:
    """A small network of a few of many features, all standard normal: y = v tanh(W x) + noise.

    W and v are standard normal, and y has a standard deviation of about 1 before its noise.

    Args:
        split: "train" or "test", which have as many rows and the same network.
        root: not needed.
        features: columns in all.
        relevant: columns that the network reads, at random places.
        units: of its hidden layer.
        rows: examples in each split.
        noise: the standard deviation of the noise.
        data_seed: another number gives another network and other data.
    """
    require_count(features, "features")
    require_count(units, "units")
    if require_count(relevant, "relevant") > features:
        raise DataError(f"relevant={relevant} features of {features}: raise features or lower it")
    require_count(data_seed, "data_seed", least=0)
    rng = np.random.default_rng([data_seed, 3])
    support = np.sort(rng.choice(features, relevant, replace=False))
    inner, outer = rng.standard_normal((relevant, units)), rng.standard_normal(units)
    usual = np.tanh(rng.standard_normal((10_000, relevant)) @ inner) @ outer

    def draw(rng: np.random.Generator) -> tuple[Floats, Floats]:
        x = rng.standard_normal((rows, features))
        clean = np.tanh(x[:, support] @ inner) @ outer / usual.std()
        return x, clean + noise * rng.standard_normal(rows)

    return _simulation("sparse-mlp", split, draw, tuple(support.tolist()), rows, noise, data_seed)


def _simulation(
    name: str,
    split: str,
    draw: Callable[[np.random.Generator], tuple[Floats, Floats]],
    support: tuple[int, ...],
    rows: int,
    noise: float,
    data_seed: int,
) -> TableSet:
    """One split, standardised by the means and stds of the training rows."""
    require_split(split, name)
    require_count(rows, "rows")
    require_number(noise, "noise", least=0)
    require_count(data_seed, "data_seed", least=0)
    train = _table(*draw(np.random.default_rng([data_seed, 0])), support).refitted()
    if split == "train":
        return train
    test = _table(*draw(np.random.default_rng([data_seed, 1])), support)
    return TableSet(test.features, test.targets, train.preprocess, support=support)


def _table(x: Floats, y: Floats, support: tuple[int, ...]) -> TableSet:
    columns = [{"name": f"x{number + 1}"} for number in range(x.shape[1])]
    layout: dict[str, Any] = {"kind": "table", "columns": columns, "target": {"name": "y"}}
    return TableSet(torch.from_numpy(x), torch.from_numpy(y), layout, support=support)
