"""Dates as numbers: days since 1970, and where they lie in the year, the week and the day."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_ISO = re.compile(
    r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d{1,9})?)?( ?(Z|UTC|[+-]\d\d(:?\d\d)?))?)?"
)
_OTHER_DATE = re.compile(
    r"((0?[1-9]|[12]\d|3[01])([./-])(0?[1-9]|[12]\d|3[01])\3(\d\d)?\d\d"
    r"|\d{4}([./-])(0?[1-9]|1[0-2])\6(0?[1-9]|[12]\d|3[01]))([ T,].*)?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY, _WEEK, _YEAR = 1.0, 7.0, 365.2425
_CIRCLES = {"day": (_YEAR, _WEEK), "time": (_YEAR, _WEEK, _DAY)}
CIRCLE_NAMES = {
    "day": ("year sin", "year cos", "week sin", "week cos"),
    "time": ("year sin", "year cos", "week sin", "week cos", "day sin", "day cos"),
}


def days_of(cells: list[str]) -> Floats:
    """Days since 1970-01-01 of each ISO date or time, NaN where a cell is none.

    A time with an offset is taken to UTC; one without stays as it is.
    """
    return np.array([_days(cell) for cell in cells], dtype=np.float64)


def _days(cell: str) -> float:
    if not _ISO.fullmatch(cell):
        return float("nan")
    try:
        moment = datetime.fromisoformat(cell.replace(" UTC", "Z").replace(" Z", "Z"))
    except ValueError:
        return float("nan")
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (moment - _EPOCH).total_seconds() / 86_400


def looks_like_dates(words: Iterable[str]) -> bool:
    """Whether every word is a date as in 31.05.2024, 5/31/24 or 2024/5/31."""
    return all(_OTHER_DATE.fullmatch(word) for word in words)


def date_words(days: float) -> str:
    """The day as 2024-05-31, with a time 2024-05-31T18:30; days if that is no year of ours."""
    try:
        moment = (_EPOCH + timedelta(days=float(days))).replace(tzinfo=None)
    except OverflowError:
        return f"{days:g} days"
    return str(moment.date()) if days % 1 == 0 else moment.isoformat(timespec="minutes")


def precision_of(days: Floats) -> str:
    """Whether any has a time of day: "time" if so, else "day"."""
    known = days[~np.isnan(days)]
    return "time" if bool((known % 1 != 0).any()) else "day"


def date_parts(days: Floats, precision: str) -> Floats:
    """(N, 5 or 7): the days, and sin and cos of 2 pi days / period for year, week and day.

    The clock of the year has its mean length, so that it is at most a day off.
    """
    turns = [2 * np.pi * days / period for period in _CIRCLES[precision]]
    waves = [wave(turn) for turn in turns for wave in (np.sin, np.cos)]
    return np.stack([days, *waves], axis=1)
