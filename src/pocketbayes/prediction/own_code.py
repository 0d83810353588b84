"""What the code of a network may do beside computing: draw numbers of its own, or keep something.

Layers of torch and of this library are known. Of all other code it is read what is reachable from
`forward`: names of globals and attributes, and whether attributes are written. Whatever is not
understood counts as drawing: then draws are made one after another, as in a loop of one's own.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, NamedTuple

from torch import nn

from pocketbayes.prediction.code_reader import Reader, is_strange
from pocketbayes.prediction.names_in_code import NotUnderstoodError

_MOST_FOUND = 256


class OwnCode(NamedTuple):
    """What is known of a network's own code.

    Attributes:
        is_pure: it keeps nothing, and can draw only from torch's generators.
        may_draw: it may do so.
        mark: two networks of the same mark have the same structure and settings.
    """

    is_pure: bool
    may_draw: bool
    mark: int


def own_code_of(modules: Iterable[nn.Module]) -> OwnCode | None:
    """What the code of these modules may do; None: all are layers that are known to do nothing."""
    strange = list(filter(is_strange, modules))
    if not strange:
        return None
    reader = Reader()
    try:
        for module in strange:
            reader.holder(module)
        may_draw, settings = reader.may_draw, tuple(reader.settings)
        found = _read_before(reader) or _read_now(reader)
    except NotUnderstoodError:
        return OwnCode(is_pure=False, may_draw=True, mark=0)
    return OwnCode(True, may_draw or found.may_draw, hash((found.mark, settings)))


class _Found(NamedTuple):
    """What was read of some code, and all that it was looked up in: where, by which name, what."""

    may_draw: bool
    mark: int
    looked_up: list[tuple[Mapping[str, Any], str, Any]]
    sizes: list[int]


_found: dict[Hashable, _Found] = {}


def _read_before(reader: Reader) -> _Found | None:
    """What was found in the same code, if all that it mentions is still the same."""
    found = _found.get(reader.key())
    if found is None:
        return None
    same = all(where.get(name, _found) is value for where, name, value in found.looked_up)
    return found if same and found.sizes == [len(vars(kind)) for kind in reader.kinds] else None


def _read_now(reader: Reader) -> _Found:
    key, sizes = reader.key(), [len(vars(kind)) for kind in reader.kinds]
    reader.may_draw = False
    reader.code()
    found = _Found(reader.may_draw, hash(frozenset(reader.codes)), reader.looked_up, sizes)
    if not reader.met_objects:
        if len(_found) >= _MOST_FOUND:
            _found.clear()
        _found[key] = found
    return found
