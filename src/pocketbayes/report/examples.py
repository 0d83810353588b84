"""The examples that a model is least sure about, and its surest mistakes."""

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image
from torch import Tensor

from pocketbayes.data import ImageSet, TableSet, table_features
from pocketbayes.prediction import Prediction, why_unsure
from pocketbayes.report.findings import ClassAnswers, Findings
from pocketbayes.report.plots import shortened


@dataclass(frozen=True)
class Example:
    """A picture as PNG bytes, if the input is one, and what the model says about it."""

    picture: bytes | None
    head: str
    lines: tuple[str, ...]


def most_uncertain(found: Findings, count: int = 12) -> list[Example]:
    """Those of the largest doubt, with its reason."""
    answers = found.answers
    doubt = answers.entropy if isinstance(answers, ClassAnswers) else answers.std
    order = map(int, np.argsort(-doubt, kind="stable")[:count])
    return [_example(found, i, _doubt(found, i)) for i in order]


def surest_mistakes(found: Findings, count: int = 6) -> list[Example]:
    """Wrong answers of the highest confidence; values furthest outside of their interval."""
    answers = found.answers
    if isinstance(answers, ClassAnswers):
        wrong = np.flatnonzero(answers.right == 0)
        order = wrong[np.argsort(-answers.confidence[wrong], kind="stable")]
        truth = answers.truth
        assert truth is not None
        reasons = [f"gave the truth {answers.probs[i, int(truth[i])]:.2%}" for i in order[:count]]
    else:
        distance = np.abs(answers.truth - answers.mean) / np.maximum(answers.std, 1e-30)
        outside = np.flatnonzero((answers.truth < answers.low) | (answers.truth > answers.high))
        order = outside[np.argsort(-distance[outside], kind="stable")]
        reasons = [f"{distance[i]:.1f} of its stds away" for i in order[:count]]
    chosen = zip(order[:count], reasons, strict=True)
    return [_example(found, int(i), reason) for i, reason in chosen]


def _example(found: Findings, i: int, reason: str) -> Example:
    answers = found.answers
    head = (
        _class_words(answers, _names(found, answers.probs.shape[1]), i)
        if isinstance(answers, ClassAnswers)
        else f"{answers.mean[i]:.4g} ± {answers.std[i]:.2g}? It is {answers.truth[i]:.4g}"
    )
    if isinstance(found.dataset, ImageSet):
        return Example(as_png(found.dataset.images[i]), head, (reason,))
    return Example(None, head, (reason, *unusual_columns(found.dataset, i)))


def _class_words(answers: ClassAnswers, names: Sequence[str], i: int) -> str:
    first, second = np.argsort(-answers.probs[i])[:2]
    said = [f"{names[k]} ({answers.probs[i, k]:.0%})" for k in (first, second)]
    assert answers.truth is not None
    return f"{said[0]} or {said[1]}? It is {names[int(answers.truth[i])]}"


def _doubt(found: Findings, i: int) -> str:
    answers = found.answers
    pred = Prediction(answers.num_samples, None, estimator=found.numbers.get("estimator"))
    return why_unsure(float(answers.aleatoric[i]), float(answers.epistemic[i]), pred)


def _names(found: Findings, count: int) -> tuple[str, ...]:
    known = found.classes if len(found.classes) == count else tuple(map(str, range(count)))
    return tuple(map(shortened, known))


def as_png(image: Tensor) -> bytes:
    """A byte image (channels, height, width); channels that are no colours become grey."""
    pixels = image.cpu().numpy()
    if len(pixels) != 3:
        pixels = pixels.mean(0, keepdims=True).round().astype(np.uint8)
    shape = pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(shape)).save(file, format="PNG", optimize=True)
    return file.getvalue()


def unusual_columns(table: TableSet, i: int, count: int = 3) -> list[str]:
    """What training did not know of a row, then its numbers furthest from their mean, in stds."""
    numbers = {c["name"] for c in table.preprocess["columns"] if not {"values", "date"} & c.keys()}
    far = list[tuple[float, str]]()
    for place, feature in enumerate(table_features(table.preprocess)):
        value = float(table.features[i, place])
        if feature.name in numbers and value == value:
            z = (value - feature.mean) / feature.std
            far.append((abs(z), f"{feature.name} {value:.4g} ({z:+.1f} std)"))
    unknown = [table.unfamiliar[i]] if table.unfamiliar and table.unfamiliar[i] else []
    return unknown + [words for _, words in _largest(far, count)]


def _largest(pairs: Iterable[tuple[float, str]], count: int) -> list[tuple[float, str]]:
    return sorted(pairs, key=lambda pair: -pair[0])[:count]
