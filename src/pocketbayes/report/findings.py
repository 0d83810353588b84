"""What is known of one model: numbers, answers one by one, its file and its weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pocketbayes.codec import FileSummary
from pocketbayes.data import ImageSet, TableSet
from pocketbayes.prediction import Answers, ClassPrediction, LabelPrediction, Prediction
from pocketbayes.report.figures import RandomWeights
from pocketbayes.report.plots import Numbers
from pocketbayes.report.tried import Tried


@dataclass(frozen=True)
class ClassAnswers:
    """Answers of a classifier, one row per example; entropies in nats."""

    probs: Numbers
    entropy: Numbers
    aleatoric: Numbers
    epistemic: Numbers
    truth: Numbers | None
    num_samples: int

    @property
    def label(self) -> Numbers:
        """The most probable class."""
        found: Numbers = self.probs.argmax(1)
        return found

    @property
    def confidence(self) -> Numbers:
        """Its probability."""
        found: Numbers = self.probs.max(1)
        return found

    @property
    def right(self) -> Numbers:
        """Whether that is the true class."""
        found: Numbers = (self.label == self.truth).astype(float)
        return found

    @property
    def surprise(self) -> Numbers:
        """-log p(truth) of each example."""
        assert self.truth is not None
        chosen = self.probs[np.arange(len(self.truth)), self.truth.astype(int)]
        found: Numbers = -np.log(np.maximum(chosen, np.finfo(np.float32).tiny))
        return found


@dataclass(frozen=True)
class ValueAnswers:
    """Answers in the target's own units; `rank` is P(y < truth) + P(y = truth) / 2."""

    mean: Numbers
    std: Numbers
    low: Numbers
    high: Numbers
    rank: Numbers
    aleatoric: Numbers
    epistemic: Numbers
    truth: Numbers
    num_samples: int


@dataclass(frozen=True)
class Findings:
    """All that a page says about one model.

    Attributes:
        name: how the page calls it.
        data: the data set and its part, in words.
        ood: the other data set, if there is one.
        numbers: the record, in the target's own units.
        file: what the file holds.
        weights: of the model, for pictures.
        answers: on the data set.
        outside: on the other data set.
        dataset: the examples themselves.
        classes: their names.
        settings: how the model was trained, if that is known.
        seconds: that it took to train or, of a compressed run, to compress.
        tried: of a compressed run, what was tried.
    """

    name: str
    data: str
    ood: str | None
    numbers: Mapping[str, Any]
    file: FileSummary
    weights: RandomWeights
    answers: ClassAnswers | ValueAnswers
    outside: ClassAnswers | None
    dataset: ImageSet | TableSet
    classes: tuple[str, ...]
    settings: Mapping[str, Any]
    seconds: float | None = None
    tried: Sequence[Tried] = ()


def answers_of(answers: Answers, target_scale: tuple[float, float]) -> tuple[Any, Any]:
    """The answers on both data sets, one row per example; values as mean + std * number."""
    first = answers.predictions[0]
    truth = torch.cat([t.flatten() for t in answers.targets])
    if isinstance(first, ClassPrediction):
        inside = _class_answers(answers.predictions, truth)
        outside = None if answers.outside is None else _class_answers([answers.outside], None)
        return inside, outside
    if isinstance(first, LabelPrediction):
        return _label_answers(answers.predictions, truth), None
    return _value_answers(answers.predictions, truth, *target_scale), None


def _class_answers(parts: Any, truth: Tensor | None) -> ClassAnswers:
    fields = ("probs", "entropy", "aleatoric", "epistemic")
    arrays = {name: _array(torch.cat([getattr(part, name) for part in parts])) for name in fields}
    known = None if truth is None else truth.cpu().numpy()
    return ClassAnswers(**arrays, truth=known, num_samples=parts[0].num_samples)


def _label_answers(parts: Any, truth: Tensor) -> ClassAnswers:
    """Every label as a choice of two classes, 0 and 1."""
    one = _joined(parts, "probs")
    doubts = {name: _joined(parts, name) for name in ("entropy", "aleatoric", "epistemic")}
    probs = np.stack([1 - one, one], 1)
    return ClassAnswers(
        probs, **doubts, truth=truth.long().cpu().numpy(), num_samples=parts[0].num_samples
    )


def _value_answers(parts: Any, truth: Tensor, centre: float, scale: float) -> ValueAnswers:
    intervals = [part.interval(0.9) for part in parts]
    low, high = (_flat(torch.cat([pair[i] for pair in intervals])) for i in range(2))
    targets = torch.split(truth, [part.mean.numel() for part in parts])
    ranks = [part.rank(y.view_as(part.mean)) for part, y in zip(parts, targets, strict=True)]
    return ValueAnswers(
        mean=centre + scale * _joined(parts, "mean"),
        std=scale * _joined(parts, "std"),
        low=centre + scale * low,
        high=centre + scale * high,
        rank=_flat(torch.cat(ranks)),
        aleatoric=scale**2 * _joined(parts, "aleatoric"),
        epistemic=scale**2 * _joined(parts, "epistemic"),
        truth=centre + scale * _flat(truth),
        num_samples=parts[0].num_samples,
    )


def _joined(parts: list[Prediction], name: str) -> Numbers:
    return _flat(torch.cat([getattr(part, name) for part in parts]))


def _flat(values: Tensor) -> Numbers:
    return _array(values.flatten())


def _array(values: Tensor) -> Numbers:
    found: Numbers = values.double().cpu().numpy()
    return found
