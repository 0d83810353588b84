"""What a piece of Python code mentions: globals, attributes, and whether it writes any."""

import builtins
import dis
import functools
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

WRITING = {
    "setattr", "delattr", "exec", "eval", "compile", "open", "input", "globals", "vars",
    "locals", "__import__", "next", "breakpoint",
}  # fmt: skip


class NotUnderstoodError(Exception):
    """Code that may do anything."""


class Names(NamedTuple):
    """What a piece of code mentions."""

    read: frozenset[str]
    attributes: frozenset[str]
    texts: frozenset[str]
    imported: frozenset[str]
    writes_attributes: bool
    writes_items: bool


@functools.lru_cache(4096)
def names_in(code: types.CodeType) -> Names:
    """Of this code and all functions inside of it."""
    read, attributes, texts = set[str](), set[str](), set[str]()
    imported, written = set[str](), set[str]()
    pending = [code]
    while pending:
        part = pending.pop()
        texts |= {c for c in part.co_consts if isinstance(c, str) and c.isidentifier()}
        pending += [c for c in part.co_consts if isinstance(c, types.CodeType)]
        for step in dis.get_instructions(part):
            name, value = step.opname, step.argval
            if name.startswith(("STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL")):
                written.add("attribute")
            elif name == "STORE_DEREF" and value in code.co_freevars:
                written.add("attribute")  # of the function around it
            elif name.startswith(("STORE_SUBSCR", "STORE_SLICE", "DELETE_SUBSCR")):
                written.add("item")
            elif name.startswith("IMPORT_NAME"):
                imported.add(value)
            elif name.startswith(("LOAD_GLOBAL", "LOAD_NAME")):
                read.add(value)
            elif ("ATTR" in name or "METHOD" in name) and isinstance(value, str):
                attributes.add(value)
    return Names(
        frozenset(read), frozenset(attributes), frozenset(texts), frozenset(imported),
        "attribute" in written, "item" in written,
    )  # fmt: skip


def outside_of(
    function: types.FunctionType, names: Iterable[str]
) -> Iterator[tuple[Mapping[str, Any], str, Any]]:
    """The globals of these names, defaults of arguments and the closure."""
    for name in names:
        if name in function.__globals__:
            yield function.__globals__, name, function.__globals__[name]
        elif name in WRITING or not hasattr(builtins, name):
            raise NotUnderstoodError
    for number, value in enumerate(function.__defaults__ or ()):
        yield {str(number): value}, str(number), value
    for name, value in (function.__kwdefaults__ or {}).items():
        yield function.__kwdefaults__ or {}, name, value
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if name != "__class__":  # for `super()`
            yield _Cell(cell), name, cell.cell_contents


class _Cell(dict[str, Any]):
    """A variable of a closure, to be looked up as if by name."""

    def __init__(self, cell: types.CellType) -> None:
        self._cell = cell

    def get(self, _: str, default: Any = None) -> Any:
        """What it holds by now."""
        return self._cell.cell_contents
