"""What each operation of a network does to channels; what is not known keeps all of them."""

import operator
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from pocketbayes.models import PaddedShortcut
from pocketbayes.shrinking.channels import Cells, Channels, Reader
from pocketbayes.shrinking.narrowing import parts_in, source_of, weight_axes
from pocketbayes.shrinking.operations import (
    CONCATENATIONS,
    DROPOUTS,
    ELEMENTWISE,
    MULTIPLICATIONS,
    NORMS,
    REDUCTIONS,
    RESHAPES,
    SIZES,
    SPATIAL,
    SUMMING,
    UNSQUEEZES,
    argument,
    depends_on_size,
    dims_of,
    follows_width,
    is_inplace,
    left_whole,
    operation_of,
    pads_axis,
    picks_from_axis,
)

Rule = Callable[[fx.Node, Tensor], Channels | None]
_STEADY = 1e-5  # relative; an average of equal numbers is that number but for rounding


class Survey(fx.Interpreter):
    """Runs a traced network on an example and notes what becomes of the channels.

    Afterwards `readers`, `norms`, `depthwise` and `shortcuts` say where to cut, by the names of
    modules, and `cells` which channels go together.
    """

    def __init__(self, model: nn.Module, graph: fx.Graph, keeps_dropout: bool) -> None:
        super().__init__(fx.GraphModule(model, graph))
        self.keeps_dropout = keeps_dropout
        self.cells = Cells()
        self.channels: dict[fx.Node, Channels] = {}
        self.shapes: dict[fx.Node, torch.Size] = {}
        self.readers: list[Reader] = []
        self.norms: dict[str, Tensor] = {}
        self.depthwise: dict[str, tuple[Tensor, Tensor]] = {}
        self.shortcuts: dict[str, tuple[Tensor, Tensor]] = {}
        self._modules = dict(model.named_modules(remove_duplicate=False))
        self._whole = left_whole(self._modules, graph)
        self._rules: tuple[tuple[Any, Rule], ...] = (
            (SUMMING, self._layer),
            (NORMS, self._norm),
            (ELEMENTWISE, self._channelwise),
            (SPATIAL, self._spatial),
            ({F.pad}, self._padded),
            (RESHAPES, self._reshaped),
            (REDUCTIONS, self._reduced),
            (UNSQUEEZES, self._unsqueezed),
            (CONCATENATIONS, self._concatenated),
            ({operator.getitem}, self._sliced),
            ({PaddedShortcut}, self._padded_shortcut),
        )

    def run_node(self, n: fx.Node) -> Any:
        """The node's value; its channels are noted."""
        result = super().run_node(n)
        kind = operation_of(n, self._modules)
        if kind in SIZES:
            return result
        found = None
        if isinstance(result, Tensor):
            self.shapes[n] = result.shape
            rule = next((rule for kinds, rule in self._rules if kind in kinds), None)
            found = None if rule is None else rule(n, result)
        if found is None:
            self._keep_inputs(n)
        else:
            self.channels[n] = replace(found, value=found.value.to(result))
        if is_inplace(n, self._modules):
            self._note_overwritten(n)
        return result

    def _keep_inputs(self, node: fx.Node) -> None:
        for source in node.all_input_nodes:
            if source in self.channels:
                self.cells.pin(self.channels[source].cells)

    def _note_overwritten(self, node: fx.Node) -> None:
        """What shares memory with the node's first input is from now on what the node made."""
        target = self.env[node.all_input_nodes[0]]
        for other, value in self.env.items():
            if other in self.channels and _shares_memory(value, target):
                known = self.channels[other]
                varying = replace(known, constant=torch.zeros_like(known.constant))
                made = self.channels.get(node) if value.shape == target.shape else None
                self.channels[other] = varying if made is None else made

    def _seen(self, node: fx.Node, axis: int) -> Channels:
        """The node's channels along this axis; if they are not known, new ones that stay."""
        known = self.channels.get(node)
        if known is not None and known.axis == axis:
            return known
        if known is not None:
            self.cells.pin(known.cells)
        number = self.shapes[node][axis]
        fresh = self.cells.fresh(number)
        self.cells.pin(fresh)
        return Channels(axis, fresh, torch.zeros(number).bool(), torch.zeros(number))

    def _layer(self, node: fx.Node, out: Tensor) -> Channels | None:
        """A layer that sums over inputs: its outputs are new, those that read nothing constant."""
        layer: Any = self._modules[str(node.target)]
        if layer in self._whole or len(node.all_input_nodes) != 1 or len(node.args) != 1:
            return None
        spatial = 0 if isinstance(layer, nn.Linear) else len(layer.kernel_size)
        if spatial and out.dim() != spatial + 2:
            return None
        if spatial and layer.groups != 1:
            return self._depthwise(node, layer)
        axis = 1 if spatial else out.dim() - 1
        inputs = self._seen(node.all_input_nodes[0], axis)
        weight = parts_in(layer, "weight")
        active = weight.active.transpose(0, weight_axes(layer)[0])
        active = active.reshape(*active.shape[:2], -1).any(2).cpu()
        dead = ~(active & ~inputs.zero).any(1)
        outputs = _biases(layer, axis, self.cells.fresh(len(dead)), dead)
        self.readers.append(Reader(str(node.target), inputs, outputs, active))
        return outputs

    def _depthwise(self, node: fx.Node, layer: Any) -> Channels | None:
        """A group for each input: its outputs come and go with it."""
        inputs = self.channels.get(node.all_input_nodes[0])
        if inputs is None or inputs.axis != 1 or layer.transposed:
            return None
        if layer.groups != layer.in_channels:
            return None
        several = layer.out_channels // layer.in_channels
        active = parts_in(layer, "weight").active.flatten(1).any(1).cpu()
        dead = ~active | inputs.zero.repeat_interleave(several)
        cells = inputs.cells.repeat_interleave(several)
        self.depthwise[str(node.target)] = cells, inputs.cells
        return _biases(layer, 1, cells, dead)

    def _norm(self, node: fx.Node, out: Tensor) -> Channels | None:
        norm: Any = self._modules[str(node.target)]
        found = None if norm in self._whole else self._channelwise(node, out)
        if found is None or found.axis != 1:
            return None
        self.norms[str(node.target)] = found.cells
        if norm.running_mean is None:  # statistics of the batch make noise of a constant
            return replace(found, constant=torch.zeros_like(found.constant))
        if source_of(norm, "bias") is None:
            return found
        return replace(found, constant=found.constant & parts_in(norm, "bias").certain.cpu())

    def _channelwise(self, node: fx.Node, out: Tensor, axis: int | None = None) -> Channels | None:
        """An operation on each channel alone; `axis` is where it leaves them."""
        sources = node.all_input_nodes
        if not all(n in self.channels for n in sources):
            return None
        inputs = [self.channels[n] for n in sources]
        layouts = {(c.axis, len(c.cells)) for c in inputs}
        if len(layouts) != 1 or len({len(self.shapes[n]) for n in sources}) != 1:
            return None
        first = inputs[0]
        axis = first.axis if axis is None else axis
        if axis >= out.dim() or out.shape[axis] != len(first.cells):
            return None
        for other in inputs[1:]:
            self.cells.tie(first.cells, other.cells)
        kind = operation_of(node, self._modules)
        constant = torch.stack([c.constant for c in inputs]).all(0)
        if kind in MULTIPLICATIONS:
            constant |= torch.stack([c.zero for c in inputs]).any(0)
        noisy = kind in DROPOUTS and self.keeps_dropout
        if noisy or depends_on_size(node, self._modules):
            constant &= first.zero
        return self._with_constants(node, axis, first.cells, constant)

    def _with_constants(
        self, node: fx.Node, axis: int, cells: Tensor, constant: Tensor
    ) -> Channels:
        """Runs the node on tensors of constants, and sees what becomes of them."""
        if not constant.any():
            return Channels(axis, cells, constant, torch.zeros(len(cells)))
        args, kwargs = fx.map_arg(
            (node.args, node.kwargs), lambda n: self.channels[n].image(self.shapes[n])
        )
        result = getattr(self, node.op)(node.target, args, kwargs)
        each = result.movedim(axis, 0).flatten(1)
        low, high = each.amin(1), each.amax(1)
        steady = (high - low) <= _STEADY * torch.maximum(high.abs(), low.abs())
        return Channels(axis, cells, constant & steady.cpu(), low)

    def _spatial(self, node: fx.Node, out: Tensor) -> Channels | None:
        dimensions = SPATIAL[operation_of(node, self._modules)]
        source = self.channels.get(node.all_input_nodes[0])
        if source is None or source.axis != 1 or dimensions not in (0, out.dim() - 2):
            return None
        return self._channelwise(node, out)

    def _padded(self, node: fx.Node, out: Tensor) -> Channels | None:
        source = self.channels.get(node.all_input_nodes[0])
        if source is None or pads_axis(node, source.axis, out.dim()):
            return None
        return self._channelwise(node, out)

    def _sliced(self, node: fx.Node, out: Tensor) -> Channels | None:
        source = self.channels.get(node.all_input_nodes[0])
        if source is None or picks_from_axis(node, source.axis):
            return None
        return self._channelwise(node, out)

    def _reduced(self, node: fx.Node, out: Tensor) -> Channels | None:
        """Other dimensions than that of the channels become one number, or go."""
        source = self.channels.get(node.all_input_nodes[0])
        dims = dims_of(node, len(self.shapes[node.all_input_nodes[0]]))
        if source is None or dims is None or source.axis in dims or 0 in dims:
            return None
        gone = len(self.shapes[node.all_input_nodes[0]]) > out.dim()
        axis = source.axis - gone * sum(d < source.axis for d in dims)
        return self._channelwise(node, out, axis)

    def _unsqueezed(self, node: fx.Node, out: Tensor) -> Channels | None:
        source, dims = self.channels.get(node.all_input_nodes[0]), dims_of(node, out.dim())
        if source is None or dims is None:
            return None
        return self._channelwise(node, out, source.axis + (dims[0] <= source.axis))

    def _reshaped(self, node: fx.Node, out: Tensor) -> Channels | None:
        """(N, C, ...) to (N, C * ...), or to (N, C, anything)."""
        source, shape = node.all_input_nodes[0], self.shapes.get(node.all_input_nodes[0])
        known = self.channels.get(source)
        if known is None or shape is None or known.axis != 1 or out.dim() < 2:
            return None
        if out.shape[0] != shape[0] or not follows_width(node, self._modules):
            return None
        if out.shape[1] == shape[1]:
            return known
        times = prod(shape[2:])
        if out.dim() != 2 or out.shape[1] != shape[1] * times:
            return None
        return Channels(
            1, *(t.repeat_interleave(times) for t in (known.cells, known.constant, known.value))
        )

    def _concatenated(self, node: fx.Node, out: Tensor) -> Channels | None:
        parts: Any = node.args[0] if node.args else None
        dim = argument(node, 1, "dim")
        axes = {self.channels[n].axis for n in node.all_input_nodes if n in self.channels}
        if not isinstance(parts, list | tuple) or not isinstance(dim or 0, int):
            return None
        axis = (dim or 0) % out.dim()
        if axes != {axis}:
            return None
        found = [self._seen(n, axis) for n in parts]
        return Channels(
            axis,
            torch.cat([c.cells for c in found]),
            torch.cat([c.constant for c in found]),
            torch.cat([c.value.to(out) for c in found]),
        )

    def _padded_shortcut(self, node: fx.Node, out: Tensor) -> Channels | None:
        """He's option A: channels that are always 0 before and after those of the input."""
        shortcut: Any = self._modules[str(node.target)]
        source = self.channels.get(node.all_input_nodes[0])
        if source is None or source.axis != 1 or shortcut in self._whole:
            return None
        before, after = (self.cells.fresh(n) for n in (shortcut.before, shortcut.after))
        self.shortcuts[str(node.target)] = before, after
        constant, value = torch.ones(out.shape[1]).bool(), out.new_zeros(out.shape[1])
        inside = slice(len(before), len(before) + len(source.cells))
        constant[inside], value[inside] = source.constant, source.value
        return Channels(1, torch.cat([before, source.cells, after]), constant, value)


def _shares_memory(one: Tensor, other: Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def _biases(layer: nn.Module, axis: int, cells: Tensor, dead: Tensor) -> Channels:
    """Outputs that read nothing are their bias: a constant, unless that has noise."""
    if source_of(layer, "bias") is None:
        return Channels(axis, cells, dead, torch.zeros(len(dead)))
    bias = parts_in(layer, "bias")
    return Channels(axis, cells, dead & bias.certain.cpu(), bias.mean)
