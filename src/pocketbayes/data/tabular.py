"""Tables of your own, from CSV and Parquet files, and rows for a trained model to predict."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pocketbayes.data.columns import Column, Frame, canonical
from pocketbayes.data.encoding import encoded, fitted_column, labels_of, one_spelling
from pocketbayes.data.features import Scale, checked_table_preprocess
from pocketbayes.data.files import require_split
from pocketbayes.data.frames import read_frame
from pocketbayes.data.tables import TableSet
from pocketbayes.errors import DataError, nearest, require_choice

_MOST_CLASSES, _MOST_INTEGER_CLASSES = 1000, 20
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
    drop: Sequence[str] = (),
    drop_empty_targets: bool = False,
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
        drop: columns to leave out, by name.
        drop_empty_targets: leave out rows whose target is empty, instead of an error.
        like: the preprocess of a trained model, to encode the rows as in its training.
        classes: the class names of that model, in its order.
    """
    require_split(split, "this table")
    require_choice(task, "task", _TASKS)
    all_rows = test_file is not None
    if like is not None:
        target = _known_target(like, target)

    def read(name: str | Path) -> Frame:
        return _with_targets(_read(name, root), target, drop_empty_targets)

    if split == "test" and test_file is not None:
        if like is None:
            train = _fitted_table(read(file), target, task, drop, all_rows)
            like, classes = train.preprocess, train.classes
        return _encoded_table(read(test_file), like, classes)
    if like is None:
        whole = _fitted_table(read(file), target, task, drop, all_rows)
    else:
        whole = _encoded_table(read(file), like, classes)
    return whole if all_rows else whole.subset(split_rows(len(whole), split))


class TableRows(NamedTuple):
    """Rows for a model to predict.

    Attributes:
        inputs: (N, D) standardised features in float32.
        names: of each row, "file:1" and so on.
        unfamiliar: of each row, the cells that training did not know: "colour=mauve".
    """

    inputs: Tensor
    names: list[str]
    unfamiliar: tuple[str, ...]


def table_from_file(path: Path | str, preprocess: dict[str, Any]) -> TableRows:
    """Encodes the rows of a file as a trained model wants them; the target may be missing.

    Columns are found by name, in any order; those that the model does not know are passed over.

    Args:
        path: a CSV or Parquet file.
        preprocess: that of the model.
    """
    checked_table_preprocess(preprocess)
    frame = _read(str(path), None, advice="")
    features, unfamiliar = encoded(frame, preprocess["columns"])
    inputs = Scale.of(preprocess).standardised(torch.from_numpy(features))
    names = [f"{Path(path).name}:{row + 1}" for row in range(frame.length)]
    return TableRows(inputs, names, unfamiliar)


def split_rows(rows: int, split: str) -> Tensor:
    """The fixed four fifths of the rows to train on, or the other fifth, in their order."""
    if rows < 2:
        raise DataError("a table of one row cannot be split; give more rows or a test_file")
    order = np.random.default_rng(_SPLIT_SEED).permutation(rows)
    test = max(1, round(_TEST_SHARE * rows))
    return torch.from_numpy(np.sort(order[:test] if split == "test" else order[test:]))


def _fitted_table(
    frame: Frame, target: str | None, task: str, drop: Sequence[str], all_rows: bool
) -> TableSet:
    """All rows, with words, means, stds and medians of those to train on."""
    goal = _target_column(frame, target)
    _require_droppable(frame, goal, drop)
    classes = _classes(goal) if _is_classification(goal, task) else ()
    train = np.arange(frame.length) if all_rows else split_rows(frame.length, "train").numpy()
    found = {
        name: fitted_column(column, train)
        for name, column in frame.columns.items()
        if column is not goal and name not in drop
    }
    columns = [fitted.column for fitted in found.values() if not fitted.left_out]
    if not columns:
        raise DataError(
            f"{frame.path} has no column to learn from besides the target {goal.name!r}"
        )
    dropped = dict.fromkeys(drop, "asked")
    dropped |= {name: fitted.left_out for name, fitted in found.items() if fitted.left_out}
    preprocess = {"kind": "table", "columns": columns, "target": {"name": goal.name}}
    preprocess |= {"dropped": dropped} if dropped else {}
    whole = _table_set(frame, goal, preprocess, classes)
    notes = tuple(fitted.note for fitted in found.values() if fitted.note)
    return replace(whole, preprocess=whole.subset(train).refitted().preprocess, notes=notes)


def _encoded_table(frame: Frame, like: dict[str, Any], classes: tuple[str, ...] | None) -> TableSet:
    """All rows, encoded as in the training of a model."""
    goal = _target_column(frame, like["target"]["name"])
    if "mean" not in like["target"] and not classes:
        raise DataError("a classification needs the class names of the model: classes=")
    return _table_set(frame, goal, like, () if "mean" in like["target"] else tuple(classes or ()))


def _table_set(
    frame: Frame, goal: Column, preprocess: dict[str, Any], classes: tuple[str, ...]
) -> TableSet:
    features, unfamiliar = encoded(frame, preprocess["columns"])
    targets = labels_of(goal, classes) if classes else goal.numbers()
    return TableSet(
        torch.from_numpy(features),
        torch.from_numpy(targets),
        preprocess,
        classes,
        unfamiliar=unfamiliar if any(unfamiliar) else (),
    )


def _known_target(like: dict[str, Any], target: str | None) -> str:
    """The target of a trained model; another one that was asked for is an error."""
    name: str = checked_table_preprocess(like)["target"]["name"]
    if target not in (None, name):
        raise DataError(f"the model predicts {name!r}, not {target!r}: leave target away")
    return name


def _with_targets(frame: Frame, target: str | None, drop_empty: bool) -> Frame:
    """The rows that have a target; one that has none is an error unless it may be dropped."""
    goal = _target_column(frame, target)
    goal.require_usable()
    if goal.kind == "date":
        raise goal.error(0, "is a date; a target must be a number or a class")
    empty = goal.is_empty()
    if not empty.any():
        return frame
    if not drop_empty:
        raise goal.error(
            int(empty.argmax()),
            f"is empty, as {int(empty.sum())} of {frame.length} targets are; fill them in, or "
            "leave such rows out: --drop-empty-targets (drop_empty_targets=True)",
        )
    if empty.all():
        raise DataError(f"the target {goal.name!r} of {frame.path} is empty in every row")
    return frame.rows(np.flatnonzero(~empty))


def _require_droppable(frame: Frame, goal: Column, drop: Sequence[str]) -> None:
    if isinstance(drop, str):
        raise DataError(f"drop must be a list of names; got {drop!r}: write [{drop!r}]")
    for name in drop:
        if name not in frame.columns:
            raise DataError(
                f"{frame.path} has no column {name!r} to drop{nearest(name, frame.columns)}; it "
                f"has: {', '.join(frame.columns)}"
            )
        if name == goal.name:
            raise DataError(f"column {name!r} of {frame.path} is the target: it cannot be dropped")


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
    if goal.kind == "word":
        return True
    return goal.is_whole() and len(np.unique(goal.numbers())) <= _MOST_INTEGER_CLASSES


def _classes(goal: Column) -> tuple[str, ...]:
    """Class names in order: words by the alphabet, numbers by size."""
    if goal.kind == "word":
        names = sorted(set(one_spelling(goal.words())))
    else:
        goal.numbers()
        names = sorted({canonical(word) for word in goal.words()}, key=float)
    if not 2 <= len(names) <= _MOST_CLASSES:
        raise DataError(
            f"the target {goal.name!r} of {goal.path} has {len(names)} different values; a "
            f"classification needs 2 to {_MOST_CLASSES}. Is it a regression, or another column?"
        )
    return tuple(names)


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
