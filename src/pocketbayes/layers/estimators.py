"""Ways to send an input through a random weight: pure functions of tensors.

A *linear operation* is y = A(w) x + b, linear in x and in w: a matrix product, a convolution or
a transposed convolution. It is named by `conv`: None for the matrix product, else the six
trailing arguments of `torch.convolution`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from pocketbayes.layers.products import convolution
from pocketbayes.posteriors import bernoulli, included_moments, normal_like, signs_like, soft_gate

ESTIMATORS = ("lrt", "weight", "flipout", "mean")
_LARGE = 1 << 16  # numbers, from which the memory that a gradient takes counts


class Conv(NamedTuple):
    """The arguments of `torch.convolution` after input, weight and bias."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    groups: int


class Weights(NamedTuple):
    """Mean and variance of a layer's weight and bias; None: there is none, or it is certain."""

    mean: Tensor
    variance: Tensor
    bias: Tensor | None
    bias_variance: Tensor | None


def linear_operation(x: Tensor, weight: Tensor, bias: Tensor | None, conv: Conv | None) -> Tensor:
    """Y = A(weight) x + bias."""
    if conv is None:
        return F.linear(x, weight, bias)
    return convolution(x, weight, bias, conv)


def local_reparameterisation(x: Tensor, weights: Weights, conv: Conv | None) -> Tensor:
    """Y = m + sqrt(v) eps with m = A(E w) x + E b, v = A(Var w) x^2 + Var b, eps ~ N(0, 1).

    Exact for independent Gaussian weights where each output reads each weight once. A
    convolution reads its weights at every position: there the marginal of each output is
    exact, but the noise is independent from position to position.
    """
    return as_half(x, add_noise(*output_moments(x, weights, conv)))


def gated_reparameterisation(
    x: Tensor, slab: Weights, conv: Conv | None, inclusion: Tensor, side: str
) -> Tensor:
    """Local reparameterisation of weights behind gates of whole inputs or outputs.

    An input's gate multiplies it, once per example for all outputs, positions and groups. With
    one at an output, v = p A(Var theta) x^2 + p (1 - p) (A(E theta) x)^2 + Var b and
    m = p A(E theta) x + E b. Without gradients gates are drawn as they are, on or off.
    """
    smooth = torch.is_grad_enabled()
    if side == "input":
        gates = _drawn_gates(inclusion, x, conv, soft_gate if smooth else bernoulli)
        return local_reparameterisation((x * gates).to(x.dtype), slab, conv)
    mean, variance = output_moments(x, Weights(*slab[:2], None, None), conv)
    if smooth:
        chances = by_channel(inclusion, mean, conv)
    else:
        chances = _drawn_gates(inclusion, mean, conv, bernoulli)
    mean, variance = included_moments(mean, variance, chances)
    if slab.bias is not None:
        mean = mean + by_channel(slab.bias, mean, conv)
    if slab.bias_variance is not None:
        variance = variance + by_channel(slab.bias_variance, variance, conv)
    return as_half(x, add_noise(mean, variance))


def _drawn_gates(
    inclusion: Tensor, x: Tensor, conv: Conv | None, draw: Callable[[Tensor], Tensor]
) -> Tensor:
    """One draw of each gate per example, the same for all groups, in a shape that goes with x."""
    if conv is None:
        return draw(inclusion.expand(_one_position(x, conv)))
    batch, channels, *positions = _one_position(x, conv)
    chances = inclusion.view(-1, *positions).expand(batch, -1, *positions)
    return draw(chances).repeat(1, channels // len(inclusion), *positions)


def by_channel(values: Tensor, x: Tensor, conv: Conv | None) -> Tensor:
    """One value per channel, or per channel of each group, in a shape that goes with x."""
    channels = x.shape[-1] if conv is None else x.shape[1]
    every = values.repeat(channels // len(values))
    return every if conv is None else every.view(1, -1, *(1 for _ in conv.stride))


def _one_position(x: Tensor, conv: Conv | None) -> list[int]:
    """The shape of x with one position per example."""
    if conv is not None:
        return [*x.shape[:2], *(1 for _ in conv.stride)]
    return [*x.shape[:-1][:1], *(1 for _ in x.shape[1:-1]), x.shape[-1]]


def as_half(x: Tensor, output: Tensor) -> Tensor:
    """The output of a layer in half precision, if that is what its input is in."""
    return output.to(x.dtype) if x.dtype in (torch.float16, torch.bfloat16) else output


def output_moments(x: Tensor, weights: Weights, conv: Conv | None) -> tuple[Tensor, Tensor]:
    """Mean and variance of every output (m and v above)."""
    tensors = _as_autocast_would(x, *weights)
    with _without_autocast(x.device.type):
        return _output_moments(tensors, conv)


def _output_moments(tensors: tuple[Any, ...], conv: Conv | None) -> tuple[Tensor, Tensor]:
    if _needs_frugal_gradient(*tensors):
        result: tuple[Tensor, Tensor] = _OutputMoments.apply(*tensors, conv)  # type: ignore[no-untyped-call]
        return result
    x, mean, variance, bias, bias_variance = tensors
    return _OutputMoments.forward(x, mean, variance, bias, bias_variance, conv)


def add_noise(mean: Tensor, variance: Tensor) -> Tensor:
    """Mean + sqrt(variance) eps, with eps ~ N(0, 1) drawn here."""
    noise = normal_like(mean)
    if _needs_frugal_gradient(mean, variance):
        output, _ = _AddNoise.apply(mean, variance, noise)  # type: ignore[no-untyped-call]
        return cast(Tensor, output)
    return torch.addcmul(mean, _safe_sqrt(variance), noise)


def flipout(
    x: Tensor, mean: Tensor, deviation: Tensor, bias: Tensor | None, conv: Conv | None
) -> Tensor:
    """Y = A(mean) x + b + s * A(deviation) (r * x), random signs r, s per example and channel.

    One draw of the weight's deviation serves the whole batch; the signs decorrelate examples.
    """
    wide, mean, deviation, bias = _as_autocast_would(x, mean, deviation, bias)
    certain = linear_operation(wide, mean, bias, conv)
    perturbed = linear_operation(wide * _signs_like(wide, conv), deviation, None, conv)
    return as_half(x, certain + perturbed * _signs_like(perturbed, conv))


def _needs_frugal_gradient(*tensors: Tensor | None) -> bool:
    """Whether a gradient is wanted, and of so much that it matters what is kept for it.

    A compiler decides by itself what to keep. Of little, torch's own gradient is the faster.
    """
    return (
        torch.is_grad_enabled()
        and any(t is not None and t.requires_grad for t in tensors)
        and not torch.compiler.is_compiling()
        and max(t.numel() for t in tensors if t is not None) >= _LARGE
    )


def _signs_like(x: Tensor, conv: Conv | None) -> Tensor:
    """One per example and channel, the same for all its positions or tokens."""
    return signs_like(x.new_empty(_one_position(x, conv)))


def _safe_sqrt(variance: Tensor) -> Tensor:
    return variance.clamp_min(torch.finfo(variance.dtype).tiny).sqrt_()


def _as_autocast_would(*tensors: Tensor | None) -> tuple[Any, ...]:
    """The tensors in autocast's dtype, since autocast cannot see into autograd functions.

    float16 ends at 6e-8, where variances begin: what would be float16 is float32 here.
    """
    first = next(t for t in tensors if t is not None)
    if torch.is_autocast_enabled(first.device.type):
        dtype = torch.get_autocast_dtype(first.device.type)
    elif first.dtype == torch.float16:
        dtype = first.dtype
    else:
        return tensors
    dtype = torch.float32 if dtype == torch.float16 else dtype
    return tuple(t if t is None or t.dtype == torch.float64 else t.to(dtype) for t in tensors)


def _without_autocast(device: str) -> AbstractContextManager[object]:
    if torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()


class _OutputMoments(torch.autograd.Function):
    """Both linear operations at once; the backward pass squares x again instead of keeping x^2."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor,
        mean: Tensor,
        variance: Tensor,
        bias: Tensor | None,
        bias_variance: Tensor | None,
        conv: Conv | None,
    ) -> tuple[Tensor, Tensor]:
        """The moments of the output."""
        first = linear_operation(x, mean, bias, conv)
        return first, linear_operation(x.square(), variance, bias_variance, conv)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keeps what both backward passes need: nothing of the output's size."""
        x, mean, variance, _, _, ctx.conv = inputs
        ctx.save_for_backward(x, mean, variance)

    @staticmethod
    def backward(ctx: Any, d_first: Tensor, d_second: Tensor) -> tuple[Tensor | None, ...]:
        """The chain rule through A(mean) x and A(variance) x^2."""
        x, mean, variance = ctx.saved_tensors
        need_x, need_mean, need_variance, need_bias, need_bias_variance, _ = ctx.needs_input_grad
        dx, d_mean, d_bias = _linear_operation_backward(
            d_first, x, mean, ctx.conv, (need_x, need_mean, need_bias)
        )
        d_square, d_variance, d_bias_variance = _linear_operation_backward(
            d_second, x.square(), variance, ctx.conv, (need_x, need_variance, need_bias_variance)
        )
        if dx is not None and d_square is not None:
            dx = torch.addcmul(dx, x, d_square, value=2)
        return dx, d_mean, d_variance, d_bias, d_bias_variance, None


def _linear_operation_backward(
    gradient: Tensor, x: Tensor, weight: Tensor, conv: Conv | None, needs: tuple[bool, bool, bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of `linear_operation` in x, weight and bias, where needed."""
    if conv is not None:
        channels = gradient.shape[1]
        dx, dw, db = torch.ops.aten.convolution_backward(
            gradient, x, weight, [channels] if needs[2] else None, *conv, needs
        )
        return dx if needs[0] else None, dw if needs[1] else None, db if needs[2] else None
    rows = gradient.reshape(-1, gradient.shape[-1])
    dx = gradient @ weight if needs[0] else None
    dw = rows.T @ x.reshape(-1, x.shape[-1]) if needs[1] else None
    return dx, dw, rows.sum(0) if needs[2] else None


class _AddNoise(torch.autograd.Function):
    """Mean + std * noise; keeps one tensor, noise / (2 std), in place of std, noise and a mask."""

    generate_vmap_rule = True

    @staticmethod
    def forward(mean: Tensor, variance: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """The noisy output, and d output / d variance for the backward pass."""
        std = _safe_sqrt(variance)
        slope = (noise / std).mul_(0.5)
        slope.masked_fill_(variance <= torch.finfo(variance.dtype).tiny, 0)
        return torch.addcmul(mean, std, noise), slope

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keeps the derivative."""
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
        """D mean = g, d variance = g noise / (2 std)."""
        (slope,) = ctx.saved_tensors
        return (None, None, None) if gradient is None else (gradient, gradient * slope, None)
