"""From a model and a loader to one frozen record of how good and how sure it is."""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from pocketbayes.errors import DataError
from pocketbayes.layers import Inputs, first_parameter, named_tensors, num_examples
from pocketbayes.likelihoods import LIKELIHOODS, likelihood_of, require_labels
from pocketbayes.prediction import metrics
from pocketbayes.prediction.faults import require_finite
from pocketbayes.prediction.inputs import float_dtype, unpack
from pocketbayes.prediction.predicting import predict
from pocketbayes.prediction.predictions import ClassPrediction, Prediction
from pocketbayes.prediction.scoring import scored
from pocketbayes.prediction.summaries import evened


@dataclass(frozen=True)
class Record:
    """Metrics of one model on one data set; None where one does not apply.

    Classification: `accuracy` (a fraction), `nll` (nats per label), `brier`, `ece` (15 bins,
    top label), `marginal_ce` (debiased L2, root mean square over classes), `confidence` (mean),
    `aurc` (area under the risk-coverage curve); labels of -100 do not count. Several labels: the
    same, each label being a choice of two. Values and counts: `rmse`, `nll` (nats per example),
    `crps` (continuous ranked probability score; exact for Gaussians, else from 200 draws),
    `interval_score_90`, and `coverage_50`, `_90`, `_95`: the share of targets inside the central
    interval of that probability (of counts at least that, as its bounds are whole).
    With an OOD loader: `auroc_*`, `aupr_*`, `fpr85_*`, `fpr95_*` by `entropy`, by `epistemic`
    and by `max_prob` (one minus it), with OOD the positive class.
    """

    likelihood: str
    num_examples: int
    num_samples: int
    estimator: str
    seconds: float
    nll: float
    accuracy: float | None = None
    brier: float | None = None
    ece: float | None = None
    marginal_ce: float | None = None
    confidence: float | None = None
    aurc: float | None = None
    rmse: float | None = None
    crps: float | None = None
    interval_score_90: float | None = None
    coverage_50: float | None = None
    coverage_90: float | None = None
    coverage_95: float | None = None
    num_ood: int | None = None
    auroc_entropy: float | None = None
    auroc_epistemic: float | None = None
    auroc_max_prob: float | None = None
    aupr_entropy: float | None = None
    aupr_epistemic: float | None = None
    aupr_max_prob: float | None = None
    fpr85_entropy: float | None = None
    fpr85_epistemic: float | None = None
    fpr85_max_prob: float | None = None
    fpr95_entropy: float | None = None
    fpr95_epistemic: float | None = None
    fpr95_max_prob: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields that apply."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def to_json(self) -> str:
        """The same as one JSON object."""
        return json.dumps(self.to_dict())

    def __str__(self) -> str:
        """One line for each field that applies."""
        facts = self.to_dict()
        width = max(map(len, facts))
        return "\n".join(
            f"{name:<{width}}  {f'{value:.4g}' if isinstance(value, float) else value}"
            for name, value in facts.items()
        )


def evaluate(
    model: nn.Module,
    loader: Iterable[Any],
    num_samples: int | Literal["auto"] = 30,
    ood_loader: Iterable[Any] | None = None,
    generator: torch.Generator | None = None,
    estimator: str | None = None,
    average: str = "probs",
    likelihood: str | None = None,
    compile: bool | str = False,  # noqa: A002
    backend: str = "torch",
) -> Record:
    """Measures the model on a loader of batches, which are as in `fit`.

    Args:
        model: a Bayesian model; its likelihood decides between classification and regression.
        loader: yields inputs and targets. Never choose settings by the test set's record.
        num_samples: draws per prediction; "auto": as many as each example needs, of which the
            record has the most.
        ood_loader: inputs (or pairs) from elsewhere, which the model should be unsure about.
        generator: makes the record reproducible; see `predict`, as for the other arguments.
        estimator: as in `predict`.
        average: as in `predict`.
        likelihood: as in `predict`; say it for a model trained in a loop of your own.
        compile: as in `predict`.
        backend: as in `predict`.

    Example:
        >>> record = evaluate(model, test_loader, ood_loader=svhn_loader)
        >>> record.accuracy, record.nll, record.ece, record.auroc_entropy
    """
    options: dict[str, Any] = {
        "generator": generator, "estimator": estimator, "average": average,
        "likelihood": likelihood, "compile": compile, "backend": backend,
    }  # fmt: skip
    return record_of(answered(model, loader, num_samples, ood_loader, **options))


@dataclass(frozen=True)
class Answers:
    """What a model says about a data set, batch by batch, what is true, and how that was found.

    `first` are the inputs of the first batch.
    """

    predictions: list[Any]
    targets: list[Tensor]
    outside: Prediction | None
    estimator: str
    seconds: float
    likelihood: str
    first: Inputs


def answered(
    model: nn.Module,
    loader: Iterable[Any],
    num_samples: int | Literal["auto"] = 30,
    ood_loader: Iterable[Any] | None = None,
    **options: Any,
) -> Answers:
    """Predictions for everything that the loaders yield; the options are those of `predict`."""
    begin = time.perf_counter()
    if not isinstance(loader, Iterable):
        raise DataError(f"the loader is a {type(loader).__name__}; pass a DataLoader or a list")
    predictions, targets, rows, first = list[Any](), list[Tensor](), 0, None
    for batch in loader:
        x, y = unpack(batch, "the loader", float_dtype(model))
        require_finite([*named_tensors(x), ("the target", y)], "the loader", rows)
        rows += len(y)
        first = x if first is None else first
        prediction = predict(
            model, x, num_samples, batch_size=num_examples(x), single=False, **options
        )
        if isinstance(prediction, ClassPrediction):
            require_labels(prediction.probs, y)
        predictions.append(prediction)
        targets.append(y.to(first_parameter(model).device))
    if first is None:
        raise DataError("the loader is empty: it yielded no batch to evaluate")
    outside = None
    if ood_loader is not None:
        if not isinstance(predictions[0], ClassPrediction):
            raise DataError("out-of-distribution scores need a categorical likelihood")
        outside = predict(model, ood_loader, num_samples, **options)
    likelihood = likelihood_of(model, options.get("likelihood")).name
    seconds = time.perf_counter() - begin
    by = predictions[0].estimator
    return Answers(evened(predictions), targets, outside, by, seconds, likelihood, first)


def record_of(answers: Answers) -> Record:
    """The metrics of these answers."""
    begin = time.perf_counter()
    predictions, targets = answers.predictions, answers.targets
    found: dict[str, Any] = {**scored(predictions, targets, LIKELIHOODS[answers.likelihood])}
    if answers.outside is not None:
        found |= _out_of_distribution(predictions, answers.outside)
    return Record(
        num_examples=sum(map(len, targets)),
        num_samples=predictions[0].num_samples,
        estimator=answers.estimator,
        seconds=answers.seconds + time.perf_counter() - begin,
        likelihood=answers.likelihood,
        **found,
    )


def _out_of_distribution(inside: list[Any], outside: Any) -> dict[str, Any]:
    scores: dict[str, Callable[[Any], Tensor]] = {
        "entropy": lambda p: p.entropy.flatten(),
        "epistemic": lambda p: p.epistemic.flatten(),
        "max_prob": lambda p: 1 - p.confidence.flatten(),
    }
    found: dict[str, Any] = {"num_ood": len(outside.probs)}
    for name, score in scores.items():
        negatives, positives = torch.cat([score(p) for p in inside]), score(outside)
        found |= {
            f"auroc_{name}": metrics.auroc(negatives, positives),
            f"aupr_{name}": metrics.average_precision(negatives, positives),
            f"fpr85_{name}": metrics.false_positive_rate(negatives, positives, 0.85),
            f"fpr95_{name}": metrics.false_positive_rate(negatives, positives, 0.95),
        }
    return found
