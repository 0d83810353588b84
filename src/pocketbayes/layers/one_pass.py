"""A head that tells, from one pass of the mean network, how draws of its outputs are spread.

It reads the inputs of a few layers (its *places*), which hooks note while the network runs, and
travels with the network as buffers: int8 rows, each with a float16 scale, a few kB in all.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pocketbayes.errors import PocketBayesError

PREFIX = "one_pass_"  # of the names of its buffers
_OFF, _STEPS_PER_OCTAVE = -128, 8
_MOST_HIDDEN, _LEAST_SQUARE = 50.0, 1e-12
_MOST_LOG = 20.0  # of a factor on outputs or variances, either way


class Place(NamedTuple):
    """A layer whose input is read: its name, the axis of examples, and how many channels."""

    name: str
    batch_axis: int
    width: int


class Numbers(NamedTuple):
    """What a head has learned; F features (outputs among them), H hidden units, K outputs."""

    center: Tensor
    scale: Tensor
    inner: Tensor
    inner_bias: Tensor
    outer: Tensor
    outer_bias: Tensor
    slope: Tensor

    def learned(self) -> tuple[Tensor, ...]:
        """All but center and scale, which the data give."""
        return self[2:]


class Folded(NamedTuple):
    """The same, such that features need not be centred and scaled: see `folded`."""

    linear: Tensor
    bias: Tensor
    squares: Tensor
    outer: Tensor
    outer_bias: Tensor
    slope: Tensor
    unit: Tensor


def spread(
    head: Folded, features: Tensor, outputs: Tensor, last_variance: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Mean and variance of the outputs (rows, K) over draws, from features and outputs.

    With z = (features - center) scale, mean 0 and variance 1 on training data, at each place j

        d_j = log(1 + mean z^2), how far from the data; r_j = log mean features^2,
        h = relu(inner z + b); e = the entropy of softmax(outputs),
        (t, u, s) = outer [h, d, r, e] + b',
        mean = outputs exp(t) + u std(outputs), variance = exp(s) last_variance^slope,

    where last_variance is that of a last layer of random weights on the mean network's features.
    """
    wide, of_squares = outputs.shape[1], head.squares.shape[1]
    first = F.linear(features, head.linear, head.bias)
    inner, squares = torch.split(first, [first.shape[1] - of_squares, of_squares], 1)
    squares = torch.addmm(squares, features.square(), head.squares)
    entropy = torch.special.entr(outputs.softmax(1)).sum(1, keepdim=True)
    sizes = squares.clamp_min(_LEAST_SQUARE).log()
    known = torch.cat([inner.clamp(0, _MOST_HIDDEN), sizes, entropy], 1)
    found = F.linear(known, head.outer, head.outer_bias).clamp(-_MOST_LOG, _MOST_LOG)
    log_factor, shift, log_variance = torch.split(found, [1, wide, wide], 1)
    mean = torch.addcmul(outputs * log_factor.exp(), shift, head.unit)
    variance = log_variance.exp()
    return mean, variance if last_variance is None else variance * last_variance**head.slope


def folded(numbers: Numbers, widths: Sequence[int]) -> Folded:
    """1 + mean z^2 of each place as a linear function of features and their squares, and so on.

    With w_i = scale_i^2 / (varying features of its place), it is
    1 + sum w_i center_i^2 - sum 2 w_i center_i x_i + sum w_i x_i^2.
    """
    center, scale = numbers.center, numbers.scale
    member = _members(widths, scale)
    varying = member * (scale > 0)
    weights = varying / varying.sum(1, keepdim=True).clamp_min(1) * scale.square()
    sizes = member[:-1] / member[:-1].sum(1, keepdim=True).clamp_min(1)
    inner, none = numbers.inner * scale, torch.zeros_like(sizes)
    constant = 1 + weights @ center.square()
    return Folded(
        linear=torch.cat([inner, -2 * weights * center, none]),
        bias=torch.cat([numbers.inner_bias - inner @ center, constant, none[:, 0]]),
        squares=torch.cat([weights, sizes]).T.contiguous(),
        outer=numbers.outer,
        outer_bias=numbers.outer_bias,
        slope=numbers.slope,
        unit=torch.where(scale > 0, 1 / scale, 1)[-widths[-1] :],
    )


def num_known(hidden: int, places: int) -> int:
    """Numbers that the answers are linear in: hidden units, distances, sizes, an entropy."""
    return hidden + (places + 1) + places + 1


def _members(widths: Sequence[int], like: Tensor) -> Tensor:
    """(places, F): 1 for each feature of a place, else 0."""
    number = torch.arange(len(widths), device=like.device)
    sizes = torch.tensor(widths, device=like.device)
    place = torch.repeat_interleave(number, sizes, output_size=sum(widths))  # no wait for a GPU
    return (place == number.unsqueeze(1)).to(like.dtype)


class OnePassHead:
    """Where a head reads, and what it has learned, which lies in buffers of the network's root.

    They are no module: a `Sequential` would run it.
    """

    names = (
        "center", "log_scale", "inner_rows", "inner_scale", "inner_bias",
        "outer_rows", "outer_scale", "outer_bias", "slope",
    )  # fmt: skip

    def __init__(
        self, places: Sequence[Place], knows_variance: bool, draws: int, estimator: str
    ) -> None:
        self.places = tuple(places)
        self.knows_variance = knows_variance
        self.taught_by = {"draws": draws, "estimator": estimator}
        self._known: tuple[Tensor, int, Folded] | None = None
        self.of_last: tuple[tuple[Any, ...], dict[str, Tensor]] | None = None

    def facts(self) -> dict[str, Any]:
        """What its tensors do not tell, as JSON has it."""
        places = [list(place) for place in self.places]
        return {"places": places, "last_variance": self.knows_variance, **self.taught_by}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> "OnePassHead":
        """The head of these facts, without its tensors."""
        places = [Place(*place) for place in facts["places"]]
        return cls(places, facts["last_variance"], facts["draws"], facts["estimator"])

    def require_shapes(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """An error unless tensors of these shapes go together, and with the places."""
        found = {name: tuple(shapes[name]) for name in self.names}
        if len(found["inner_rows"]) != 2 or len(found["slope"]) != 1:
            raise PocketBayesError("the one-pass head has tensors of no known shape")
        hidden, outputs = found["inner_rows"][0], found["slope"][0]
        features = sum(place.width for place in self.places) + outputs
        answers, known = 2 * outputs + 1, num_known(hidden, len(self.places))
        wanted = (
            (features,), (features,), (hidden, features), (hidden,), (hidden,),
            (answers, known), (answers,), (answers,), (outputs,),
        )  # fmt: skip
        for name, shape in zip(self.names, wanted, strict=True):
            if found[name] != shape:
                raise PocketBayesError(
                    f"the one-pass head's {name} is {found[name]}; its places need {shape}"
                )

    def widths(self, outputs: int) -> list[int]:
        """Of all features: channels of the places, and outputs."""
        return [*(place.width for place in self.places), outputs]

    def ready(self, root: nn.Module) -> Folded:
        """What the network's buffers hold, in float32; kept until these change."""
        mark = root._buffers[PREFIX + "center"]
        assert mark is not None
        known = self._known
        if known is None or known[0] is not mark or known[1] != mark._version:
            numbers = numbers_in(tensors_at(root))
            known = mark, mark._version, folded(numbers, self.widths(len(numbers.slope)))
            self._known = known
        return known[2]


def tensors_at(root: nn.Module) -> dict[str, Tensor]:
    """The stored tensors of a head, by their names in it."""
    return {n: t for n in OnePassHead.names if (t := root._buffers.get(PREFIX + n)) is not None}


@torch.no_grad()
def numbers_in(tensors: Mapping[str, Tensor]) -> Numbers:
    """What a head calculates with, from what is stored."""
    kept = {name: tensor.float() for name, tensor in tensors.items()}
    code = kept["log_scale"]
    scale = torch.where(code == _OFF, 0.0, (code / _STEPS_PER_OCTAVE).exp2())
    inner, outer = (
        kept[f"{name}_rows"] * kept[f"{name}_scale"].unsqueeze(1) for name in ("inner", "outer")
    )
    return Numbers(
        kept["center"], scale, inner, kept["inner_bias"],
        outer, kept["outer_bias"], kept["slope"],
    )  # fmt: skip


def stored(numbers: Numbers) -> dict[str, Tensor]:
    """The numbers as a file holds them: int8 and float16."""
    code = (numbers.scale.log2() * _STEPS_PER_OCTAVE).round().clamp(_OFF + 1, -_OFF - 1)
    code = torch.where(numbers.scale > 0, code, _OFF).to(torch.int8)
    inner, inner_scale = rounded_rows(numbers.inner)
    outer, outer_scale = rounded_rows(numbers.outer)
    found = (
        numbers.center.half(), code, inner, inner_scale, numbers.inner_bias.half(),
        outer, outer_scale, numbers.outer_bias.half(), numbers.slope.half(),
    )  # fmt: skip
    return dict(zip(OnePassHead.names, found, strict=True))


def rounded_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows as int8 and a float16 scale each: row = int8 x scale."""
    scale = (rows.abs().amax(1) / 127).half()
    safe = torch.where(scale > 0, scale, 1).float()
    return (rows / safe.unsqueeze(1)).round().clamp(-127, 127).to(torch.int8), scale


def narrowed(
    head: OnePassHead, tensors: Mapping[str, Tensor], kept: Mapping[str, Tensor]
) -> tuple[OnePassHead, dict[str, Tensor]]:
    """The head with some of the channels at places of these names, by a mask for each."""
    places, masks = [], []
    for place in head.places:
        mask = kept.get(place.name)
        masks.append(torch.ones(place.width, dtype=torch.bool) if mask is None else mask.cpu())
        places.append(place._replace(width=int(masks[-1].sum())))
    masks.append(torch.ones(len(tensors["slope"]), dtype=torch.bool))
    stays = torch.cat(masks).to(tensors["center"].device)
    cut = {name: tensors[name][stays] for name in ("center", "log_scale")}
    cut["inner_rows"] = tensors["inner_rows"][:, stays]
    return OnePassHead.from_facts(head.facts() | {"places": places}), {**tensors, **cut}
