"""The table of networks by name, and how one of them is built from plain options."""

import functools
import inspect
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

from torch import nn

from pocketbayes.errors import PocketBayesError, nearest

MODELS: dict[str, Callable[..., nn.Module]] = {}

Options = ParamSpec("Options")
Net = TypeVar("Net", bound=nn.Module)


def network(
    name: str, **facts: object
) -> Callable[[Callable[Options, Net]], Callable[Options, Net]]:
    """Puts a factory into `MODELS`, and makes its networks remember how they were built.

    They have an attribute `pocketbayes_network`, {"name": ..., "options": {...}}, with the value
    of every option, defaults included, as JSON knows it; but for `width=1`, which is younger than
    the first files and what they mean. Wrong options become a PocketBayesError.
    The `facts` are filled into the docstring of a factory that makes several networks.
    """

    def register(factory: Callable[Options, Net]) -> Callable[Options, Net]:
        signature = inspect.signature(factory)
        if facts:
            factory.__doc__ = (factory.__doc__ or "").format(**facts)
            factory.__name__ = factory.__qualname__ = name.replace("-", "_")

        @functools.wraps(factory)
        def build(*args: Options.args, **kwargs: Options.kwargs) -> Net:
            bound = _bind(name, signature, args, kwargs)
            try:
                net = factory(*bound.args, **bound.kwargs)
            except PocketBayesError as error:
                raise PocketBayesError(f"network {name!r}: {error}") from error
            options = {
                key: _as_json(value)
                for key, value in bound.arguments.items()
                if not _is_implied(signature.parameters[key], value)
            }
            net.pocketbayes_network = {"name": name, "options": options}  # type: ignore[assignment]
            return net

        MODELS[name] = build
        return build

    return register


def build_network(name: str, /, **options: Any) -> nn.Module:
    """Builds a network of the table.

    Args:
        name: a key of `MODELS`.
        options: what its factory takes; `options_of(name)` lists them.

    Raises:
        PocketBayesError: no such network, no such option, or a value that it cannot have.

    Example:
        >>> net = build_network("mlp", input_shape=(64,), num_outputs=10, hidden=(32,))
    """
    return _factory(name)(**options)


def options_of(name: str) -> Mapping[str, inspect.Parameter]:
    """The options of a network: by name, with default and type; its docstring describes them."""
    return inspect.signature(_factory(name)).parameters


def _factory(name: str) -> Callable[..., nn.Module]:
    if not isinstance(name, str) or name not in MODELS:
        raise PocketBayesError(
            f"no network is called {name!r}{nearest(name, MODELS)}; there are {', '.join(MODELS)}"
        )
    return MODELS[name]


def _bind(
    name: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> inspect.BoundArguments:
    """The value of every option, or an error that lists the options there are."""
    known = ", ".join(signature.parameters)
    for key in kwargs:
        if key not in signature.parameters:
            hint = nearest(key, signature.parameters)
            raise PocketBayesError(f"network {name!r} has no option {key!r}{hint}; it has {known}")
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise PocketBayesError(f"network {name!r}: {error}; it takes, by name, {known}") from error
    bound.apply_defaults()
    return bound


def _is_implied(option: inspect.Parameter, value: Any) -> bool:
    """Whether a network that does not name this option has this value of it."""
    return option.name == "width" and option.default == value == 1.0


def _as_json(value: Any) -> Any:
    """The same value in the types that JSON gives back; numpy's numbers become Python's."""
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    if isinstance(value, bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value
