"""Layers that are linear in their weight, and the ways they make an output from its posterior."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self

from torch import Tensor, nn

from pocketbayes.layers.carried import carried_moments
from pocketbayes.layers.convolutions import as_convolution
from pocketbayes.layers.estimators import (
    Conv,
    Weights,
    add_noise,
    as_half,
    flipout,
    gated_reparameterisation,
    linear_operation,
    local_reparameterisation,
    output_moments,
)
from pocketbayes.layers.module import BayesianModule, LayerPosteriors, posteriors_of
from pocketbayes.moments import is_carrying
from pocketbayes.posteriors import Posterior, current_drawing, is_repeated, remembered


class _Matrix(LayerPosteriors):
    """Of a layer that is linear in its weight, which knows all estimators."""

    is_convolution: bool

    @classmethod
    def of(cls, layer: nn.Module, posteriors: Mapping[str, Posterior]) -> Self:
        found = super().of(layer, posteriors)
        found.is_convolution = not isinstance(layer, nn.Linear)
        return found

    def estimator_for(self, wanted: str) -> str:
        return wanted

    def draws_weights(self, one_row: bool) -> bool:
        """By local reparameterisation it does not."""
        is_local = not self.is_convolution and one_row and self.is_normal
        return self.estimator_now() in ("weight", "flipout") and not is_local

    @property
    def is_normal(self) -> bool:
        return all(q.is_normal for q in self.by_name().values())


class LinearLayer(BayesianModule):
    """Any layer that is linear in its weight: Linear, ConvNd, ConvTransposeNd."""

    _kind_of_posteriors = _Matrix

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:  # noqa: A002
        """The output for one draw, by this layer's `estimator`."""
        if isinstance(self, nn.Linear):
            return _way_of(self, input)(self, input, None)
        spatial = len(self.kernel_size)  # type: ignore[arg-type]
        if input.dim() not in (spatial + 1, spatial + 2):
            return super().forward(input, *args, **kwargs)  # type: ignore[no-any-return]  # torch's own error
        batched = input.dim() == spatial + 2
        run = _way_of(self, input)
        output = run(self, *as_convolution(self, input, batched, *args, **kwargs))
        return output if batched else output.squeeze(0)


Way = Callable[[LinearLayer, Tensor, Conv | None], Tensor]


def _way_of(layer: LinearLayer, x: Tensor) -> Way:
    """How the output is made from an input that is batched and padded."""
    own: _Matrix = posteriors_of(layer)  # type: ignore[assignment]
    estimator, carries = own.estimator_now(), is_carrying()
    if (estimator == "mean" and not carries) or own.held_draw() is not None:
        return _plain
    posteriors = own.by_name().values()
    if any(q.is_random for q in posteriors):
        local = all(q.is_independent or q.gate is not None for q in posteriors)
        if carries:
            return partial(_carried, common=estimator != "lrt" or not local)
        if (estimator == "lrt" and local) or (current_drawing() is not None and _is_local(own, x)):
            return _local
        if estimator == "flipout" and all(q.is_independent for q in posteriors):
            return _flipout
    return _plain


def _is_local(own: _Matrix, x: Tensor) -> bool:
    """Whether the output for drawn weights has the law of local reparameterisation.

    Outputs of one row are independent normal numbers if the weights are, so that there is no
    need to draw all of these.
    """
    return (
        own.estimator_now() == "weight"
        and not own.is_convolution
        and x.numel() == x.shape[-1]
        and own.is_normal
    )


def _local(layer: LinearLayer, x: Tensor, conv: Conv | None) -> Tensor:
    gate = posteriors_of(layer)["weight"].gate
    if gate is not None:
        return gated_reparameterisation(x, _moments(layer), conv, *gate)
    if not is_repeated(x):
        return local_reparameterisation(x, _moments(layer), conv)
    place = x.untyped_storage().data_ptr(), x.storage_offset()
    key = (id(layer), conv, x.dtype, x.size(), x.stride(), *place)
    known = remembered(key, lambda: output_moments(x, _moments(layer), conv))
    return as_half(x, add_noise(*known))


def _plain(layer: LinearLayer, x: Tensor, conv: Conv | None) -> Tensor:
    return linear_operation(x, posteriors_of(layer).value("weight"), _bias(layer), conv)


def _carried(layer: LinearLayer, x: Tensor, conv: Conv | None, common: bool) -> Tensor:
    posterior = posteriors_of(layer)["weight"]
    weights, gate = _moments(layer), posterior.gate
    if gate is not None and gate.side == "input":
        weights, gate = Weights(*posterior.moments(), *weights[2:]), None
    square = remembered(("square", posterior), weights.mean.square)
    inclusion = None if gate is None else gate.inclusion
    return carried_moments(x, weights, conv, common, inclusion, square)


def _flipout(layer: LinearLayer, x: Tensor, conv: Conv | None) -> Tensor:
    posterior = posteriors_of(layer)["weight"]
    mean = posterior.expectation()
    return flipout(x, mean, posterior.sample() - mean, _bias(layer), conv)


def _bias(layer: LinearLayer) -> Tensor | None:
    own = posteriors_of(layer)
    return own.value("bias") if "bias" in own.by_name() else layer.bias  # type: ignore[return-value]


def _moments(layer: LinearLayer) -> Weights:
    """Moments of weight and bias; of a weight behind a gate, those while it is open."""
    own = posteriors_of(layer)
    mean, variance = own["weight"].slab()
    if "bias" in own.by_name():
        return Weights(mean, variance, *own["bias"].moments())
    return Weights(mean, variance, layer.bias, None)  # type: ignore[arg-type]
