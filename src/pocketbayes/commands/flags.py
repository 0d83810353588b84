"""Options of the command line: read off configs and factories, given by flags or a YAML file.

A method, network or data set declares its options once, in its signature and docstring; this
module turns them into flags, so that adding one adds its flags.
"""

import inspect
import re
import reprlib
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer
from rich.markup import escape

from pocketbayes.commands.sizes import parsed_size
from pocketbayes.commands.yaml_files import YamlError, read_yaml
from pocketbayes.errors import PocketBayesError, nearest

_FEW = 3


class UsageError(PocketBayesError):
    """The command was called wrongly."""


class Size(int):
    """The type of an option that is a number of bytes, as those called `..._bytes` are."""


class Draws(int):
    """The type of a number of draws, `num_samples`, which may be "auto"."""


_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false",
          Size: "a size such as 500kB", Draws: "a whole number or auto"}  # fmt: skip
_AS_TEXT = (Size, Draws)


@contextmanager
def as_usage_error() -> Iterator[None]:
    """Turns what a config says of its values into a fault of the call."""
    try:
        yield
    except UsageError:
        raise
    except PocketBayesError as error:
        raise UsageError(str(error)) from error


@dataclass(frozen=True)
class Flag:
    """One option: its type, alone or in a list or table, and its default with each owner."""

    name: str
    kind: type
    shape: str
    help: str
    panel: str
    defaults: dict[str, Any]

    def parsed(self, value: Any, where: str) -> Any:
        """The value as this option's type; also as text: lists "128,128", tables "a=1,b=2"."""
        if self.shape == "table":
            return self._table(value, where)
        if self.shape == "list":
            parts = value.split(",") if isinstance(value, str) else value
            if not isinstance(parts, list | tuple):
                raise UsageError(f"{self._called(where)} must be a list; got {reprlib.repr(value)}")
            return tuple(self._single(_from_text(p, self.kind), where) for p in parts if p != "")
        return self._single(value, where)

    def _table(self, value: Any, where: str) -> dict[str, Any]:
        pairs = value
        if isinstance(value, str):
            pairs = dict(part.rpartition("=")[::2] for part in value.split(",") if part)
        if not isinstance(pairs, dict) or "" in pairs:
            raise UsageError(f"{self._called(where)} must be name=value,...; got {value!r}")
        return {str(k): self._single(_from_text(v, self.kind), where) for k, v in pairs.items()}

    def _called(self, where: str) -> str:
        """Its name as the user wrote it: behind dashes with dashes."""
        return where + (self.name.replace("_", "-") if where == "--" else self.name)

    def _single(self, value: Any, where: str) -> Any:
        if self.kind is Size and isinstance(value, int | str) and not isinstance(value, bool):
            try:
                return parsed_size(str(value))
            except PocketBayesError as error:
                raise UsageError(f"{self._called(where)}: {error}") from error
        if self.kind is Draws:
            value = _from_text(value, int)
            if value == "auto" or (isinstance(value, int) and not isinstance(value, bool)):
                return value
        if self.kind is Path and isinstance(value, str | Path):
            return Path(value)
        if self.kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if self.kind is float and isinstance(value, str):
            value = _from_text(value, float)  # YAML reads 1e-3 as text
        if self.kind is str and isinstance(value, int) and not isinstance(value, bool):
            return str(value)  # YAML reads 500000 as a number
        if isinstance(value, self.kind) and (self.kind is bool or not isinstance(value, bool)):
            return value
        words = _WORDS.get(self.kind, "a path")
        raise UsageError(f"{self._called(where)} must be {words}; got {reprlib.repr(value)}")

    def is_required(self) -> bool:
        """Whether an owner has no default for it."""
        return inspect.Parameter.empty in self.defaults.values()

    def parameter(self) -> inspect.Parameter:
        """The same as a parameter that typer understands; None says that it was not given."""
        kind: Any = self.kind if self.shape == "single" and self.kind not in _AS_TEXT else str
        text = f"{escape(self.help)} {self._default_text()}".strip()
        option = typer.Option(help=text, rich_help_panel=self.panel, show_default=False)
        return inspect.Parameter(
            self.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[kind | None, option],
        )

    def _default_text(self) -> str:
        """The default; where owners differ, that of each, and whose option it is if of few."""
        owners: dict[str, list[str]] = {}
        for owner, default in self.defaults.items():
            owners.setdefault(shown(default), []).append(owner)
        if len(owners) == 1:
            value, names = next(iter(owners.items()))
            whose = ", ".join(names) if names[0] and len(names) <= _FEW else ""
            told = f"default {value}" if value else ""
        else:
            told = "; ".join(f"default {v} with {', '.join(n)}" for v, n in owners.items())
            whose = ""
        parts = "; ".join(filter(None, [whose, told]))
        return f"({parts})" if parts else ""


def shown(value: Any) -> str:
    """A default as a person would type it."""
    if value is MISSING or value is inspect.Parameter.empty or value is None or value == "":
        return ""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def options_in(
    thing: Callable[..., Any], panel: str = "Options", owner: str = "", skip: Sequence[str] = ()
) -> dict[str, Flag]:
    """The flags of one frozen config, or of one function with keyword arguments."""
    helps = described(thing)
    if is_dataclass(thing):
        defaults = {f.name: f.default for f in fields(thing)}
    else:
        defaults = {n: p.default for n, p in inspect.signature(thing).parameters.items()}
    hints = get_type_hints(thing)
    found = {}
    for name, default in defaults.items():
        if name not in skip:
            kind, shape = _plain_type(hints[name])
            kind = Size if kind is int and name.endswith("_bytes") else kind
            kind = Draws if name == "num_samples" else kind
            found[name] = Flag(name, kind, shape, helps.get(name, ""), panel, {owner: default})
    return found


def merged(groups: Iterable[Mapping[str, Flag]]) -> dict[str, Flag]:
    """All flags by name; one that several owners share has the defaults of each."""
    found: dict[str, Flag] = {}
    for group in groups:
        for name, flag in group.items():
            if name not in found:
                found[name] = flag
                continue
            known = found[name]
            if (known.kind, known.shape) != (flag.kind, flag.shape):
                raise TypeError(f"option {name} has two types: {known} and {flag}")
            found[name] = replace(known, defaults=known.defaults | flag.defaults)
    return found


def with_choices(flag: Flag, choices: Iterable[str]) -> Flag:
    """The same flag, whose help names the words it takes."""
    return replace(flag, help=f"{flag.help.rstrip('.')}: {', '.join(choices)}.")


def described(thing: Callable[..., Any]) -> dict[str, str]:
    """The texts under "Attributes:" or "Args:" of a docstring, and of those of base classes."""
    found: dict[str, str] = {}
    for kind in reversed(thing.__mro__ if isinstance(thing, type) else [thing]):
        doc = inspect.cleandoc(kind.__doc__ or "")
        section = re.search(r"^(?:Attributes|Args):\n((?:[ ]+.*\n?|\n)+)", doc, re.MULTILINE)
        if section:
            for name, text in re.findall(
                r"^ {4}(\w+): (.*(?:\n {8}.*)*)", section[1], re.MULTILINE
            ):
                found[name] = re.sub(r"\s+", " ", text)
    return found


def read_config(path: Path | None, flags: Mapping[str, Flag]) -> dict[str, Any]:
    """The options in a YAML file; unknown names and wrong types are errors."""
    if path is None:
        return {}
    try:
        with open(path, "rb") as file:
            found = read_yaml(file)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except YamlError as error:
        raise UsageError(f"{path} is not YAML: {error}") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise UsageError(f"{path} must hold `name: value` lines; got a {type(found).__name__}")
    given = {}
    for key, value in found.items():
        name = str(key).replace("-", "_")
        if name not in flags:
            raise UsageError(f"{path}: no option is called {key!r}{nearest(name, flags)}")
        if value is not None:
            given[name] = flags[name].parsed(value, f"{path}: ")
    return given


def given_options(
    values: Mapping[str, Any], config: Path | None, flags: Mapping[str, Flag]
) -> dict[str, Any]:
    """What was given on the command line or, where it was not, in the YAML file."""
    typed = {n: flags[n].parsed(v, "--") for n, v in values.items() if v is not None and n in flags}
    return read_config(config, flags) | typed


def take(given: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Removes these options from the given ones and returns them."""
    return {name: given.pop(name) for name in list(names) if name in given}


def require_all_taken(given: Mapping[str, Any], flags: Mapping[str, Flag]) -> None:
    """An error for an option that no part of this run has."""
    for name in given:
        owners = ", ".join(flags[name].defaults)
        raise UsageError(f"--{name.replace('_', '-')} is an option of {owners}, not of this run")


def add_flags(function: Callable[..., None], flags: Mapping[str, Flag]) -> Callable[..., None]:
    """Makes typer see these flags as keyword parameters of `function(..., **values)`."""
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    parameters = [*own, *(flag.parameter() for flag in flags.values())]
    function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
    return function


def _plain_type(hint: Any) -> tuple[type, str]:
    """int, float, bool, str or Path; and "single", or a "list" or a "table" (by name) of those."""
    if get_origin(hint) in (Union, types.UnionType):
        options = [a for a in get_args(hint) if a is not type(None)]
        if len(options) > 1 and Path in options:
            return Path, "single"
        hint = options[0]
    if get_origin(hint) in (tuple, Sequence):
        return get_args(hint)[0], "list"
    if get_origin(hint) is Mapping:
        return get_args(hint)[1], "table"
    if hint not in (int, float, bool, str, Path):
        raise TypeError(f"an option cannot be {hint}: use int, float, bool, str or Path")
    return hint, "single"


def _from_text(value: Any, kind: type) -> Any:
    if isinstance(value, str) and kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            return value
    return value
