"""Layers whose weight is computed from another one by weight or spectral normalisation.

What becomes Bayesian is that other one, the direction `v` or the weight before it is divided by
its norm: its draws are normalised as it is. Factors of weight normalisation stay points.
"""

from typing import Any

from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

_KNOWN = (parametrizations._WeightNorm, parametrizations._SpectralNorm)


def normalised_weights(module: nn.Module) -> tuple[str, ...] | None:
    """The parameters of this module that are normalised; None where there are none.

    A layer that is parametrised keeps them in a module of their own, and itself has ().
    """
    if isinstance(module, parametrize.ParametrizationList):
        if len(module) != 1 or not isinstance(module[0], _KNOWN):
            return None
        return ("original1" if module.ntensors > 1 else "original",)
    if parametrize.is_parametrized(module):
        parts = module.parametrizations.values()  # type: ignore[operator]
        return () if all(normalised_weights(part) is not None for part in parts) else None
    return tuple(raw for _, raw in _by_hooks(module)) or None


def computed_attributes(module: nn.Module) -> set[str]:
    """Names of tensors that hooks compute before each pass, and may keep over the raw weight."""
    return {name for name, _ in _by_hooks(module)}


def _by_hooks(module: nn.Module) -> list[tuple[str, str]]:
    ends: dict[type, str] = {WeightNorm: "_v", SpectralNorm: "_orig"}
    hooks: list[Any] = [h for h in module._forward_pre_hooks.values() if type(h) in ends]
    return [(hook.name, f"{hook.name}{ends[type(hook)]}") for hook in hooks]
