"""Moments of what layers that are linear in their weight give, for inputs that have moments."""

from torch import Tensor

from pocketbayes.layers.estimators import Conv, Weights, by_channel, linear_operation
from pocketbayes.moments import Moments, linear_moments


def carried_moments(
    x: Tensor,
    weights: Weights,
    conv: Conv | None,
    common: bool,
    inclusion: Tensor | None,
    square: Tensor,
) -> Tensor:
    """Moments of the output; an input may also be certain.

    With gates at the outputs the weights are those behind them, and a gate of chance p is a factor
    of mean p and variance p (1 - p). `common`: one draw serves all positions; `square`: E[w]^2.
    """

    def operation(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return linear_operation(x, weight, bias, conv)

    axis = -1 if conv is None else -1 - len(conv.stride)
    weight, bias = (weights.mean, weights.variance), (weights.bias, weights.bias_variance)
    if inclusion is None:
        return linear_moments(operation, x, weight, bias, axis, common, square)
    slab = linear_moments(operation, x, weight, (None, None), axis, common, square)
    chances = by_channel(inclusion, slab, conv)
    output = slab * Moments(chances, chances * (1 - chances))
    if weights.bias is None:
        return output
    if weights.bias_variance is None:
        return output + by_channel(weights.bias, slab, conv)
    return output + by_channel(Moments(weights.bias, weights.bias_variance), slab, conv)
