"""What a file says of the columns of a table, in words; a stranger's file may say anything."""

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

_MOST_WORDS = 60
_DATES = {"day": "date: days, year, week", "time": "time: days, year, week, hour"}


def column_facts(preprocess: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Name and treatment of each column of a table: kind, fill, levels; none if it is no table."""
    known = preprocess or {}
    if known.get("kind") != "table" or not isinstance(known.get("columns"), list):
        return []
    columns = [column for column in known["columns"] if isinstance(column, Mapping)]
    found = [(str(column.get("name")), _treatment(column)) for column in columns]
    dropped = known.get("dropped")
    if isinstance(dropped, Mapping):
        found += [(str(name), f"left out: {why}") for name, why in dropped.items()]
    target = known.get("target")
    if isinstance(target, Mapping):
        kind = f"number, {_scale(target)}" if "mean" in target else "class"
        kind = f"{target['outputs']} numbers" if "outputs" in target else kind
        found.append((str(target.get("name")), f"target: {kind}"))
    return found


def _treatment(column: Mapping[str, Any]) -> str:
    values = column.get("values")
    if isinstance(values, list):
        extra = [f"({word})" for word in ("empty", "other") if column.get(word)]
        listed = ", ".join(map(str, values))
        cut = listed if len(listed) <= _MOST_WORDS else listed[:_MOST_WORDS] + "..."
        return f"{len(values)} words: {', '.join([cut, *extra])}"
    is_date = "date" in column
    words = _DATES.get(str(column["date"]), "date") if is_date else f"number, {_scale(column)}"
    if "fill" not in column:
        return words
    also = " and a feature of its own" if column.get("empty") else ""
    fill = _day(column["fill"]) if is_date else _short(column["fill"])
    return f"{words}, if empty {fill}{also}"


def _scale(facts: Mapping[str, Any]) -> str:
    mean, std = facts.get("mean"), facts.get("std")
    return (
        "in its own units" if (mean, std) == (0, 1) else f"mean {_short(mean)}, std {_short(std)}"
    )


def _day(days: Any) -> str:
    try:
        return str(date(1970, 1, 1) + timedelta(days=days))
    except (TypeError, ValueError, OverflowError):
        return str(days)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
