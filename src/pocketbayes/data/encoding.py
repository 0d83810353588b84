"""Columns of a file as features: what is learnt of each from training rows, and its use.

A word seen once in training shares the feature "(other)" with all words never seen: by Good and
Turing, words seen once are as frequent in n rows as unknown ones will be. Where there are none, the
weights of "(other)" see no data and stay at their prior, which is what the model believes of
something new. All zeros instead would be the surest input of all: no weight, no doubt.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from pocketbayes.data.columns import TRUTHS, Column, Frame, are_truths, canonical
from pocketbayes.data.dates import Floats, date_parts, date_words, looks_like_dates, precision_of
from pocketbayes.data.features import extent, features_of, location_and_scale, median
from pocketbayes.errors import DataError

_MOST_VALUES, _LONGEST_CELL = 100, 40
_ABSENT = "is missing; fill it in or leave the row out"


class Fitted(NamedTuple):
    """What becomes of a column: its entry in the preprocess, or why it is left out, and a note."""

    column: dict[str, Any]
    left_out: str = ""
    note: str = ""


def fitted_column(column: Column, train: NDArray[np.int64]) -> Fitted:
    """Learns from the training rows how to turn a column into features."""
    column.require_usable()
    if column.kind == "word":
        return _fitted_words(column, column.rows(train).words())
    values = (column.days() if column.kind == "date" else column.numbers())[train]
    known = values[~np.isnan(values)]
    if len(known) == 0:
        return _left_out(column, "always empty")
    has_empty = len(known) < len(values)
    if known.min() == known.max() and not has_empty:
        return _left_out(column, "constant")
    entry: dict[str, Any] = {"name": column.name}
    if column.kind == "date":
        entry["date"] = precision_of(known)
    exact = torch.from_numpy(known)
    entry |= location_and_scale(exact) | {"fill": median(exact)} | extent(exact)
    return Fitted(entry | _if(empty=has_empty), note=_if_numbered(column))


def _fitted_words(column: Column, words: list[str]) -> Fitted:
    counts = Counter(one_spelling(words))
    empty = counts.pop("", 0)
    if not counts:
        return _left_out(column, "always empty")
    if len(counts) == 1 and not empty:
        return _left_out(column, "constant")
    if len(counts) == counts.total() > 1:
        raise DataError(
            f"column {column.name!r} of {column.path} holds another word in every training row, "
            f"such as {next(iter(counts))!r}; if it is an identifier, leave it out: --drop "
            f"{column.name} (dates are read as 2024-05-31, numbers as 1234.5)"
        )
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    repeated = [word for word in ranked if counts[word] > 1 or len(counts) == 1]
    values = sorted(repeated[:_MOST_VALUES])
    merged = counts.total() - sum(counts[value] for value in values)
    note = ""
    if looks_like_dates(counts):
        note = (
            f"column {column.name!r} looks like dates, such as {next(iter(counts))!r}, but is read "
            "as words: write dates as 2024-05-31"
        )
    elif 2 * merged > counts.total() or len(repeated) > _MOST_VALUES:
        note = (
            f"column {column.name!r}: {len(counts) - len(values)} of {len(counts)} words are too "
            f"rare for a feature of their own and share one; if it is no category, --drop it"
        )
    entry = {"name": column.name, "values": values, **_if(empty=empty > 0), "other": True}
    return Fitted(entry, note=note)


def _left_out(column: Column, why: str) -> Fitted:
    return Fitted({}, why, f"column {column.name!r} is {why} in training and left out")


def _if(**flags: bool) -> dict[str, bool]:
    """Those that are true."""
    return {name: True for name, flag in flags.items() if flag}


def _if_numbered(column: Column) -> str:
    """A note, if a column counts the rows up by one."""
    values = column.numbers() if column.kind == "number" else np.zeros(0)
    if len(values) < 3 or not (np.diff(values) == 1).all():
        return ""
    return f"column {column.name!r} numbers the rows; if that is all it does, --drop it"


def one_spelling(words: list[str]) -> list[str]:
    """True and false, or yes and no, in one spelling, if a column has several of them."""
    spelled = sorted(set(words) - {""})
    if len(spelled) <= 2 or not are_truths(spelled):
        return words
    lower = [word.lower() for word in words]
    if len(set(lower) - {""}) <= 2:
        return lower
    return [str(TRUTHS[word]).lower() if word else "" for word in lower]


class Encoded(NamedTuple):
    """Features (N, D), NaN where a number is empty; and of each row what is unfamiliar."""

    features: Floats
    unfamiliar: tuple[str, ...]


def encoded(frame: Frame, columns: list[dict[str, Any]]) -> Encoded:
    """The features of every row, not standardised: numbers as they are, words one-hot."""
    missing = [column["name"] for column in columns if column["name"] not in frame.columns]
    if missing:
        raise DataError(
            f"{frame.path} lacks the columns {', '.join(missing)}; it has: "
            f"{', '.join(frame.columns)}"
        )
    parts, odd = [], [list[str]() for _ in range(frame.length)]
    for column in columns:
        encode = _encoded_words if "values" in column else _encoded_numbers
        part, unknown = encode(frame.columns[column["name"]], column)
        parts.append(part)
        for row, words in unknown.items():
            odd[row].append(words)
    return Encoded(np.concatenate(parts, axis=1), tuple(", ".join(words) for words in odd))


def _encoded_numbers(source: Column, column: dict[str, Any]) -> tuple[Floats, dict[int, str]]:
    if "date" in column:
        values = source.days()
        parts = date_parts(values, column["date"])
        parts[:, 1:] = np.nan_to_num(parts[:, 1:])
    else:
        values = source.numbers()
        parts = values[:, None]
    empty, odd = np.isnan(values), _far_out(values, column)
    if empty.any() and "fill" not in column:
        raise source.error(int(empty.argmax()), _ABSENT)
    if column.get("empty"):
        return np.concatenate([parts, empty[:, None]], axis=1), odd
    absent = dict.fromkeys(np.flatnonzero(empty).tolist(), f"{column['name']} is empty")
    return parts, odd | absent


def _far_out(values: Floats, column: dict[str, Any]) -> dict[int, str]:
    """Rows whose number lies outside what training saw by more than half the width of that."""
    if "least" not in column:
        return {}
    reach = (column["most"] - column["least"]) / 2
    with np.errstate(invalid="ignore"):
        far = (values < column["least"] - reach) | (values > column["most"] + reach)
    shown = date_words if "date" in column else "{:.10g}".format
    return {row: f"{column['name']}={shown(values[row])}" for row in np.flatnonzero(far).tolist()}


def _encoded_words(source: Column, column: dict[str, Any]) -> tuple[Floats, dict[int, str]]:
    known, other = column["values"], len(features_of(column)) - 1
    places, odd = list[int](), dict[int, str]()
    for row, (word, place) in enumerate(zip(source.words(), found(source, known), strict=True)):
        if place is None and word == "" and column.get("empty"):
            place = len(known)
        elif place is None:
            if not column.get("other"):
                raise source.error(row, _ABSENT if word == "" else _unknown(word, known))
            odd[row] = _told(column["name"], word)
            place = other
        places.append(place)
    return np.eye(other + 1)[places], odd


def _told(name: str, word: str) -> str:
    short = word if len(word) <= _LONGEST_CELL else word[:_LONGEST_CELL] + "..."
    return f"{name}={short}" if word else f"{name} is empty"


def _unknown(word: str, known: Sequence[str]) -> str:
    return f"is {word!r}, which training did not know; it knew: {', '.join(known)}"


def found(column: Column, known: Sequence[str]) -> list[int | None]:
    """The place of each cell among the known words; true and yes, false and no are the same."""
    places = {word: place for place, word in enumerate(known)}
    truths = {TRUTHS[word.lower()]: p for word, p in places.items()} if are_truths(known) else {}

    def place(word: str) -> int | None:
        spelled = places.get(word, places.get(canonical(word)))
        if spelled is None and word.lower() in TRUTHS:
            return truths.get(TRUTHS[word.lower()])
        return spelled

    return [place(word) for word in column.words()]


def labels_of(goal: Column, classes: Sequence[str]) -> NDArray[np.int64]:
    """The class of each row, or an error for one that is empty or of no class."""
    labels = list[int]()
    for row, place in enumerate(found(goal, classes)):
        if place is None:
            word = goal.words()[row]
            raise goal.error(row, _unknown(word, classes) if word else _ABSENT)
        labels.append(place)
    return np.array(labels, dtype=np.int64)
