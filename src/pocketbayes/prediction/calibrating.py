"""Calibration of a model on data that it has not seen: one temperature, or a coverage promise."""

from collections.abc import Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from pocketbayes.errors import DataError, PocketBayesError, require_choice
from pocketbayes.layers import (
    first_parameter,
    moved,
    named_tensors,
    require_module,
    tells_rows_alike,
    unwrapped,
    update_description,
)
from pocketbayes.likelihoods import (
    Likelihood,
    ValueLikelihood,
    learned_for,
    learned_of,
    likelihood_of,
    matched_target,
    require_labels,
)
from pocketbayes.prediction.alone import fetched
from pocketbayes.prediction.calibration import (
    DRAWN,
    Conformal,
    best_temperature,
    class_losses,
    class_scores,
    conformal_threshold,
    value_losses,
    value_scores,
)
from pocketbayes.prediction.choosing import chosen_estimator
from pocketbayes.prediction.draws import drawing
from pocketbayes.prediction.evaluation import answered
from pocketbayes.prediction.faults import require_finite
from pocketbayes.prediction.inputs import float_dtype, unpack
from pocketbayes.prediction.predictions import ClassPrediction, LabelPrediction
from pocketbayes.prediction.predictives import PREDICTIVES, drawn, has_gaussian_outputs
from pocketbayes.prediction.scoring import countable
from pocketbayes.prediction.settling import require_fixed_draws

Model = TypeVar("Model", bound=nn.Module)


def temperature_(
    model: Model,
    loader: Iterable[Any],
    num_samples: int = 30,
    *,
    generator: torch.Generator | None = None,
    estimator: str | None = None,
    likelihood: str | None = None,
) -> Model:
    """Finds the temperature of least NLL on held-out data, and gives it to the model, in place.

    Classes and labels: `predict` and `evaluate` then average softmax(logits / T) over draws, or
    sigmoid(logits / T). Values: all of the predictive spread, of draws around their mean and of the
    noise, is T times as wide. Counts have no temperature. T > 1
    makes predictions less sure. One number, between 1/20 and 20, from the NLL of the predictive
    distribution itself plus log(T)^2 / 2. It replaces an earlier one, is stored in the file, and is
    dropped when `fit`, `prune_` and the like change the model; so is what `conformal` found.

    Args:
        model: a Bayesian model, or an ensemble.
        loader: (input, target) batches that no training has seen, and that are not the test set.
        num_samples: draws per prediction.
        generator: makes it reproducible; see `predict`, as for the other arguments.
        estimator: as in `predict`.
        likelihood: as in `predict`.

    Example:
        >>> temperature_(model, val_loader)
        >>> save(model, "calibrated.pocket")
    """
    require_module(model)
    require_fixed_draws(num_samples, "temperature_")
    if not isinstance(loader, Iterable):
        raise DataError(f"the loader is a {type(loader).__name__}; pass a DataLoader or a list")
    if estimator is not None:
        require_choice(estimator, "estimator", PREDICTIVES)
    chosen = likelihood_of(model, likelihood)
    _require_noise(model, chosen)
    total: Tensor | None = None
    estimator = chosen_estimator(model, estimator, chosen)
    with drawing(model, estimator, generator):
        device = first_parameter(model).device
        for batch in fetched(loader, device):
            x, y = unpack(batch, "the loader", float_dtype(model))
            require_finite([*named_tensors(x), ("the target", y)], "the loader")
            draws = drawn(model, moved(x, device), num_samples, estimator)
            learned = learned_for(model, chosen, draws)
            smooth = has_gaussian_outputs(model, estimator)
            losses = _losses(draws, y.to(device), chosen, learned, smooth)
            total = losses if total is None else total + losses
    if total is None:
        raise DataError("the loader is empty: it yielded no batch to find a temperature by")
    update_description(model, temperature=best_temperature(total), conformal=None, one_law=None)
    return model


def conformal(
    model: Model,
    calibration_loader: Iterable[Any],
    level: float = 0.9,
    num_samples: int = 30,
    *,
    generator: torch.Generator | None = None,
    estimator: str | None = None,
    likelihood: str | None = None,
) -> Model:
    """Makes the model's sets and intervals cover the truth with a promised probability, in place.

    Split conformal prediction: with the k-th smallest score of n held-out examples as threshold,
    k = ceil((n + 1) level), a new example of the same kind is covered with a probability of at
    least `level`, however wrong the model is, on average over examples and calibration sets.

    Classes: predictions have `.prediction_set`, all classes of score 1 - p(class) up to the
    threshold (the smallest sets on average), and always the most probable one, so that none is
    empty. Values: `.interval()` is mean +- threshold * std of each output, with the score
    |y - mean| / std, also of counts; the promise holds for each output by itself.

    The promise is for predictions as made here: by `num_samples` draws and the same estimator. It
    is exact for one network and for draws that differ from example to example ("lrt" in linear
    layers); draws of whole weights, shared by a batch, bring in their Monte Carlo error. It is
    stored in the file, and dropped when `fit`, `prune_` and the like change the model. `save`
    rounds posteriors a little: to be exact, calibrate what `load` gives, and save that.

    Args:
        model: a Bayesian model, or an ensemble; call `temperature_` before, on other data.
        calibration_loader: (input, target) batches that no training has seen, one label or row of
            values per example.
        level: the promised probability; needs at least level / (1 - level) examples.
        num_samples: draws per prediction.
        generator: makes it reproducible; see `predict`, as for the other arguments.
        estimator: as in `predict`.
        likelihood: as in `predict`.

    Example:
        >>> model = conformal(model, calibration_loader, level=0.9)
        >>> predict(model, x).prediction_set  # (N, classes), True for the classes in the set
    """
    require_module(model)
    require_fixed_draws(num_samples, "conformal")
    chosen = likelihood_of(model, likelihood)
    _require_noise(model, chosen)
    answers = answered(
        model, calibration_loader, num_samples,
        generator=generator, estimator=estimator, likelihood=likelihood,
    )  # fmt: skip
    pairs = zip(answers.predictions, answers.targets, strict=True)
    scores = torch.cat([_scores(prediction, target, chosen) for prediction, target in pairs])
    found = Conformal(
        level=float(level),
        threshold=conformal_threshold(scores, level).cpu(),
        examples=len(scores),
        num_samples=answers.predictions[0].num_samples,
        estimator=answers.estimator,
    )
    first = moved(answers.first, first_parameter(model).device)
    alike = answers.estimator in DRAWN and tells_rows_alike(unwrapped(model), first)
    update_description(model, conformal=found.to_facts(), one_law=alike or None)
    return model


def _require_noise(model: nn.Module, likelihood: Likelihood) -> None:
    if learned_of(model, likelihood) is None:
        raise PocketBayesError(
            "this model has learned no noise, so its predictions have no spread to calibrate: "
            f'train it by fit(..., likelihood="{likelihood.name}"), or call refresh_noise_ before'
        )


def _losses(
    draws: Tensor, y: Tensor, likelihood: Likelihood, learned: dict[str, Tensor], smooth: bool
) -> Tensor:
    """The NLL of one batch at each candidate temperature."""
    if isinstance(likelihood, ValueLikelihood):
        parts = likelihood.distribution(draws, learned, dim=2)
        parts = parts.smoothed() if smooth else parts
        target = matched_target(parts.location[0], y)
        likelihood.require_possible(draws[0], target)
        return value_losses(parts, target)
    if likelihood.kind == "labels":
        target = matched_target(draws[0], y)
        likelihood.require_possible(draws[0], target)
        pairs = torch.stack([torch.zeros_like(draws), draws], -1)
        return class_losses(pairs.flatten(1, -2), target.flatten().long())
    require_labels(draws[0], y)
    rows, labels = draws.movedim(2, -1).flatten(1, -2), y.flatten()
    counts = countable(rows[0], labels, likelihood)
    return class_losses(rows[:, counts], labels[counts].long())


def _scores(prediction: Any, target: Tensor, likelihood: Likelihood) -> Tensor:
    """The conformal scores of one batch."""
    if isinstance(prediction, LabelPrediction):
        raise PocketBayesError(
            "conformal is for classes, values and counts: several labels at once have no sets here"
        )
    if isinstance(prediction, ClassPrediction):
        if prediction.probs.dim() != 2:
            raise DataError(
                f"predictions have shape {tuple(prediction.probs.shape)}: the promise needs one "
                "label per example, since positions of one example are not exchangeable"
            )
        labels = target.flatten()
        counts = countable(prediction.probs, labels, likelihood)
        return class_scores(prediction.probs[counts], labels[counts].long())
    y = matched_target(prediction.mean, target)
    likelihood.require_possible(prediction.mean, y)
    return value_scores(prediction.mean, prediction.std, y)
