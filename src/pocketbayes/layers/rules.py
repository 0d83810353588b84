"""Rules by which modules and parameters of a network are chosen: patterns, types, predicates."""

import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from torch import nn

from pocketbayes.errors import ConversionError, nearest

Rule = str | type[nn.Module] | Callable[[str, nn.Module], bool]
Rules = Rule | Iterable[Rule] | None


def selected_modules(net: nn.Module, include: Rules, exclude: Rules) -> set[int]:
    """The ids of the modules that the rules let through; what is inside a match goes with it."""
    modules = dict(net.named_modules(remove_duplicate=False))
    included = set(modules) if include is None else _matches(modules, include, "include")
    excluded = set() if exclude is None else _matches(modules, exclude, "exclude")
    wanted = {id(modules[name]) for name in included}
    return wanted - {id(modules[name]) for name in excluded}


def named_parameters(net: nn.Module, include: Rules, exclude: Rules) -> set[int]:
    """The ids of parameters that a pattern names, other than by their module."""
    modules = dict(net.named_modules(remove_duplicate=False))
    excluded = set() if exclude is None else _matches(modules, exclude, "exclude")
    return {
        id(parameter)
        for pattern in listed(include)
        if isinstance(pattern, str)
        for name, parameter in _parameters_named(modules, pattern).items()
        if name.rpartition(".")[0] not in excluded
    }


def pattern_of(name: str) -> str:
    """What also matches the same parameter of other blocks, which are told apart by numbers."""
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", name)


def _parameters_named(modules: dict[str, nn.Module], pattern: str) -> dict[str, nn.Parameter]:
    found = {
        (module_name, f"{module_name}.{name}".lstrip(".")): parameter
        for module_name, module in modules.items()
        for name, parameter in module._parameters.items()
        if parameter is not None
    }
    return {
        name: parameter
        for (module_name, name), parameter in found.items()
        if fnmatchcase(name, pattern) and not fnmatchcase(module_name, pattern)
    }


def listed(rules: Rules) -> list[Rule]:
    """One or several rules as a list."""
    if rules is None:
        return []
    several = isinstance(rules, Iterable) and not isinstance(rules, str | type)
    return list(rules) if several else [rules]  # type: ignore[arg-type, list-item]


def _matches(modules: dict[str, nn.Module], rules: Rules, argument: str) -> set[str]:
    found: set[str] = set()
    for rule in listed(rules):
        hits = {n for n, m in modules.items() if _obeys(n, m, rule, argument)}
        by_name = isinstance(rule, str) and not hits
        if by_name and (argument == "exclude" or not _parameters_named(modules, str(rule))):
            raise ConversionError(
                f"{argument}={rule!r} matches no module of the network{nearest(rule, modules)}"
            )
        found |= hits
    return {n for n in modules if any(n == f or not f or n.startswith(f + ".") for f in found)}


def _obeys(name: str, module: nn.Module, rule: object, argument: str) -> bool:
    if isinstance(rule, str):
        return fnmatchcase(name, rule)
    if isinstance(rule, type):
        return isinstance(module, rule)
    if callable(rule):
        try:
            return bool(rule(name, module))
        except TypeError as error:
            raise ConversionError(
                f"{argument}'s predicate failed on {name or 'the root'}: {error}; it is called "
                "with the module's name and the module"
            ) from error
    raise ConversionError(
        f"{argument} takes name patterns, module types or predicates (name, module) -> bool; "
        f"got {rule!r}"
    )
