"""Layers with some of their channels: posteriors and parameters cut to what stays."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pocketbayes.layers import BayesianModule, posteriors_of
from pocketbayes.posteriors import Gaussian, Packed, Point, Posterior, Sparse, as_packed, to_units

Source = Posterior | nn.Parameter
_WIDTHS = (("out_features", "in_features"), ("out_channels", "in_channels"), ("nf", "nx"))


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


def narrow_(
    module: nn.Module, name: str, masks: Mapping[int, Tensor], merge: tuple[int, int, Tensor] | None
) -> None:
    """Keeps some places along axes of a parameter, buffer or posterior.

    `merge` are the axis of inputs, the one that stands for others that go, and their shares.
    """
    source = source_of(module, name)
    if source is None:
        buffer = module._buffers[name]
        assert buffer is not None
        for axis, mask in masks.items():
            buffer = _picked(buffer, mask, axis)
        module._buffers[name] = buffer
    else:
        parts = parts_of(source)
        if merge is not None:
            parts = with_merged(parts, *merge)
        for axis, mask in masks.items():
            parts = parts.at(mask, axis)
        _put(module, name, rebuilt(source, parts))


def rescale_(module: nn.Module, direction: str, factor: str, before: Tensor) -> None:
    """Makes up for the norms that rows of v had before columns went: g' = g |v'| / |v|."""
    known = module._parameters[factor]
    assert known is not None
    scale = _norms(parts_in(module, direction).mean) / _norms(before)
    new = known.detach() * scale.to(known).view(known.shape)
    module._parameters[factor] = nn.Parameter(new, known.requires_grad)


def _norms(rows: Tensor) -> Tensor:
    return rows.flatten(1).square().sum(1).sqrt()


def set_widths(module: Any, name: str, masks: Mapping[int, Tensor]) -> None:
    """The numbers that layers keep of their weights' sizes."""
    if name not in ("weight", "weight_v", "original1"):
        return
    sizes = {axis: int(mask.sum()) for axis, mask in masks.items()}
    turned = getattr(module, "transposed", False) or hasattr(module, "nf")
    groups = getattr(module, "groups", 1)
    several = module.out_channels // groups if groups > 1 else 1
    for kinds in _WIDTHS:
        for axis, kind in enumerate(reversed(kinds) if turned else kinds):
            if kind in vars(module) and axis in sizes:
                setattr(module, kind, sizes[axis])
    if groups > 1:
        module.in_channels = module.groups = sizes[0] // several


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
