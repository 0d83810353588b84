"""What the library raises, warns of and checks: what was wrong, where, and what to do."""

import difflib
import importlib
import math
import os
import sys
import warnings
from collections.abc import Collection, Iterable
from numbers import Integral, Real
from types import FrameType
from typing import Any

_HERE = os.path.dirname(__file__) + os.sep
_BETWEEN = {"contextlib", "functools", "lightning_fabric", "torch"}  # decorators, forward passes


class PocketBayesError(Exception):
    """Base of every error the library raises on purpose."""


class ConversionError(PocketBayesError):
    """A network cannot be made Bayesian as asked."""


class DataError(PocketBayesError):
    """A loader, batch, input or label is not what the model needs."""


class FormatError(PocketBayesError):
    """A model file is damaged, of another kind, or does not fit the network."""


class ProgramError(PocketBayesError):
    """A network cannot be written as a portable program: it holds an unknown operation."""


class TrainingError(PocketBayesError):
    """Training cannot go on: the loss is not finite, or a checkpoint does not fit."""


def warn(message: str) -> None:
    """Warns at the line that called the library: the first outside of it, and of torch's calls."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_back is not None and _is_internal(frame):
        frame = frame.f_back
    assert frame is not None
    known = frame.f_globals
    warnings.warn_explicit(
        message,
        UserWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=known.get("__name__"),
        registry=known.setdefault("__warningregistry__", {}),
    )


def _is_internal(frame: FrameType) -> bool:
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return package in _BETWEEN or frame.f_code.co_filename.startswith(_HERE)


def printable(text: str) -> str:
    """The text with control characters, which would drive a terminal, spelled out."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def nearest(word: object, known: Iterable[str]) -> str:
    """A hint: the known word that looks most like this one."""
    close = difflib.get_close_matches(str(word), list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def require_number(
    value: object,
    name: str,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    most: float = math.inf,
) -> float:
    """Returns `value` as a float, or says which bound it breaks."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise PocketBayesError(
            f"{name} must be a number, not {value!r} ({type(value).__name__}); pass a float"
        )
    number = float(value)
    if not (math.isfinite(number) and number > above and least <= number <= most):
        bounds = [
            f"above {above:g}" if above > -math.inf else "",
            f"at least {least:g}" if least > -math.inf else "",
            f"at most {most:g}" if most < math.inf else "",
        ]
        limits = ", ".join(["finite", *filter(None, bounds)])
        raise PocketBayesError(f"{name} must be {limits}; got {value!r}")
    return number


def require_count(value: object, name: str, least: int = 1) -> int:
    """Returns `value` as an int of at least `least`, or says what is wrong with it."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise PocketBayesError(f"{name} must be a whole number of at least {least}; got {value!r}")
    return int(value)


def require_truth(value: object, name: str) -> bool:
    """Returns `value` if it is True or False."""
    if not isinstance(value, bool):
        raise PocketBayesError(f"{name} must be True or False; got {value!r}")
    return value


def require_choice(value: object, name: str, choices: Collection[str]) -> str:
    """Returns `value` if it is one of `choices`, or lists them."""
    if not isinstance(value, str) or value not in choices:
        raise PocketBayesError(f"{name} must be one of {', '.join(choices)}; got {value!r}")
    return value


def optional_module(name: str, extra: str) -> Any:
    """A module, or an error that says which extra of this library brings it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        top = name.partition(".")[0]
        package = {"sklearn": "scikit-learn"}.get(top, top)
        raise PocketBayesError(
            f"this needs {package}, which is not installed: pip install 'pocketbayes[{extra}]'"
        ) from error
