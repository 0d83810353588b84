"""All modules of a network, found faster than by its own methods, which also make names."""

from torch import Tensor, nn

from pocketbayes.layers.module import BayesianModule, posteriors_of
from pocketbayes.posteriors import Posterior


def modules_of(network: nn.Module) -> list[nn.Module]:
    """Every module once, in the order of `network.modules()`."""
    found, pending = dict[nn.Module, None](), [network]
    while pending:
        module = pending.pop()
        if module in found:
            continue
        found[module] = None
        inside = module._modules
        if inside:
            pending += [child for child in reversed(inside.values()) if child is not None]
    return list(found)


def first_parameter(network: nn.Module) -> Tensor:
    """That which tells where the network lies; a buffer if there is no parameter."""
    pending = [network]
    while pending:
        module = pending.pop()
        for parameter in module._parameters.values():
            if parameter is not None:
                return parameter
        pending += [child for child in reversed(module._modules.values()) if child is not None]
    return next(network.buffers())


def has_posteriors(network: nn.Module) -> bool:
    """Whether any layer is Bayesian."""
    pending = [network]
    while pending:
        module = pending.pop()
        if isinstance(module, BayesianModule):
            return True
        pending += [child for child in reversed(module._modules.values()) if child is not None]
    return False


def has_random_weights(network: nn.Module) -> bool:
    """Whether some posterior is more than a point."""
    return any(
        posterior.is_random
        for module in modules_of(network)
        if isinstance(module, BayesianModule)
        for posterior in posteriors_of(module).by_name().values()
    )


def is_fully_connected(network: nn.Module) -> bool:
    """Whether every layer with a random matrix is linear, and none convolves beside them."""
    modules = modules_of(network)
    layers = [
        module
        for module in modules
        if isinstance(module, BayesianModule)
        if any(len(posterior.shape) > 1 for posterior in posteriors_of(module).by_name().values())
    ]
    convolves = any(isinstance(module, nn.modules.conv._ConvNd) for module in modules)
    return all(isinstance(layer, nn.Linear) for layer in layers) and not convolves


def has_frozen_base(network: nn.Module) -> bool:
    """Whether some deterministic matrix does not learn: what does may be adapters."""
    return any(
        parameter is not None and parameter.dim() > 1 and not parameter.requires_grad
        for module in modules_of(network)
        if not isinstance(module, Posterior)
        for parameter in module._parameters.values()
    )
