"""Rules of products of two activations, and of attention: a head stays or goes as a whole."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from pocketbayes.layers import FewerHeads, plain_class_of
from pocketbayes.shrinking.channels import ALWAYS, Channels
from pocketbayes.shrinking.following import Follower, Found, LostTrackError, rule
from pocketbayes.shrinking.merging import Operand, merged, onto
from pocketbayes.shrinking.operations import Call
from pocketbayes.shrinking.products import placed, project, project_channels

_BATCH = "abcdefgh"


@dataclass(frozen=True)
class Side:
    """One factor of a product: its shape and channels, and a letter for each of its axes."""

    tensor: Tensor
    shape: tuple[int, ...]
    channels: Found
    letters: str

    def without(self, follower: Follower, letter: str) -> "Side":
        """After a sum over this axis, which other axes' channels keep whole."""
        if self.channels is None or letter not in self.letters:
            return self
        axis = self.letters.index(letter)
        if axis not in self.channels.axes:
            return self
        follower.cells.fix(self.channels.cells, axis)
        left = self.channels.first(axis)
        left = left.varying(left.zero)
        return replace(self, channels=left if left.axes else None)

    def placed(self, letters: str) -> Operand:
        """In the dimensions of what comes out."""
        order = [self.letters.index(a) for a in letters if a in self.letters]
        shape = tuple(
            self.shape[self.letters.index(a)] if a in self.letters else 1 for a in letters
        )
        channels = self.channels
        if channels is not None:
            extra = [j for j in range(len(self.shape)) if j not in order]
            grid = [channels.cells.shape[self.letters.index(a)] if a in self.letters else 1
                    for a in letters]  # fmt: skip
            turned = (t.permute(*order, *extra).reshape(grid) for t in channels.fields)
            channels = Channels(*turned)
        return Operand(self.tensor, shape, channels)


def product(
    follower: Follower, one: Side, other: Side, letters: str, averages: bool = False
) -> Found:
    """The channels of sum_k one[.. k ..] other[.. k ..].

    `averages`: numbers of the first are weights that sum to 1, so that constants of the other stay.
    """
    summed = [a for a in one.letters if a not in letters]
    one, other = _matched(follower, one, other, summed)
    for letter in summed:
        one, other = one.without(follower, letter), other.without(follower, letter)
    factors = [side.placed(letters) for side in (one, other)]
    if all(factor.channels is None for factor in factors):
        return None
    made = merged(follower, factors)
    shape, (_, values) = tuple(made.cells.shape), factors
    constant = torch.zeros(shape, dtype=torch.bool)
    for channels in (f.channels for f in factors if f.channels is not None):
        constant |= onto(channels.zero, shape)
    value = torch.zeros(shape)
    if averages and values.channels is not None and values.channels.cells.shape == made.cells.shape:
        constant |= values.channels.constant
        value = values.channels.value.where(
            values.channels.constant.to(values.channels.value.device), 0
        )
    return Channels(made.cells, constant, value)


def _matched(follower: Follower, one: Side, other: Side, summed: list[str]) -> tuple[Side, Side]:
    """Channels that lie along the sum alone, in both factors: those go together, or when 0."""
    a, b = one.channels, other.channels
    if a is None or b is None or len(a.axes) != 1 or len(b.axes) != 1:
        return one, other
    letter = one.letters[a.axes[0]]
    if letter not in summed or letter != other.letters[b.axes[0]]:
        return one, other
    first, second = a.along(a.axes[0]), b.along(b.axes[0])
    follower.cells.tie(first.cells, second.cells)
    zero = first.zero | second.zero
    inputs = Channels(first.cells, zero, torch.zeros(len(zero)))
    active = torch.ones(1, len(zero), dtype=torch.bool)
    follower.add_reader(None, inputs, torch.tensor([ALWAYS]), active)
    return replace(one, channels=None), replace(other, channels=None)


def _side(follower: Follower, tensor: Tensor, letters: str) -> Side:
    if follower.weights.ref_of(tensor) is not None:
        follower.weights.pin(tensor)
    return Side(tensor, tuple(tensor.shape), follower.of(tensor), letters)


def _multiplied(
    follower: Follower, tensors: tuple[Tensor, Tensor], letters: tuple[str, str], output: str
) -> Found:
    for x, weight in ((0, 1), (1, 0)):
        found = _as_matrix(follower, letters[x], tensors[weight], letters[weight], output)
        if found is not None and follower.weights.ref_of(tensors[x]) is None:
            axis, matrix = found
            return project(follower, tensors[x], axis, matrix, None)
    one, other = (_side(follower, t, own) for t, own in zip(tensors, letters, strict=True))
    averages = tensors[0] in follower.sums_to_one and letters[0][-1] not in output
    return product(follower, one, other, output, averages)


def _as_matrix(
    follower: Follower, letters: str, weight: Tensor, own: str, output: str
) -> tuple[int, tuple[Tensor, int, int]] | None:
    """The axis that a weight sums along, and the weight with its axes of outputs and inputs."""
    summed, new = set(letters) & set(own) - set(output), set(own) - set(letters)
    if follower.weights.ref_of(weight) is None or len(own) != 2 or len(summed) != 1 or not new:
        return None
    (k,), (n,) = summed, new
    if letters.replace(k, n) != output:
        return None
    return letters.index(k), (weight, own.index(n), own.index(k))


@rule("matmul", "bmm", "mm", "rmatmul")
def _matrices(follower: Follower, call: Call) -> Found:
    one, other = call.args[:2] if call.name != "rmatmul" else call.args[1::-1]
    if min(one.dim(), other.dim()) < 2:
        raise LostTrackError
    batch = _BATCH[: call.output.dim() - 2]
    letters = (
        batch[len(batch) - one.dim() + 2 :] + "xy",
        batch[len(batch) - other.dim() + 2 :] + "yz",
    )
    return _multiplied(follower, (one, other), letters, batch + "xz")


@rule("baddbmm")
def _added(follower: Follower, call: Call) -> Found:
    added, one, other = call.args[:3]
    follower.keep(added)
    return _multiplied(follower, (one, other), ("axy", "ayz"), "axz")


@rule("einsum")
def _einsum(follower: Follower, call: Call) -> Found:
    text, tensors = call.args[0], call.tensors
    if not isinstance(text, str) or "." in text or "->" not in text or len(tensors) != 2:
        raise LostTrackError
    inputs, output = text.replace(" ", "").split("->")
    one, other = inputs.split(",")
    if len(set(one)) < len(one) or len(set(other)) < len(other):
        raise LostTrackError
    lost = (set(one) ^ set(other)) - set(output)
    if lost:
        raise LostTrackError
    return _multiplied(follower, (tensors[0], tensors[1]), (one, other), output)


@rule("scaled_dot_product_attention")
def _attention(follower: Follower, call: Call) -> Found:
    names = ("query", "key", "value", "attn_mask", "dropout_p")
    query, key, value, mask, rate = (call.option(place, name) for place, name in enumerate(names))
    if min(query.dim(), key.dim(), value.dim()) < 2:
        raise LostTrackError
    batch = _BATCH[: call.output.dim() - 2]
    q, k, v = (
        _side(follower, t, batch[len(batch) - t.dim() + 2 :] + last)
        for t, last in ((query, "xd"), (key, "yd"), (value, "yz"))
    )
    if call.kwargs.get("enable_gqa"):
        k, v = (_repeated(side, query.shape[-3] // side.shape[-3]) for side in (k, v))
    q, k = q.without(follower, "d"), k.without(follower, "d")
    scores = product(follower, q, k, batch + "xy")
    if isinstance(mask, Tensor):
        scores = _masked(follower, scores, mask, len(batch) + 2)
    shape = (*call.output.shape[:-1], key.shape[-2])
    first = Side(call.output, shape, scores and scores.varying(), batch + "xy")
    steady = mask is None and not (rate and follower.keeps_dropout)
    return product(follower, first, v, batch + "xz", steady)


def _repeated(side: Side, times: int) -> Side:
    """The heads of keys and values, each for several of queries."""
    shape = tuple(n * times if j == len(side.shape) - 3 else n for j, n in enumerate(side.shape))
    channels = side.channels
    if channels is not None and channels.cells.shape[-3] > 1:
        channels = Channels(*(t.repeat_interleave(times, -3) for t in channels.fields))
    return replace(side, shape=shape, channels=channels)


def _masked(follower: Follower, scores: Found, mask: Tensor, dimensions: int) -> Found:
    own = follower.of(mask)
    follower.weights.pin(mask)
    shape = (1,) * (dimensions - mask.dim()) + tuple(mask.shape)
    if scores is None or own is not None:
        follower.keep(mask)
    if scores is None:
        return None
    for axis in scores.axes:
        if shape[axis] > 1:
            follower.cells.fix(scores.cells, axis)
    return scores


@rule("multi_head_attention_forward")
def _multi_head(follower: Follower, call: Call) -> list[Found]:
    given = list(call.args) + [None] * (13 - len(call.args))
    query, key, value, width, heads, weight, bias, bias_k, bias_v, extra, rate, out, out_bias = (
        given
    )
    options, module = call.kwargs, follower.weights.model.get_submodule(follower.running.name)
    odd = [bias_k, bias_v, extra or None, options.get("static_k"), options.get("static_v")]
    if any(each is not None for each in odd) or not isinstance(module, nn.MultiheadAttention):
        raise LostTrackError
    separate = [options.get(f"{name}_proj_weight") for name in "qkv"]
    weights = separate if options.get("use_separate_proj_weight") else [weight]
    if any(follower.weights.ref_of(w) is None for w in (*weights, out)):
        raise LostTrackError
    q, k, v = _projected(follower, (query, key, value), weights, bias, width)
    q, k, v = (Channels(*(t.reshape(heads, -1) for t in each.fields)) for each in (q, k, v))
    for each in (q, k):
        follower.cells.fix(each.cells, 1)
        follower.cells.tie(each.cells[:, :1], v.cells)
    if plain_class_of(module) in (nn.MultiheadAttention, FewerHeads):
        follower.attentions[follower.running.name] = v.cells
    else:  # a forward of its own may read widths
        follower.cells.pin(v.cells)
    masks = [options.get("key_padding_mask"), options.get("attn_mask")]
    steady = all(m is None for m in masks) and not (rate and follower.keeps_dropout)
    constant = v.constant if steady else v.zero
    mixed = Channels(*(t.reshape(-1) for t in (v.cells, constant, v.value)))
    found = project_channels(follower, mixed, (out, 0, 1), out_bias)
    return [placed(found, call.output.dim(), call.output.dim() - 1), *_shown(follower, call, v)]


def _projected(
    follower: Follower, inputs: Any, weights: list[Any], bias: Tensor | None, width: int
) -> list[Channels]:
    """Queries, keys and values, in one dimension each."""
    known = [follower.of(t) for t in inputs]
    if any(c is not None and c.axes != (c.cells.dim() - 1,) for c in known):
        raise LostTrackError
    flat = [c and c.along(c.cells.dim() - 1) for c in known]
    if len(weights) == 1 and all(t is inputs[0] for t in inputs):
        found = project_channels(follower, flat[0], (weights[0], 0, 1), bias)
        parts = [[t[i * width : (i + 1) * width] for t in found.fields] for i in range(3)]
        return [Channels(*part) for part in parts]
    made = []
    for number, channels in enumerate(flat):
        place = slice(number * width, (number + 1) * width)
        rows = place if len(weights) == 1 else slice(None)
        weight = (weights[number % len(weights)], 0, 1)
        made.append(project_channels(follower, channels, weight, bias, rows, place))
    return made


def _shown(follower: Follower, call: Call, values: Channels) -> list[Found]:
    """The weights of all heads, or their average, of which none is left if anyone looks at it."""
    weights = call.result[1]
    if weights is None:
        return []
    if not call.kwargs.get("average_attn_weights", True):
        heads = values.first(1)
        shape = [-1 if j == weights.dim() - 3 else 1 for j in range(weights.dim())]
        return [Channels(*(t.reshape(shape) for t in heads.fields)).varying()]
    follower.keep_if_used(weights, values.cells)
    return [None]
