"""From draws of a network's output to a prediction."""

from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from pocketbayes.errors import DataError
from pocketbayes.likelihoods import Likelihood, TargetDistribution, ValueLikelihood
from pocketbayes.prediction.predictions import (
    ClassPrediction,
    LabelPrediction,
    Prediction,
    ValuePrediction,
)


def summarised(
    likelihood: Likelihood,
    draws: Tensor,
    learned: dict[str, Tensor],
    temperature: float | None,
    average: str,
    keep: bool,
    of_gaussian: bool = False,
) -> Prediction:
    """The prediction of a batch, of which there are (S, N, ...) outputs.

    A temperature divides logits, and is the factor on the spread of values. Draws that stand for
    a Gaussian leave no gaps between them: with one Gaussian noise the predictive is then exact.
    """
    if isinstance(likelihood, ValueLikelihood):
        parts = likelihood.distribution(draws, learned, dim=2)
        parts = parts if temperature is None else parts.widened(temperature)
        found = value_prediction(parts)
        return replace(found, parts=parts.smoothed()) if of_gaussian else found
    draws = draws if temperature is None else draws / temperature
    if likelihood.kind == "labels":
        return label_prediction(draws, average, keep)
    return class_prediction(draws, average, keep)


def class_prediction(draws: Tensor, average: str, keep_samples: bool) -> ClassPrediction:
    """From logits (S, N, classes, ...)."""
    if draws.dim() < 3:
        raise DataError(
            f"the model's output has shape {tuple(draws.shape[1:])}; a categorical prediction "
            'needs (batch, classes, ...). Is this a regression? Then likelihood="gaussian"'
        )
    samples = draws.softmax(2)
    if len(draws) == 1:
        return _certain(samples, keep_samples)
    probs = samples.mean(0) if average == "probs" else draws.mean(0).softmax(1)
    entropy = torch.special.entr(probs).sum(1)
    aleatoric = torch.special.entr(samples).sum(2).mean(0)
    return ClassPrediction(
        num_samples=len(draws),
        samples=samples if keep_samples else None,
        probs=probs,
        entropy=entropy,
        aleatoric=aleatoric,
        epistemic=_epistemic(entropy, aleatoric, len(draws), average),
        variance=unbiased_variance(samples, probs if average == "probs" else None),
    )


def _certain(samples: Tensor, keep_samples: bool) -> ClassPrediction:
    """From the probabilities of one draw."""
    probs = samples[0]
    entropy = torch.special.entr(probs).sum(1)
    return ClassPrediction(
        num_samples=1,
        samples=samples if keep_samples else None,
        probs=probs.clone() if keep_samples else probs,
        entropy=entropy,
        aleatoric=entropy.clone(),
        epistemic=torch.zeros_like(entropy),
        variance=torch.zeros_like(probs),
    )


def label_prediction(draws: Tensor, average: str, keep_samples: bool) -> LabelPrediction:
    """From logits (S, N, labels, ...)."""
    samples = draws.sigmoid()
    probs = samples.mean(0) if average == "probs" else draws.mean(0).sigmoid()
    entropy, aleatoric = _binary_entropy(probs), _binary_entropy(samples).mean(0)
    return LabelPrediction(
        num_samples=len(draws),
        samples=samples if keep_samples else None,
        probs=probs,
        entropy=entropy,
        aleatoric=aleatoric,
        epistemic=_epistemic(entropy, aleatoric, len(draws), average),
        variance=unbiased_variance(samples),
    )


def value_prediction(parts: TargetDistribution) -> ValuePrediction:
    """From the distributions (S, N, ...) of the draws."""
    samples = parts.location
    aleatoric, epistemic = parts.variance.mean(0), unbiased_variance(samples)
    return ValuePrediction(
        num_samples=len(samples),
        samples=samples,
        mean=samples.mean(0),
        std=(aleatoric + epistemic).sqrt(),
        aleatoric=aleatoric,
        epistemic=epistemic,
        parts=parts,
    )


def unbiased_variance(samples: Tensor, mean: Tensor | None = None) -> Tensor:
    """Over the first dimension; 0 for one sample. On a CPU `var` takes five times as long."""
    if len(samples) == 1:
        return torch.zeros_like(samples[0])
    mean = samples.mean(0) if mean is None else mean
    return (samples - mean).square_().sum(0) / (len(samples) - 1)


def _epistemic(entropy: Tensor, aleatoric: Tensor, count: int, average: str) -> Tensor:
    """The mutual information: S / (S - 1) times that of S draws.

    With averaged logits the difference is no mutual information, and may be negative.
    """
    if average != "probs":
        return entropy - aleatoric
    scale = count / (count - 1) if count > 1 else 0.0
    return scale * (entropy - aleatoric).clamp_min(0)


def _binary_entropy(probs: Tensor) -> Tensor:
    found: Tensor = torch.special.entr(probs) + torch.special.entr(1 - probs)
    return found


def evened(parts: list[Prediction]) -> list[Prediction]:
    """The same with equal numbers of samples, of which each is a multiple of the lower ones.

    Samples that are repeated as often as each other leave a mixture as it is.
    """
    most = max(part.num_samples for part in parts)
    return [part if part.num_samples == most else _repeated(part, most) for part in parts]


def _repeated(part: Prediction, most: int) -> Prediction:
    def repeat(samples: Tensor) -> Tensor:
        times = most // part.num_samples
        return samples.repeat(times, *(1 for _ in samples.shape[1:]))

    found: dict[str, Any] = {"num_samples": most}
    if part.samples is not None:
        found["samples"] = repeat(part.samples)
    if isinstance(part, ValuePrediction):
        found["parts"] = part.parts.mapped(repeat)
    return replace(part, **found)


def in_order(parts: list[Prediction], rows: list[Tensor]) -> Prediction:
    """One prediction from those of some rows of a batch each."""
    for_rows = [
        replace(part, samples_used=torch.full_like(some, part.num_samples))
        for part, some in zip(parts, rows, strict=True)
    ]
    whole, order = joined(evened(for_rows), single=False), torch.cat(rows).argsort()
    found = dict[str, Any]()
    for name in (field.name for field in fields(whole)):
        value, dim = getattr(whole, name), _dim_of_rows(name)
        if isinstance(value, TargetDistribution):
            found[name] = value.mapped(lambda t, dim=dim: t.index_select(dim, order))  # type: ignore[misc]
        elif isinstance(value, Tensor):
            found[name] = value.index_select(dim, order)
    return replace(whole, **found)


def _dim_of_rows(name: str) -> int:
    return 1 if name in ("samples", "parts") else 0


def joined(parts: list[Prediction], single: bool) -> Prediction:
    """One prediction from those of the batches; for a single example, without batch dimension."""
    if len(parts) == 1 and not single:
        return parts[0]
    parts = evened(parts)
    kind, found = type(parts[0]), dict[str, Any]()
    for name in (field.name for field in fields(kind)):
        values = [getattr(part, name) for part in parts]
        found[name] = _joined_values(values, _dim_of_rows(name), single)
    if single and kind is ClassPrediction:
        found["class_dim"] = 0
    elif single:
        found["is_single"] = True
    return kind(**found)


def _joined_values(values: list[Any], dim: int, single: bool) -> Any:
    first = values[0]
    if isinstance(first, TargetDistribution):
        whole = type(first).joined(values, dim)
        return whole.mapped(lambda tensor: tensor.squeeze(dim)) if single else whole
    if isinstance(first, Tensor):
        together = first if len(values) == 1 else torch.cat(values, dim)
        return together.squeeze(dim) if single else together
    return first
