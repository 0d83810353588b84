"""What a head learns from: features of the mean network beside draws of the whole."""

from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pocketbayes.distillation.places import chosen, readings
from pocketbayes.errors import DataError
from pocketbayes.layers import (
    BayesianModule,
    Gone,
    HeadInputs,
    Inputs,
    LinearLayer,
    Numbers,
    OnePassHead,
    Place,
    above_zero,
    estimator_of,
    explained_failure,
    head_inputs,
    home,
    moved,
    named_posteriors,
    named_tensors,
    noting,
    num_known,
    output_rows,
    posteriors_of,
    run,
    set_head,
)
from pocketbayes.prediction import (
    drawing,
    draws_of,
    float_dtype,
    full_precision,
    input_batches,
    networks_to_run,
    require_finite,
)

_LEAST_BYTES, _SHARE = 6000, 0.03  # that a head may take: 6 kB, or 3% of a byte a weight
_MOST_HIDDEN, _LEAST_HIDDEN = 64, 4
_BYTES_BESIDE = 3  # of each feature: center and scale
_BYTES_A_ROW = 4  # scale and bias
_BYTES_OF_NAMES = 1250  # of nine sections and the places
_FIRST = 16  # batches that features are centred and scaled by
_LEAST_VARIANCE = 1e-8
_LEAST_SHARE = 0.3  # of the root mean square of stds at a place


class Lesson(NamedTuple):
    """What the head is given for one batch, and draws (S, rows, K) of the outputs."""

    given: HeadInputs
    draws: Tensor


class Teacher:
    """Runs the mean network, and draws, on batches of a loader."""

    def __init__(
        self,
        model: nn.Module,
        loader: Iterable[Any],
        num_samples: int,
        estimator: str | None,
        likelihood: str,
    ) -> None:
        self._model, self._loader, self._likelihood = model, loader, likelihood
        self._num_samples, self._estimator = num_samples, estimator
        self._device = next(model.parameters()).device
        self._head: OnePassHead
        self.batches = len(loader) if isinstance(loader, Sized) else 0

    def begun(self) -> tuple[OnePassHead, Numbers]:
        """A head at places that suit the network, which now has it, and what it begins with."""
        x = next(self._inputs(), None)
        if x is None:
            raise DataError("the loader is empty: it yielded no batch to learn from")
        root = home(self._model)
        set_head(self._model, None)
        with drawing(self._model, "mean", None):
            found, ends_there = readings(root, self._model, x)
            with explained_failure(x):
                outputs = output_rows(run(self._model, x)).shape[1]
        budget = budget_of(self._model)
        places = chosen(found, budget // (_LEAST_HIDDEN + _BYTES_BESIDE) - outputs)
        by = self._estimator or estimator_of(self._model)
        knows = ends_there and _is_random(root, places)
        gone = [Gone(0, 0.0) for _ in places]
        self._head = OnePassHead(places, knows, self._num_samples, by, gone, self._likelihood)
        set_head(self._model, self._head)
        self.widths = self._head.widths(outputs)
        hidden = hidden_units(budget, self.widths[:-1], outputs)
        self.first = list(islice(self.lessons(), _FIRST))
        return self._head, first_numbers(self.first, self._head, hidden, _read_by(root, places))

    def lessons(self) -> Iterator[Lesson]:
        """One of each batch."""
        for x in self._inputs():
            with drawing(self._model, "mean", None), noting() as notes, explained_failure(x):
                output = run(self._model, x)
                with full_precision(self._device.type):
                    given = head_inputs(home(self._model), self._head, notes, output)
            with drawing(self._model, self._estimator, None):
                passes = networks_to_run(self._model, self._num_samples, self._estimator)
                draws = torch.stack([output_rows(draw) for draw in draws_of(passes, x)])
            yield Lesson(given, draws)

    def _inputs(self) -> Iterator[Inputs]:
        for x in input_batches(self._loader, 256, float_dtype(self._model)):
            require_finite(named_tensors(x), "the loader")
            yield moved(x, self._device)


def budget_of(model: nn.Module) -> int:
    """Bytes for a head: a weight that is there takes about one in a file."""
    return max(_LEAST_BYTES, int(_SHARE * sum(q.num_active for _, q in named_posteriors(model))))


def hidden_units(budget: int, widths: list[int], outputs: int) -> int:
    """As many as the bytes allow, between 4 and 64."""
    features, answers = sum(widths) + outputs, 2 * outputs + 1
    left = budget - _BYTES_OF_NAMES - _BYTES_BESIDE * features - 2 * outputs
    left -= answers * (num_known(0, len(widths)) + _BYTES_A_ROW)
    return min(_MOST_HIDDEN, max(_LEAST_HIDDEN, left // (features + answers + _BYTES_A_ROW)))


def first_numbers(
    lessons: list[Lesson], head: OnePassHead, hidden: int, is_read: Tensor
) -> Numbers:
    """Features become of mean 0 and variance 1; variances begin with those of the draws.

    log variance = outer_bias + slope log(last_variance), slope = 1 where that is known.
    """
    features = torch.cat([lesson.given.features for lesson in lessons])
    center, std = features.mean(0), features.std(0, correction=0)
    outputs, device = lessons[0].draws.shape[2], features.device
    is_read = torch.cat([is_read.to(device), torch.ones(outputs, dtype=torch.bool, device=device)])
    varies = is_read & (std > 1e-5 * (1 + center.abs()))
    scale = torch.where(varies, 1 / _not_tiny(std, varies, head.widths(outputs)), 0)
    spread_out = torch.randn(hidden, len(center), device=device) / len(center) ** 0.5
    answers, knows = 2 * outputs + 1, float(head.knows_variance)
    unit = torch.where(varies, std, 1)[-outputs:]
    log_variance = torch.cat([_log_variances(lesson, unit) for lesson in lessons]).mean(0)
    return Numbers(
        center.half().float(),
        scale,
        is_read.to(features.dtype),
        spread_out.to(features.dtype),
        features.new_zeros(hidden),
        features.new_zeros(answers, num_known(hidden, len(head.places))),
        torch.cat([features.new_zeros(1 + outputs), log_variance]),
        features.new_full((outputs,), knows),
    )


def _not_tiny(std: Tensor, varies: Tensor, widths: Sequence[int]) -> Tensor:
    """Each std, or if that is more a share of the root mean square of those at its place.

    A unit that few examples wake would else drown all others, once a file has rounded weights or
    inputs come from elsewhere. The last of the widths is that of outputs, which have units.
    """
    least = torch.zeros_like(std)
    begin = 0
    for width in widths[:-1]:
        place = slice(begin, begin + width)
        count = varies[place].sum().clamp_min(1)
        square = std[place].square().where(varies[place], 0).sum() / count
        least[place] = _LEAST_SHARE * square.sqrt()
        begin += width
    return torch.maximum(std, least)


def _log_variances(lesson: Lesson, unit: Tensor) -> Tensor:
    """Of draws, beside what the last layer explains."""
    found = lesson.draws.var(0).clamp_min(_LEAST_VARIANCE).log()
    last = lesson.given.last_variance
    return found if last is None else found - above_zero(last, unit).log()


def _is_random(root: nn.Module, places: list[Place]) -> bool:
    layer = root.get_submodule(places[-1].name)
    return (
        isinstance(layer, LinearLayer)
        and isinstance(layer, nn.Linear)
        and "weight" in posteriors_of(layer)
        and posteriors_of(layer)["weight"].is_random
    )


def _read_by(root: nn.Module, places: list[Place]) -> Tensor:
    """Which channels the layers read at all: others may be cut off by `shrink`."""
    parts = [torch.zeros(0, dtype=torch.bool)]
    for place in places:
        layer = root.get_submodule(place.name)
        weight = _mean_weight(layer)
        axis = 0 if getattr(layer, "transposed", False) else 1
        if weight is None or weight.shape[axis] != place.width:
            parts.append(torch.ones(place.width, dtype=torch.bool))
        else:
            parts.append((weight != 0).movedim(axis, 0).flatten(1).any(1).cpu())
    return torch.cat(parts)


def _mean_weight(layer: nn.Module) -> Tensor | None:
    if isinstance(layer, BayesianModule) and "weight" in posteriors_of(layer):
        return posteriors_of(layer)["weight"].expectation()
    weight = layer._parameters.get("weight")
    return weight if isinstance(layer, nn.Linear | nn.modules.conv._ConvNd) else None
