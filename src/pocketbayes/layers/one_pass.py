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
_FARTHEST = 30.0  # stds from its mean that a feature counts as, at most
_MOST_LOG = 20.0  # of a factor on the outputs, and of a variance, either way


class Place(NamedTuple):
    """A layer whose input is read: its name, the axis of examples, and how many channels."""

    name: str
    batch_axis: int
    width: int


class Numbers(NamedTuple):
    """What a head has learned; F features and outputs, H hidden units, J places, K outputs.

    `share` is (F, J), the weight of each feature in the distance of its place.
    """

    center: Tensor
    scale: Tensor
    share: Tensor
    inner: Tensor
    inner_bias: Tensor
    outer: Tensor
    outer_bias: Tensor
    slope: Tensor

    def learned(self) -> tuple[Tensor, ...]:
        """All but center, scale and share, which the data give."""
        return self[3:]


def spread(
    numbers: Numbers, features: Tensor, outputs: Tensor, last_variance: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Mean and variance of the outputs (rows, K) over draws, from features and outputs (rows, F).

    z = (features - center) scale, d_j = log(1 + mean of z^2 at place j): how far from the data;
    (t, u, s) = outer [tanh(inner z + b), d] + b',
    mean = outputs exp(-t) + u / scale of the outputs, variance = exp(s) last_variance^slope,
    where last_variance is that of a last layer of random weights on the mean network's features.
    """
    z = ((features - numbers.center) * numbers.scale).clamp_(-_FARTHEST, _FARTHEST)
    far = (z.square() @ numbers.share).log1p_()
    hidden = F.linear(z, numbers.inner, numbers.inner_bias).tanh_()
    found = F.linear(torch.cat([hidden, far], 1), numbers.outer, numbers.outer_bias)
    wide = outputs.shape[1]
    log_factor, shift, log_variance = found.split([1, wide, wide], 1)
    unit = numbers.scale[-wide:]
    mean = outputs * log_factor.clamp(-_MOST_LOG, _MOST_LOG).neg().exp()
    mean = mean + shift / torch.where(unit > 0, unit, 1)
    if last_variance is not None:
        log_variance = torch.addcmul(log_variance, numbers.slope, last_variance.log())
    return mean, log_variance.clamp(-_MOST_LOG, _MOST_LOG).exp()


def shares_of(widths: Sequence[int], scale: Tensor) -> Tensor:
    """(F, J): 1 / (features of a place that vary), for each of its features; else 0."""
    number = torch.arange(len(widths), device=scale.device)
    sizes = torch.tensor(widths, device=scale.device)
    member = torch.repeat_interleave(number, sizes).unsqueeze(1) == number
    varying = (member & (scale > 0).unsqueeze(1)).to(scale.dtype)
    return varying / varying.sum(0).clamp_min(1)


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
        self._known: tuple[Tensor, int, Numbers] | None = None

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
        answers, known = 2 * outputs + 1, hidden + len(self.places) + 1
        wanted = (
            (features,), (features,), (hidden, features), (hidden,), (hidden,),
            (answers, known), (answers,), (answers,), (outputs,),
        )  # fmt: skip
        for name, shape in zip(self.names, wanted, strict=True):
            if found[name] != shape:
                raise PocketBayesError(
                    f"the one-pass head's {name} is {found[name]}; its places need {shape}"
                )

    def numbers(self, root: nn.Module) -> Numbers:
        """What the network's buffers hold, in float32; kept until these change."""
        mark = root._buffers[PREFIX + "center"]
        assert mark is not None
        known = self._known
        if known is None or known[0] is not mark or known[1] != mark._version:
            known = mark, mark._version, numbers_in(tensors_at(root), self.places)
            self._known = known
        return known[2]


def tensors_at(root: nn.Module) -> dict[str, Tensor]:
    """The stored tensors of a head, by their names in it."""
    return {n: t for n in OnePassHead.names if (t := root._buffers.get(PREFIX + n)) is not None}


@torch.no_grad()
def numbers_in(tensors: Mapping[str, Tensor], places: Sequence[Place]) -> Numbers:
    """What a head calculates with, from what is stored."""
    kept = {name: tensor.float() for name, tensor in tensors.items()}
    code = kept["log_scale"]
    scale = torch.where(code == _OFF, 0.0, (code / _STEPS_PER_OCTAVE).exp2())
    widths = [*(place.width for place in places), len(kept["slope"])]
    inner, outer = (
        kept[f"{name}_rows"] * kept[f"{name}_scale"].unsqueeze(1) for name in ("inner", "outer")
    )
    return Numbers(
        kept["center"], scale, shares_of(widths, scale), inner, kept["inner_bias"],
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
