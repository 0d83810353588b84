"""What training costs in operations: a number that no machine, kernel or compiler changes.

It says what a device that skips zeros would have to do, not what this one did: torch's kernels
multiply by zeros too. For that, look at seconds and bytes.
"""

from dataclasses import dataclass

from torch import nn

from pocketbayes.layers import Inputs, uses_of_weights
from pocketbayes.methods import ExchangingMethod, Method


@dataclass(frozen=True)
class TrainingFlops:
    """FLOPs per training example and step: of the weights there are, and if all were there.

    Attributes:
        active: with the weights that exist; exchanges of weights included, averaged over steps.
        dense: with all weights.
    """

    active: float
    dense: float

    @property
    def ratio(self) -> float:
        """Active over dense."""
        return self.active / self.dense


def training_flops(model: nn.Module, x: Inputs, method: Method | None = None) -> TrainingFlops:
    """Floating-point operations of training on one example of `x`.

    A multiply-add with a weight counts 2; norms, activations, noise and attention's products of
    activations, small or equal for both, do not count. With f the forward pass of one example, f_S
    over the active weights and f_D over all, a step takes 3 f (forward, gradients of activations,
    gradients of weights). A sparse method adds 2 f_S + f_D in each step that exchanges weights,
    since growth needs the gradient of all. The local reparameterisation doubles everything, for
    sparse and dense alike, and is left out.

    Args:
        model: a network, converted or not; it is run once, without gradients.
        x: inputs of one batch: a tensor, or several in a tuple or, by name, in a dict.
        method: how it is trained, for the exchanges of sparse methods.

    Example:
        >>> training_flops(model, x, Subspace(density=0.05)).ratio
    """
    uses = uses_of_weights(model, x)
    dense = 2 * sum(use.positions * use.size for use in uses)
    active = 2 * sum(use.positions * use.active for use in uses)
    extra = 0.0
    if isinstance(method, ExchangingMethod) and active < dense:
        passes = method.growth_steps if method.growth == "multi_step" else 1
        share = method.exchange_until * passes / method.update_every
        extra = share * (2 * active + dense)
    return TrainingFlops(3 * active + extra, 3 * dense)
