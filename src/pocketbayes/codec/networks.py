"""The plain network that a file is to fill: the one given, or the one that the file names."""

import copy
import inspect
from collections.abc import Callable

import torch
from torch import nn

from pocketbayes.codec.header import Header
from pocketbayes.errors import FormatError, PocketBayesError
from pocketbayes.layers import Ensemble, bayesian_modules, unwrapped
from pocketbayes.models import build_network

Factory = Callable[[], nn.Module]


def given_network(net: nn.Module | Factory | None) -> nn.Module | None:
    """The network itself, or the one that a class or function without arguments makes."""
    if net is None or isinstance(net, nn.Module) or not callable(net):
        return net
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


def network_to_fill(header: Header, net: nn.Module | None) -> nn.Module:
    """A plain network to fill: the given one, or one of ours that holds no memory yet."""
    first = _built(header) if net is None else _named_alike(net, header)
    if not isinstance(first, nn.Module) or any(True for _ in bayesian_modules(first)):
        raise FormatError("net must be a plain torch.nn.Module, not yet Bayesian")
    if header.members == 1:
        return first
    if header.members * len(list(first.parameters())) > len(header.posteriors) + len(header.state):
        raise FormatError(f"the file speaks of {header.members} networks but does not hold them")
    return Ensemble([first] + [copy.deepcopy(first) for _ in range(header.members - 1)])


def _named_alike(net: nn.Module, header: Header) -> nn.Module:
    """The network or, if the file goes by the names in there, the one inside of a wrapper."""
    if not isinstance(net, nn.Module):
        return net
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
