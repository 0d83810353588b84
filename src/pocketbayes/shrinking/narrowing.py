"""Layers with some of their channels: posteriors and parameters cut to what stays."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pocketbayes.layers import BayesianModule, posteriors_of
from pocketbayes.posteriors import Gaussian, Packed, Point, Posterior, Sparse, as_packed, to_units

Source = Posterior | nn.Parameter


@dataclass(frozen=True)
class Parts:
    """Means and log-stds (None: certain) as dense tensors, and which weights are there."""

    mean: Tensor
    log_std: Tensor | None
    there: Tensor

    @property
    def active(self) -> Tensor:
        """The weights that are not simply 0."""
        return self.mean != 0 if self.log_std is None else self.there

    @property
    def certain(self) -> Tensor:
        """The weights without noise."""
        return torch.ones_like(self.there) if self.log_std is None else ~self.there

    def at(self, places: Tensor, axis: int) -> "Parts":
        """Some places along an axis."""
        tensors = (self.mean, self.log_std, self.there)
        return Parts(*(t if t is None else _picked(t, places, axis) for t in tensors))  # type: ignore[arg-type]


def source_of(module: nn.Module, name: str) -> Source | None:
    """The posterior or parameter of this name; None: the module has none."""
    if isinstance(module, BayesianModule) and name in posteriors_of(module):
        return posteriors_of(module)[name]
    return module._parameters.get(name)


def parts_of(source: Source) -> Parts:
    """Takes a posterior of its own mean and std, or a plain parameter, apart."""
    if not isinstance(source, Posterior):
        return Parts(source.detach(), None, torch.ones_like(source, dtype=torch.bool))
    mean = source.expectation().detach()
    if isinstance(source, Packed):
        there = source.placed(torch.ones_like(source.mean)) > 0
        random = isinstance(source, Sparse)
        log_std = source.placed(source.log_std.detach(), fill=-torch.inf) if random else None  # type: ignore[operator]
        return Parts(mean, log_std, there)
    log_std = source.log_std.detach() if isinstance(source, Gaussian) else None
    return Parts(mean, log_std, torch.ones_like(mean, dtype=torch.bool))


def parts_in(module: nn.Module, name: str) -> Parts:
    """The parts of a posterior or parameter that the module is known to have."""
    source = source_of(module, name)
    assert source is not None
    return parts_of(source)


def with_merged(parts: Parts, axis: int, carrier: int, share: Tensor) -> Parts:
    """The weights at the place `carrier` of an axis stand for all: w_e = sum_d share_d w_d.

    Means add with the share, variances with its square, so that the distribution of
    sum_d w_d c_d, share_d = c_d / c_e, is that of w_e c_e.
    """
    shape = [1] * parts.mean.dim()
    shape[axis] = -1
    share = share.to(torch.promote_types(parts.mean.dtype, torch.float32)).view(shape)
    mean = (parts.mean * share).sum(axis)
    there = (parts.there & (share != 0)).any(axis)
    log_std = None
    if parts.log_std is not None:
        log_std = torch.logsumexp(2 * (parts.log_std + share.abs().log()), axis) / 2
        log_std = _replaced(parts.log_std, axis, carrier, log_std)
    mean = _replaced(parts.mean, axis, carrier, mean)
    return Parts(mean, log_std, _replaced(parts.there, axis, carrier, there))


def rebuilt(source: Source, parts: Parts) -> Source:
    """What `source` was, a posterior of its family where that can be, from other parts.

    All weights there make a sparse tensor dense; none there make it a point at 0.
    """
    if not isinstance(source, Posterior):
        return nn.Parameter(parts.mean, source.requires_grad)
    prior = source.prior_std.clone()
    if parts.log_std is None or not parts.there.any():
        dense: Gaussian | Point = Point(parts.mean, prior)
    else:
        kind = type(source) if isinstance(source, Gaussian) else Gaussian
        dense = kind(parts.mean, parts.log_std, prior)
    learns = {name: p.requires_grad for name, p in source.named_parameters()}
    for name, parameter in dense.named_parameters():
        parameter.requires_grad_(learns[name])
    if parts.there.all() or not parts.there.any():
        return dense
    assert isinstance(source, Packed)
    structure = "none" if source.structure == "block16" else source.structure
    units = to_units(parts.there, structure)
    index = (units.any(1) if units.dim() > 1 else units).nonzero().flatten()
    return as_packed(dense, index, structure)


def narrow_layer_(
    layer: Any, outputs: Tensor, inputs: Tensor, merge: tuple[int, Tensor] | None
) -> None:
    """Keeps these outputs and inputs of a linear layer or an ungrouped convolution.

    `merge` are the input that stands for others that go, and their shares.
    """
    out_axis, in_axis = weight_axes(layer)
    weight = source_of(layer, "weight")
    assert weight is not None
    parts = parts_of(weight)
    if merge is not None:
        parts = with_merged(parts, in_axis, *merge)
    parts = parts.at(inputs, in_axis).at(outputs, out_axis)
    _put(layer, "weight", rebuilt(weight, parts))
    _narrow_vector_(layer, "bias", outputs)
    kind = "features" if isinstance(layer, nn.Linear) else "channels"
    setattr(layer, f"in_{kind}", int(inputs.sum()))
    setattr(layer, f"out_{kind}", int(outputs.sum()))


def narrow_depthwise_(layer: Any, outputs: Tensor, inputs: Tensor) -> None:
    """Keeps these channels of a depthwise convolution, which has a group for each input."""
    _narrow_vector_(layer, "weight", outputs)
    _narrow_vector_(layer, "bias", outputs)
    layer.in_channels = layer.groups = int(inputs.sum())
    layer.out_channels = int(outputs.sum())


def narrow_norm_(norm: Any, channels: Tensor) -> None:
    """Keeps these channels of a batch norm."""
    for name in ("weight", "bias"):
        _narrow_vector_(norm, name, channels)
    for name in ("running_mean", "running_var"):
        if norm._buffers[name] is not None:
            norm._buffers[name] = _picked(norm._buffers[name], channels, 0)
    norm.num_features = int(channels.sum())


def weight_axes(layer: Any) -> tuple[int, int]:
    """The axes of outputs and inputs in a layer's weight."""
    return (1, 0) if getattr(layer, "transposed", False) else (0, 1)


def _narrow_vector_(module: nn.Module, name: str, places: Tensor) -> None:
    source = source_of(module, name)
    if source is not None:
        _put(module, name, rebuilt(source, parts_of(source).at(places, 0)))


def _put(module: nn.Module, name: str, new: Source) -> None:
    if isinstance(new, Posterior):
        assert isinstance(module, BayesianModule)
        posteriors_of(module)[name] = new.train(module.training)
    else:
        module._parameters[name] = new


def _picked(tensor: Tensor, places: Tensor, axis: int) -> Tensor:
    """Some places along an axis; a channels_last tensor stays one."""
    index = places.nonzero().flatten().to(tensor.device)
    last = not tensor.is_contiguous() and tensor.dim() == 4
    last = last and tensor.is_contiguous(memory_format=torch.channels_last)
    layout = torch.channels_last if last else torch.contiguous_format
    return tensor.index_select(axis, index).contiguous(memory_format=layout)


def _replaced(tensor: Tensor, axis: int, place: int, new: Tensor) -> Tensor:
    tensor = tensor.clone()  # index_copy would lose channels_last
    tensor.select(axis, place).copy_(new)
    return tensor
