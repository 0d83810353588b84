"""Reads what modules hold, and what their code mentions, until nothing new is mentioned."""

import enum
import functools
import sys
import types
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pocketbayes.layers import Ensemble
from pocketbayes.prediction.names_in_code import (
    WRITING,
    NotUnderstoodError,
    names_in,
    outside_of,
)

_MADE_BY_CODE = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_INTERNALS = frozenset(vars(nn.Module()))
_KNOWN_ROOTS = {"torch", "pocketbayes"}
_PURE_ROOTS = {
    "torch", "pocketbayes", "math", "cmath", "operator", "_operator", "typing",
    "collections", "enum", "dataclasses", "abc", "builtins", "functools", "itertools",
    "contextlib", "warnings", "__future__",
}  # fmt: skip
_STRANGERS = (  # of torch's layers those that are given functions, or draw in evaluation mode
    nn.TransformerEncoderLayer, nn.TransformerDecoderLayer, nn.FractionalMaxPool2d,
    nn.FractionalMaxPool3d, Ensemble,
)  # fmt: skip
_PLAIN = (
    type(None), bool, int, float, complex, str, bytes, Tensor, torch.Size, torch.dtype,
    torch.device, torch.layout, torch.memory_format, range, type(...), enum.Enum, np.ndarray,
    np.generic,
)  # fmt: skip
_CALLED_BY_SYNTAX = {
    "forward", "__call__", "__getattr__", "__getattribute__", "__getitem__", "__iter__",
    "__len__", "__contains__", "__bool__", "__enter__", "__exit__",
}  # fmt: skip
_KEEPING = {
    "__dict__", "__setattr__", "register_buffer", "register_parameter", "register_module",
    "add_module", "_buffers", "_parameters", "_modules", "manual_seed", "seed",
    "set_rng_state", "set_state", "fork", "fork_rng",
}  # fmt: skip
_MUTATING = {
    "append", "appendleft", "extend", "insert", "add", "update", "setdefault", "pop",
    "popitem", "popleft", "remove", "discard", "clear", "__setitem__",
}  # fmt: skip
_DRAWING = {  # parts of names
    "rand", "normal", "bernoulli", "multinomial", "poisson", "dropout", "exponential",
    "geometric", "cauchy", "uniform", "gumbel", "rrelu", "fractional", "sample", "vmap",
    "functional_call", "stochastic", "distribution",
}  # fmt: skip


class Reader:
    """Reads what modules hold, then what their code mentions, until nothing new is mentioned."""

    def __init__(self) -> None:
        self.may_draw = False
        self.settings, self.codes = list[Any](), set[Any]()
        self.kinds = dict[type, None]()
        self.looked_up = list[tuple[Mapping[str, Any], str, Any]]()
        self.met_objects, self._is_in_code = False, False
        self._functions = list[types.FunctionType]()
        self._names = set[str](_CALLED_BY_SYNTAX)
        self._seen = set[int]()
        self._holds_containers, self._writes_items = False, False

    def key(self) -> Hashable:
        """What the code is reached from."""
        return frozenset(self.kinds), frozenset(self._functions), self._holds_containers

    def code(self) -> None:
        """Reads the functions that were met, and what they mention."""
        self._is_in_code = True
        for function in self._functions:
            self._function(function)
        known = set[tuple[type, str]]()
        while new := {(k, n) for k in self.kinds for n in self._mentioned(k)} - known:
            known |= new
            for kind, name in new:
                self.looked_up.append((vars(kind), name, vars(kind)[name]))
                self._value(vars(kind)[name])
        if self._holds_containers and (self._writes_items or self._names & _MUTATING):
            raise NotUnderstoodError
        if self._names & _KEEPING:
            raise NotUnderstoodError
        self.may_draw |= any(word in name.lower() for name in self._names for word in _DRAWING)

    def _mentioned(self, kind: type) -> set[str]:
        """Names that the code may reach in a class."""
        if "getattr" in self._names:
            plain = {name for name in vars(kind) if not name.startswith("__")}
            return plain | (vars(kind).keys() & _CALLED_BY_SYNTAX)
        return self._names & vars(kind).keys()

    def holder(self, holder: Any) -> None:
        """An object with attributes: a module, or what modules keep their settings in."""
        if id(holder) in self._seen:
            return
        self.met_objects |= self._is_in_code
        self._seen.add(id(holder))
        self._kind(type(holder))
        self.settings.append(type(holder))
        for name, value in vars(holder).items():
            if name in _INTERNALS and isinstance(holder, nn.Module):
                continue
            self.settings.append((name, _shown(value)))
            self._value(value)

    def _kind(self, kind: type) -> None:
        parts, may_draw = _own_parts(kind)
        self.kinds |= parts
        self.may_draw |= may_draw

    def _value(self, value: Any) -> None:
        """What an attribute, a global or a closure holds."""
        if isinstance(value, _PLAIN):
            return
        if isinstance(value, nn.Module):
            self._network(value)
        elif isinstance(value, tuple | frozenset | list | set | dict):
            self._holds_containers |= isinstance(value, list | set | dict)
            self._kind(type(value))
            self._each([*value, *value.values()] if isinstance(value, dict) else value)
        elif isinstance(value, types.ModuleType):
            self._module(value)
        elif isinstance(value, type):
            self._class(value)
        else:
            self._callable_or_object(value)

    def _network(self, network: nn.Module) -> None:
        """Modules that may be no parts of the network that runs."""
        for module in network.modules():
            if module._forward_hooks or module._forward_pre_hooks:
                raise NotUnderstoodError
            if is_strange(module):
                self.holder(module)

    def _each(self, values: Iterable[Any]) -> None:
        for value in values:
            self._value(value)

    def _callable_or_object(self, value: Any) -> None:
        if isinstance(value, types.FunctionType):
            if self._is_in_code:
                self._function(value)
            else:
                self._functions.append(value)
        elif isinstance(value, types.MethodType):
            self._each((value.__func__, value.__self__))
        elif isinstance(value, staticmethod | classmethod):
            self._value(value.__func__)
        elif isinstance(value, property):
            self._value(value.fget)
        elif isinstance(value, functools.partial):
            self._each((value.func, value.args, dict(value.keywords)))
        elif isinstance(value, types.BuiltinFunctionType):
            self._builtin(value)
        elif isinstance(value, torch.Generator):
            raise NotUnderstoodError
        elif _root(type(value)) in _KNOWN_ROOTS and _can_be_found(type(value)):
            self.may_draw |= _root(type(value)) == "torch"
        elif _is_of_python(type(value)):  # type: ignore[arg-type]
            self.holder(value)
        else:
            raise NotUnderstoodError

    def _function(self, function: types.FunctionType) -> None:
        if id(function) in self._seen:
            return
        self._seen.add(id(function))
        self.codes.add(function.__code__)
        if _root(function) in _KNOWN_ROOTS and function.__globals__.get("__name__") == (
            function.__module__
        ):
            self._names.add(function.__name__)
            return
        names = names_in(function.__code__)
        if names.writes_attributes:
            raise NotUnderstoodError
        if any(name.partition(".")[0] not in _PURE_ROOTS for name in names.imported):
            raise NotUnderstoodError
        self._writes_items |= names.writes_items
        self._names |= names.attributes | names.read | names.texts
        for where, name, value in outside_of(function, names.read):
            if isinstance(value, list | set | dict):
                raise NotUnderstoodError
            self.codes.add((function.__code__, name, _shown(value)))
            self.looked_up.append((where, name, value))
            self._value(value)

    def _module(self, module: types.ModuleType) -> None:
        root = module.__name__.partition(".")[0]
        if root == "numpy":
            if module is not np:
                raise NotUnderstoodError
            self.kinds.setdefault(_NumPy)  # which has no `random` that could be read
        elif root not in _PURE_ROOTS:
            raise NotUnderstoodError

    def _class(self, kind: type) -> None:
        harmless = issubclass(kind, BaseException | enum.Enum) or is_dataclass(kind)
        is_record = issubclass(kind, tuple) and hasattr(kind, "_fields")
        if not (harmless or is_record or _root(kind) in _PURE_ROOTS) or kind is torch.Generator:
            raise NotUnderstoodError

    def _builtin(self, function: Any) -> None:
        owner = function.__self__
        if isinstance(owner, types.ModuleType):
            root = owner.__name__.partition(".")[0]
        else:
            root = _root(owner if isinstance(owner, type) else function)
        if root not in _PURE_ROOTS or (root == "builtins" and function.__name__ in WRITING):
            raise NotUnderstoodError
        self._names.add(function.__name__)


@functools.cache
def _own_parts(kind: type) -> tuple[dict[type, None], bool]:
    """The classes of users that it is made of, and whether others of it may draw."""
    own = {
        part: None
        for part in kind.__mro__
        if _root(part) not in _PURE_ROOTS
        or ("plain_class" not in vars(part) and not _can_be_found(part))  # made by torch.fx
    }
    return own, issubclass(kind, _STRANGERS)


class _NumPy:
    """What code that mentions NumPy may not reach."""

    random = default_rng = RandomState = object()


def _shown(value: Any) -> Any:
    """A setting, as far as two of them can be told apart."""
    if isinstance(value, Tensor | np.ndarray):
        return tuple(value.shape)
    if isinstance(value, tuple | list | dict | set):
        return str(value)
    return value if isinstance(value, _PLAIN) else id(value)


@functools.cache
def _is_of_python(kind: type) -> bool:
    """Whether all that its objects can do is written in Python, and not by the standard library."""
    harmless = {"types", "collections", "argparse", "dataclasses", "abc", "typing"}
    return kind.__dictoffset__ != 0 and all(
        part is object
        or _root(part) in harmless
        or (_root(part) not in sys.stdlib_module_names and bool(part.__flags__ & _MADE_BY_CODE))
        for part in kind.__mro__
    )


def _can_be_found(kind: type) -> bool:
    return getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is kind


def _root(value: Any) -> str:
    return str(getattr(value, "__module__", None) or "").partition(".")[0]


def is_strange(module: nn.Module) -> bool:
    """Whether it runs code that is not known."""
    return not is_known(type(module)) or "forward" in module.__dict__  # type: ignore[arg-type]


@functools.cache
def is_known(kind: type) -> bool:
    """Whether modules of this kind draw nothing in evaluation mode, and call no code of users."""
    if "plain_class" in vars(kind):  # a Bayesian layer, made of that class
        return is_known(vars(kind)["plain_class"])
    return (
        kind.__module__.startswith(("torch.nn.modules.", "pocketbayes."))
        and _can_be_found(kind)
        and not issubclass(kind, _STRANGERS)
    )
