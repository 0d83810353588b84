"""Which network a file names, and the plain one that it is to fill: named by it, or given."""

import copy
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import nn

from pocketbayes.codec.contents import Contents
from pocketbayes.codec.header import Header
from pocketbayes.codec.sections import require_few_weights
from pocketbayes.codec.structures import difference, tensor_shapes
from pocketbayes.errors import FormatError, PocketBayesError, require_choice
from pocketbayes.layers import (
    NOISES,
    PREFIX,
    Ensemble,
    bayesian_modules,
    describe,
    members_of,
    plain_class_of,
    unwrapped,
)
from pocketbayes.models import (
    LIBRARIES,
    build_foreign,
    build_network,
    foreign_network,
    is_foreign,
    split_name,
)

Factory = Callable[[], nn.Module]
_WHOLE = {"gaussian", "log_uniform", "point"}  # families whose mean has the tensor's shape


def network_named(
    model: nn.Module, wanted: str | Mapping[str, Any] | None, frozen: bool = True
) -> dict[str, Any] | None:
    """{"name", "options"} for the file: as asked for, as known, or as the model itself tells.

    Of another library's network only where the one built from that is the same, by modules,
    shapes and settings.
    """
    if wanted is None:
        known = describe(model).network
        return known if known is not None or not frozen else _told_by(model)
    if not frozen:
        raise PocketBayesError("frozen=False: load wants the base's network, so leave network= out")
    named: dict[str, Any] = dict(wanted) if isinstance(wanted, Mapping) else {"name": wanted}
    if not isinstance(named.get("name"), str) or not named.keys() <= {"name", "options"}:
        raise PocketBayesError('network must be as "timm:resnet50", or a dict of name and options')
    library, name = split_name(named["name"])
    first = members_of(model)[0]
    if "options" not in named:
        told = foreign_network(first, plain_class_of(first), name)
        if told is None or split_name(told["name"])[0] != library:
            kind = plain_class_of(first).__name__
            raise PocketBayesError(f"network={named['name']!r}: this {kind} is not of {library}")
        named = told
    apart = _difference(model, named)
    if apart is not None:
        raise PocketBayesError(
            f"the model is not {named['name']} with {_told(named['options'])}: {apart}. Name its "
            'arguments, network={"name": ..., "options": {...}}, or leave network= out'
        )
    return named


def _told(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}={v}" for k, v in options.items() if not isinstance(v, dict))


def _told_by(model: nn.Module) -> dict[str, Any] | None:
    """What a model of another library tells of itself, if a network made by that is the same."""
    first = members_of(model)[0]
    try:
        found = foreign_network(first, plain_class_of(first))
        return None if found is None or _difference(model, found) is not None else found
    except PocketBayesError:
        return None


def _difference(model: nn.Module, network: Mapping[str, Any]) -> str | None:
    made = _on_no_memory(network, len(tensor_shapes(model)))
    found = (difference(member, made) for member in members_of(model))
    return next((apart for apart in found if apart is not None), None)


def _on_no_memory(network: Mapping[str, Any], tensors: int) -> nn.Module:
    with torch.device("meta"):
        return build_foreign(network, tensors)


def given_network(net: nn.Module | Factory | None) -> nn.Module | None:
    """The network itself, or the one that a class or function without arguments makes."""
    if net is None or isinstance(net, nn.Module):
        return net
    if not callable(net):
        raise FormatError(
            f"net is {_in_words(net)}; it must be a plain torch.nn.Module, or a class or function "
            "without arguments that makes one, as in load(path, MyNet)"
        )
    name = getattr(net, "__name__", type(net).__name__)
    try:
        inspect.signature(net).bind()
    except TypeError as error:
        raise FormatError(
            f"{name} cannot be called without arguments ({error}): pass a network, "
            f"load(path, {name}(...)), or load(path, lambda: {name}(...))"
        ) from error
    except ValueError:  # a callable that does not tell what it takes
        pass
    made = net()
    if not isinstance(made, nn.Module):
        raise FormatError(f"{name}() made a {type(made).__name__}, not a torch.nn.Module")
    return made


def _in_words(net: object) -> str:
    """What somebody gave in place of a network."""
    if isinstance(net, Mapping) and any(isinstance(value, torch.Tensor) for value in net.values()):
        return "a state dict, which the file holds itself"
    return repr(net) if isinstance(net, str) else f"of type {type(net).__name__}"


def network_to_fill(
    header: Header,
    file: Contents,
    net: nn.Module | None,
    allow: Collection[str] = (),
    max_weights: int | None = None,
) -> nn.Module:
    """A plain network to fill: the given one, or the one that the file names.

    One of ours holds no memory yet; another library's is built where the caller allows that, once
    names and shapes of one without memory were those of the file.
    """
    allowed = _libraries(allow)
    for library in allowed:
        require_choice(library, "every library in allow", LIBRARIES)
    if net is not None:
        first = _named_alike(net, header)
    elif is_foreign(header.model.network):
        first = _foreign(header, file, allowed, max_weights)
    else:
        first = _built(header)
    if any(True for _ in bayesian_modules(first)):
        raise FormatError("net must be a plain torch.nn.Module, not yet Bayesian")
    if header.members == 1:
        return first
    if header.members * len(list(first.parameters())) > len(header.posteriors) + len(header.state):
        raise FormatError(f"the file speaks of {header.members} networks but does not hold them")
    return Ensemble([first] + [copy.deepcopy(first) for _ in range(header.members - 1)])


def _libraries(allow: Collection[str]) -> tuple[str, ...]:
    """Those that may build a network."""
    if isinstance(allow, str | None):
        return (allow,) if allow else ()
    if not isinstance(allow, Collection):
        raise PocketBayesError(
            f"allow must name the libraries that may build a network, out of "
            f"{', '.join(LIBRARIES)}, as in allow=({next(iter(LIBRARIES))!r},); got {allow!r}"
        )
    return tuple(allow)


def _named_alike(net: nn.Module, header: Header) -> nn.Module:
    """The network or, if the file goes by the names in there, the one inside of a wrapper."""
    names = {name.removeprefix("members.0.") for name in header.posteriors}
    return unwrapped(net) if names.isdisjoint(dict(net.named_parameters())) else net


def _built(header: Header) -> nn.Module:
    network = header.model.network
    if network is None:
        raise FormatError("the file does not name its network: pass one, load(path, net)")
    try:
        with torch.device("meta"):
            return build_network(network["name"], **network["options"])
    except PocketBayesError:
        raise
    except Exception as error:  # whatever a network's constructor says of strange options
        raise FormatError(f"the network {network['name']} cannot be built: {error}") from error


def _foreign(
    header: Header, file: Contents, allowed: Collection[str], max_weights: int | None
) -> nn.Module:
    """A network of another library, if all its weights and nothing else are in the file."""
    network = header.model.network or {}
    library, _ = split_name(network["name"])
    if library not in allowed:
        raise FormatError(
            f"its network is {network['name']}, which {library} is to build: say "
            f"load(path, allow=({library!r},)) if you trust {library} with options from this file, "
            "or pass a network, load(path, net)"
        )
    shapes = _shapes_in(header, file)
    made = _on_no_memory(network, len(shapes))
    _require_same(tensor_shapes(made), shapes)
    weights = header.members * sum(t.numel() for t in _tensors(made))
    require_few_weights(weights, file.file.size, max_weights)
    return build_foreign(network, len(shapes))


def _tensors(net: nn.Module) -> list[torch.Tensor]:
    return [*net.parameters(), *net.buffers()]


def _shapes_in(header: Header, file: Contents) -> dict[str, tuple[int, ...] | None]:
    """Of what the first network in the file has, the shapes; None: known when it is decoded."""
    found: dict[str, tuple[int, ...] | None] = {}
    for name, family in header.posteriors.items():
        is_whole = family in _WHOLE
        found[name] = file.specs[f"posterior/{name}/mean"].shape if is_whole else None
    for name in header.state:
        found[name] = file.specs[f"state/{name}"].shape
    if header.members > 1:
        first = "members.0."
        found = {n.removeprefix(first): s for n, s in found.items() if n.startswith(first)}
    return {n: s for n, s in found.items() if n not in NOISES and not n.startswith(PREFIX)}


def _require_same(
    made: Mapping[str, tuple[int, tuple[int, ...]]], stored: Mapping[str, tuple[int, ...] | None]
) -> None:
    """Every tensor of the network is in the file under one of its names, with its shape."""
    for name, shape in stored.items():
        if name not in made:
            raise FormatError(f"{name} is not in the network that the file names")
        if shape is not None and made[name][1] != shape:
            raise FormatError(
                f"{name} has shape {shape} in the file; the network that it names has "
                f"{made[name][1]}"
            )
    there = {made[name][0] for name in stored}
    for name, (key, _) in made.items():
        if key not in there:
            raise FormatError(f"{name} of the network that the file names is not in the file")
