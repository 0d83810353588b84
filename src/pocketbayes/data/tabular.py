"""Tables of your own, from CSV and Parquet files, and rows for a trained model to predict."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pocketbayes.data.columns import Column, Frame, canonical, read_frame
from pocketbayes.data.files import require_split
from pocketbayes.data.tables import TableSet, checked_table_preprocess, feature_scale
from pocketbayes.errors import DataError, require_choice

_MOST_VALUES, _MOST_CLASSES, _MOST_INTEGER_CLASSES = 100, 1000, 20
_TEST_SHARE, _SPLIT_SEED = 0.2, 20
_TASKS = ("auto", "classification", "regression")
_IF_MOVED = "; if it has moved, say its folder by root= (--root)"


def table(
    split: str,
    root: Path | None,
    file: str | Path,
    test_file: str | Path | None = None,
    target: str | None = None,
    task: str = "auto",
    like: dict[str, Any] | None = None,
    classes: tuple[str, ...] | None = None,
) -> TableSet:
    """A table of your own, CSV or Parquet, one example per row; words become one-hot.

    Args:
        split: "train" or "test".
        root: the folder that `file` and `test_file` are in, unless they are found without it.
        file: the table; a fixed fifth of its rows is the test set if there is no `test_file`.
        test_file: another table with the same columns, all of it the test set.
        target: the column to predict; the last one if not given.
        task: "classification", "regression", or "auto": classification if the target holds words
            or at most 20 different whole numbers.
        like: the preprocess of a trained model, to encode the rows as in its training.
        classes: the class names of that model, in its order.
    """
    require_split(split, "this table")
    require_choice(task, "task", _TASKS)
    if split == "test" and test_file is not None:
        if like is None:
            train = _fitted_table(_read(file, root), target, task, all_rows=True)
            like, classes = train.preprocess, train.classes
        return _encoded_table(_read(test_file, root), like, classes, target)
    if like is None:
        whole = _fitted_table(_read(file, root), target, task, all_rows=test_file is not None)
    else:
        whole = _encoded_table(_read(file, root), like, classes, target)
    return whole if test_file is not None else whole.subset(split_rows(len(whole), split))


def table_from_file(path: Path | str, preprocess: dict[str, Any]) -> tuple[Tensor, list[str]]:
    """Encodes the rows of a file as a trained model wants them; the target may be missing.

    Columns are found by name, in any order; those that the model does not know are passed over.

    Args:
        path: a CSV or Parquet file.
        preprocess: that of the model.

    Returns:
        Standardised features (N, D) in float32, and a name for each row, "file:1" and so on.
    """
    columns = checked_table_preprocess(preprocess)["columns"]
    frame = _read(str(path), None, advice="")
    mean, std = feature_scale(columns)
    features = ((encoded(frame, columns) - mean) / std).float()
    return features, [f"{Path(path).name}:{row + 1}" for row in range(frame.rows)]


def split_rows(rows: int, split: str) -> Tensor:
    """The fixed four fifths of the rows to train on, or the other fifth, in their order."""
    if rows < 2:
        raise DataError("a table of one row cannot be split; give more rows or a test_file")
    order = np.random.default_rng(_SPLIT_SEED).permutation(rows)
    test = max(1, round(_TEST_SHARE * rows))
    return torch.from_numpy(np.sort(order[:test] if split == "test" else order[test:]))


def _fitted_table(frame: Frame, target: str | None, task: str, all_rows: bool) -> TableSet:
    """All rows, with categories of all, and means and stds of those to train on."""
    goal = _target_column(frame, target)
    columns = [_layout(column) for column in frame.columns.values() if column is not goal]
    if not columns:
        raise DataError(f"{frame.path} has no column besides the target {goal.name!r}")
    classes = _classes(goal) if _is_classification(goal, task) else ()
    layout = {"kind": "table", "columns": columns, "target": {"name": goal.name}}
    targets = _labels(goal, classes) if classes else _values(goal)
    whole = TableSet(encoded(frame, columns), targets, layout, classes)
    train = whole if all_rows else whole.subset(split_rows(len(whole), "train"))
    return replace(whole, preprocess=train.refitted().preprocess)


def _encoded_table(
    frame: Frame, like: dict[str, Any], classes: tuple[str, ...] | None, target: str | None
) -> TableSet:
    """All rows, encoded as in the training of a model."""
    like = checked_table_preprocess(like)
    name = like["target"]["name"]
    if target not in (None, name):
        raise DataError(f"the model predicts {name!r}, not {target!r}: leave target away")
    goal = _target_column(frame, name)
    if "mean" in like["target"]:
        return TableSet(encoded(frame, like["columns"]), _values(goal), like)
    if not classes:
        raise DataError("a classification needs the class names of the model: classes=")
    features = encoded(frame, like["columns"])
    return TableSet(features, _labels(goal, classes), like, tuple(classes))


def encoded(frame: Frame, columns: list[dict[str, Any]]) -> Tensor:
    """Features (N, D), not standardised: numbers as they are, categories one-hot."""
    missing = [column["name"] for column in columns if column["name"] not in frame.columns]
    if missing:
        raise DataError(
            f"{frame.path} lacks the columns {', '.join(missing)}; it has: "
            f"{', '.join(frame.columns)}"
        )
    parts = []
    for column in columns:
        source = frame.columns[column["name"]]
        if "values" in column:
            chosen = _places(source, column["values"])
            parts.append(np.eye(len(column["values"]))[chosen])
        else:
            parts.append(source.numbers()[:, None])
    return torch.from_numpy(np.concatenate(parts, axis=1))


def _layout(column: Column) -> dict[str, Any]:
    if not column.is_text():
        return {"name": column.name}
    values = sorted(set(column.texts()))
    if len(values) > _MOST_VALUES:
        raise DataError(
            f"column {column.name!r} of {column.path} holds {len(values)} different words; at "
            f"most {_MOST_VALUES} can become features: leave it out, or group its values"
        )
    return {"name": column.name, "values": values}


def _places(column: Column, known: list[str] | tuple[str, ...]) -> np.ndarray:
    """The place of each cell among the known values."""
    places = {value: place for place, value in enumerate(known)}
    found = []
    for row, cell in enumerate(column.texts()):
        place = places.get(cell, places.get(canonical(cell)))
        if place is None:
            raise column.error(
                row, f"is {cell!r}, which training did not know; it knew: {', '.join(known)}"
            )
        found.append(place)
    return np.array(found)


def _target_column(frame: Frame, target: str | None) -> Column:
    if target is None:
        return list(frame.columns.values())[-1]
    if target not in frame.columns:
        raise DataError(
            f"{frame.path} has no column {target!r} to predict; it has: {', '.join(frame.columns)}"
        )
    return frame.columns[target]


def _is_classification(goal: Column, task: str) -> bool:
    if task != "auto":
        return task == "classification"
    if goal.is_text():
        return True
    return goal.is_whole() and len(np.unique(goal.numbers())) <= _MOST_INTEGER_CLASSES


def _classes(goal: Column) -> tuple[str, ...]:
    """Class names in order: words by the alphabet, numbers by size."""
    if goal.is_text():
        names = sorted(set(goal.texts()))
    else:
        goal.numbers()
        names = sorted({canonical(cell) for cell in goal.texts()}, key=float)
    if not 2 <= len(names) <= _MOST_CLASSES:
        raise DataError(
            f"the target {goal.name!r} of {goal.path} has {len(names)} different values; a "
            f"classification needs 2 to {_MOST_CLASSES}. Is it a regression, or another column?"
        )
    return tuple(names)


def _labels(goal: Column, classes: tuple[str, ...]) -> Tensor:
    return torch.from_numpy(_places(goal, classes).astype(np.int64))


def _values(goal: Column) -> Tensor:
    return torch.from_numpy(goal.numbers().astype(np.float64))


def _read(name: str | Path, root: Path | None, advice: str = _IF_MOVED) -> Frame:
    """The table in the file as named, or in the one of that name under the root.

    A run keeps the whole path of its table: if that has moved, the root is its new folder.
    """
    places = [Path(name).expanduser()]
    if root is not None:
        places += [root / name] if not places[0].is_absolute() else [root / places[0].name]
    for path in places:
        if path.is_file():
            return read_frame(path)
    listed = " nor ".join(str(path.absolute()) for path in dict.fromkeys(places))
    raise DataError(f"there is no file {listed}{advice}")
