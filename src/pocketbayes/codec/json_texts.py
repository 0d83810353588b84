"""JSON text from strangers: no deeper than the library copes with, and all words in it are text."""

import json
import re
from collections.abc import Iterable
from typing import Any

from pocketbayes.errors import FormatError

DEEPEST = 128  # lists and objects inside of each other
_ODD = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")  # a NUL, or half a pair of surrogates
_NO_TEXT = re.compile(r"[\0\ud800-\udfff]")


def parsed(text: str) -> Any:
    """What the text says; `RecursionError` comes from none that this lets pass."""
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not JSON: {error}") from error
    looks = _ODD.search(text) is not None
    if looks or text.count("[") + text.count("{") > DEEPEST:
        _require_sound(found, looks)
    return found


def written(said: Any) -> str:
    """JSON text with sorted keys and no white space that `parsed` takes."""
    try:
        text = json.dumps(said, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise FormatError(f"not JSON: {error}") from error
    parsed(text)
    return text


def _require_sound(found: Any, looks: bool) -> None:
    """Level by level: a walk that calls itself would end where Python's stack does."""
    level = [found]
    for _ in range(DEEPEST):
        _require_text(level if looks else ())
        inner: list[Any] = []
        for node in level:
            if isinstance(node, dict):
                _require_text(node if looks else ())
                inner += _worth(node.values(), looks)
            elif isinstance(node, list):
                inner += _worth(node, looks)
        level = inner
    if any(isinstance(node, dict | list) for node in level):
        raise FormatError(f"nested more than {DEEPEST} deep")
    _require_text(level)


def _worth(nodes: Iterable[Any], looks: bool) -> list[Any]:
    """What there is to look into, or at."""
    kinds = (dict, list, str) if looks else (dict, list)
    return [node for node in nodes if isinstance(node, kinds)]


def _require_text(nodes: Iterable[Any]) -> None:
    """None of the words among these has a NUL or half a pair of surrogates."""
    for node in nodes:
        if isinstance(node, str) and _NO_TEXT.search(node):
            raise FormatError(f"no text: it has the name {node[:80]!a}")


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not a JSON number")
