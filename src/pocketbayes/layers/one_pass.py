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
from pocketbayes.layers.known_weights import KnownWeights
from pocketbayes.posteriors import version_of

PREFIX = "one_pass_"  # of the names of its buffers
_OFF, _UNREAD, _STEPS_PER_OCTAVE = -128, -127, 8
_MOST_HIDDEN, _LEAST_SQUARE = 50.0, 1e-12
_MOST_VARIANCE = 1e30  # whatever a file says
_MOST_LOG = 20.0  # of a factor on outputs or variances, either way
_LEAST_STD = 0.01  # of what is known of an output, in its stds over the data


class Place(NamedTuple):
    """A layer whose input is read: its name, the axis of examples, and how many channels."""

    name: str
    batch_axis: int
    width: int


class Gone(NamedTuple):
    """Channels that `shrink` took away at a place: how many, and the sum of their squares."""

    number: int
    square: float


class Numbers(NamedTuple):
    """What a head has learned; F features (outputs among them), H hidden units, K outputs.

    `counts` is 1, or 0 for features that no layer reads. Those, and constant ones, have scale 0.
    """

    center: Tensor
    scale: Tensor
    counts: Tensor
    inner: Tensor
    inner_bias: Tensor
    outer: Tensor
    outer_bias: Tensor
    slope: Tensor

    def learned(self) -> tuple[Tensor, ...]:
        """All but center, scale and counts, which data and network give."""
        return self[3:]


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

    where last_variance is that of a last layer of random weights on the mean network's features,
    kept above 0 by `above_zero`. The mean of z^2 is over features that vary, that of features^2
    over those that a layer reads.
    """
    wide, of_squares = outputs.shape[1], head.squares.shape[1]
    first = F.linear(features, head.linear, head.bias)
    inner, squares = first.split_with_sizes([first.shape[1] - of_squares, of_squares], 1)
    squares = torch.addmm(squares, features.square(), head.squares)
    entropy = torch.special.entr(outputs.softmax(1)).sum(1, keepdim=True)
    sizes = squares.clamp_min(_LEAST_SQUARE).log()
    known = torch.cat([inner.clamp(0.0, _MOST_HIDDEN), sizes, entropy], 1)
    found = F.linear(known, head.outer, head.outer_bias).clamp(-_MOST_LOG, _MOST_LOG)
    log_factor, shift, log_variance = found.split_with_sizes([1, wide, wide], 1)
    mean = torch.addcmul(outputs * log_factor.exp(), shift, head.unit)
    variance = log_variance.exp()
    if last_variance is not None:
        last = above_zero(last_variance, head.unit)
        variance = (variance * last**head.slope).clamp_max(_MOST_VARIANCE)
    return mean, variance


def above_zero(last_variance: Tensor, unit: Tensor) -> Tensor:
    """The variance by a last layer, and that of 1% of the outputs' std over the data.

    Where no unit of the mean network is active, its last layer varies by nothing; draws do.
    """
    return last_variance + (_LEAST_STD * unit).square()


def folded(numbers: Numbers, widths: Sequence[int], gone: Sequence[Gone] = ()) -> Folded:
    """1 + mean z^2 of each place as a linear function of features and their squares, and so on.

    With w_i = scale_i^2 / (varying features of its place), it is
    1 + sum w_i center_i^2 - sum 2 w_i center_i x_i + sum w_i x_i^2.
    """
    center, scale = numbers.center, numbers.scale
    member = _members(widths, scale)
    varying = member * (scale > 0)
    weights = varying / varying.sum(1, keepdim=True).clamp_min(1) * scale.square()
    counted = member[:-1] * numbers.counts
    lost = scale.new_tensor(gone) if gone else scale.new_zeros(len(counted), 2)
    total = (counted.sum(1) + lost[:, 0]).clamp_min(1)
    sizes = counted / total.unsqueeze(1)
    inner, none = numbers.inner * scale, torch.zeros_like(sizes)
    constant = 1 + weights @ center.square()
    return Folded(
        linear=torch.cat([inner, -2 * weights * center, none]),
        bias=torch.cat([numbers.inner_bias - inner @ center, constant, lost[:, 1] / total]),
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
    place = torch.arange(sum(widths), device=like.device)
    sizes = torch.tensor(widths, device=like.device).unsqueeze(1)
    ends = sizes.cumsum(0)
    return ((place < ends) & (place >= ends - sizes)).to(like.dtype)


class OnePassHead:
    """Where a head reads, and what it has learned, which lies in buffers of the network's root.

    They are no module: a `Sequential` would run it. Heads of old do not know what is unread, and
    so have no `gone`: None.
    """

    names = (
        "center", "log_scale", "inner_rows", "inner_scale", "inner_bias",
        "outer_rows", "outer_scale", "outer_bias", "slope",
    )  # fmt: skip
    integers = ("log_scale", "inner_rows", "outer_rows")

    def __init__(
        self,
        places: Sequence[Place],
        knows_variance: bool,
        draws: int,
        estimator: str,
        gone: Sequence[Gone] | None = None,
        likelihood: str | None = None,
        compared: Mapping[str, float] | None = None,
    ) -> None:
        self.places = tuple(places)
        self.knows_variance = knows_variance
        self.taught_by = {"draws": draws, "estimator": estimator}
        self.gone = None if gone is None else tuple(gone)
        self.likelihood = likelihood  # that it was taught for; heads of old do not know
        self.compared = compared  # with draws, when it was taught
        self.weights: KnownWeights | None = None  # that it was taught with; None: is being filled
        self._known: tuple[Tensor, int, Folded] | None = None
        self.of_last: tuple[tuple[Any, ...], dict[str, Tensor]] | None = None

    def facts(self) -> dict[str, Any]:
        """What its tensors do not tell, as JSON has it."""
        places = [list(place) for place in self.places]
        known = {"places": places, "last_variance": self.knows_variance, **self.taught_by}
        gone = None if self.gone is None else [list(g) for g in self.gone]
        compared = None if self.compared is None else dict(self.compared)
        later = {"gone": gone, "likelihood": self.likelihood, "compared": compared}
        return known | {name: fact for name, fact in later.items() if fact is not None}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> "OnePassHead":
        """The head of these facts, without its tensors."""
        taught = facts["last_variance"], facts["draws"], facts["estimator"]
        places = [Place(*place) for place in facts["places"]]
        gone = None if "gone" not in facts else [Gone(*some) for some in facts["gone"]]
        return cls(places, *taught, gone, facts.get("likelihood"), facts.get("compared"))

    def require_fitting(self, tensors: Mapping[str, Tensor]) -> None:
        """An error unless types and shapes of tensors go together, and with the places."""
        found = {name: tuple(tensors[name].shape) for name in self.names}
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
            kind = tensors[name].dtype
            if not (kind == torch.int8 if name in self.integers else kind.is_floating_point):
                wanted_kind = "int8" if name in self.integers else "a type of real numbers"
                raise PocketBayesError(f"the one-pass head's {name} is {kind}, not {wanted_kind}")

    def widths(self, outputs: int) -> list[int]:
        """Of all features: channels of the places, and outputs."""
        return [*(place.width for place in self.places), outputs]

    def ready(self, root: nn.Module) -> Folded:
        """What the network's buffers hold, in float32; kept until these change."""
        mark = root._buffers[PREFIX + "center"]
        assert mark is not None
        known = self._known
        if known is None or known[0] is not mark or known[1] != version_of(mark):
            numbers = numbers_in(tensors_at(root), self.gone is not None)
            widths = self.widths(len(numbers.slope))
            known = self._known = mark, version_of(mark), folded(numbers, widths, self.gone or ())
        return known[2]


def comparison_in_words(compared: Mapping[str, float]) -> str:
    """How near one pass came to draws, as one line."""
    words = {
        "probs": "probabilities {:.2%} apart",
        "mean": "means {:.3g} stds apart",
        "std": "stds {:.2%} apart",
        "nll": "NLL {:+.3g}",
    }
    told = ", ".join(
        text.format(compared[name]) for name, text in words.items() if name in compared
    )
    return f"one pass against {compared['draws']} draws, on {compared['examples']} inputs: {told}"


def tensors_at(root: nn.Module) -> dict[str, Tensor]:
    """The stored tensors of a head, by their names in it."""
    return {n: t for n in OnePassHead.names if (t := root._buffers.get(PREFIX + n)) is not None}


@torch.no_grad()
def numbers_in(tensors: Mapping[str, Tensor], knows_unread: bool = True) -> Numbers:
    """What a head calculates with, from what is stored."""
    kept = {name: tensor.float() for name, tensor in tensors.items()}
    code = kept["log_scale"]
    unread = (code == _UNREAD) & knows_unread
    scale = torch.where(unread | (code == _OFF), 0.0, (code / _STEPS_PER_OCTAVE).exp2())
    inner, outer = (
        kept[f"{name}_rows"] * kept[f"{name}_scale"].unsqueeze(1) for name in ("inner", "outer")
    )
    return Numbers(
        kept["center"], scale, (~unread).float(), inner, kept["inner_bias"],
        outer, kept["outer_bias"], kept["slope"],
    )  # fmt: skip


def stored(numbers: Numbers) -> dict[str, Tensor]:
    """The numbers as a file holds them: int8 and float16."""
    code = (numbers.scale.log2() * _STEPS_PER_OCTAVE).round().clamp(_UNREAD + 1, -_OFF - 1)
    still = torch.where(numbers.counts > 0, _OFF, _UNREAD)
    code = torch.where(numbers.scale > 0, code, still).to(torch.int8)
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
