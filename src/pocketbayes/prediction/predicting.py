"""Predictions that know how sure they are: averages over draws of the network."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from pocketbayes.errors import DataError, PocketBayesError, require_choice, require_count
from pocketbayes.layers import ESTIMATORS, bayesian_modules, describe, noise_log_std, require_module
from pocketbayes.likelihoods import LIKELIHOODS
from pocketbayes.prediction.calibration import Conformal, spread_out
from pocketbayes.prediction.draws import drawing, draws_of, networks_to_run
from pocketbayes.prediction.inputs import _examples_at_once, _lacks_batch, input_batches
from pocketbayes.prediction.predictions import ClassPrediction, Prediction, ValuePrediction

AVERAGES = ("probs", "logits")


def predict(
    model: nn.Module,
    x: Tensor | Iterable[Any],
    num_samples: int = 30,
    generator: torch.Generator | None = None,
    estimator: str | None = None,
    average: str = "probs",
    batch_size: int | None = None,
    keep_samples: bool = False,
    likelihood: str | None = None,
    single: bool | None = None,
) -> Prediction:
    """Predicts with uncertainty by averaging `num_samples` draws of the network.

    A deterministic network, or the mean of a Bayesian one, is run once; an ensemble of such once
    per member.
    The model's mode and parameters are left as they were, also after an error; so are the
    global random generators if `generator` is given.

    Args:
        model: a Bayesian model, trained or not.
        x: a batch, one example (an image without batch dimension, a 1-d feature vector), or an
            iterable of batches, for instance a DataLoader, whose targets are passed over.
        num_samples: draws to average over.
        generator: makes the draws reproducible: equal models, inputs and batch sizes give equal
            predictions. It is advanced by one number.
        estimator: "lrt", "weight" (the textbook predictive: whole weight draws), "flipout" or
            "mean" (the mean network alone); None: the one the model was trained with. On
            convolutions "lrt" and "weight" are different predictives.
        average: "probs" averages probabilities; "logits" averages logits before the softmax,
            which is not the Bayesian predictive, for comparison with work that does so.
        batch_size: examples at a time, when `x` is a tensor; None: 256, or 1,024 small ones: of
            at most 4,096 numbers on a CUDA device, elsewhere of at most 1,024 and in a network
            without convolutions; never with integers or layers wider than 4,096.
        keep_samples: also return every sample's probabilities.
        likelihood: "categorical" or "gaussian"; None: as trained, else "categorical".
        single: whether `x` is one example without batch dimension; None: told from the inputs
            seen in training or, untrained, from the first convolution or linear layer.

    Returns:
        A `ClassPrediction` (`.probs .entropy .aleatoric .epistemic .variance`) or, for a
        Gaussian likelihood, a `ValuePrediction` (`.mean .std .aleatoric .epistemic`,
        `.interval(0.9)`), on the model's device. What `temperature_` found is applied; after
        `conformal` there is `.prediction_set`, or `.interval()` at the promised level.

    Example:
        >>> pred = predict(model, x, generator=torch.Generator().manual_seed(0))
        >>> unsure = pred.epistemic > 0.1
    """
    require_module(model)
    require_count(num_samples, "num_samples")
    if batch_size is not None:
        require_count(batch_size, "batch_size")
    require_choice(average, "average", AVERAGES)
    likelihood = likelihood or describe(model).likelihood or "categorical"
    require_choice(likelihood, "likelihood", LIKELIHOODS)
    if estimator is not None:
        require_choice(estimator, "estimator", ESTIMATORS)
    if not any(True for _ in bayesian_modules(model)):
        raise PocketBayesError("this model has no posterior: call bayesianize_(net) first")
    single = isinstance(x, Tensor) and (_lacks_batch(model, x) if single is None else single)
    device = next(model.parameters()).device
    at_once = batch_size or _examples_at_once(model, x, device)
    batches = [x.unsqueeze(0)] if single else input_batches(x, at_once)  # type: ignore[union-attr]
    temperature = describe(model).temperature
    parts: list[Prediction] = []
    with drawing(model, estimator, generator):
        passes = networks_to_run(model, num_samples, estimator)
        for batch in batches:
            draws = draws_of(passes, batch.to(device))
            if likelihood == "gaussian":
                value = _value_prediction(draws, noise_log_std(model))
                parts.append(value if temperature is None else _widened(value, temperature))
            else:
                draws = draws if temperature is None else draws / temperature
                parts.append(_class_prediction(draws, average, keep_samples))
    if not parts:
        raise DataError("there is nothing to predict: the input holds no batch")
    found = describe(model).conformal
    conformal = None if found is None else Conformal.from_facts(found)
    return replace(_joined(parts, single), conformal=conformal)  # type: ignore[call-arg]


def _class_prediction(draws: Tensor, average: str, keep_samples: bool) -> ClassPrediction:
    if draws.dim() < 3:
        raise DataError(
            f"the model's output has shape {tuple(draws.shape[1:])}; a categorical prediction "
            'needs (batch, classes, ...). Is this a regression? Then likelihood="gaussian"'
        )
    samples = draws.softmax(2)
    probs = samples.mean(0) if average == "probs" else draws.mean(0).softmax(1)
    entropy = torch.special.entr(probs).sum(1)
    aleatoric = torch.special.entr(samples).sum(2).mean(0)
    return ClassPrediction(
        num_samples=len(draws),
        samples=samples if keep_samples else None,
        probs=probs,
        entropy=entropy,
        aleatoric=aleatoric,
        epistemic=(entropy - aleatoric).clamp_min(0) if average == "probs" else entropy - aleatoric,
        variance=samples.var(0, correction=0),
    )


def _value_prediction(draws: Tensor, log_std: Tensor | None) -> ValuePrediction:
    mean, epistemic = draws.mean(0), draws.var(0, correction=0)
    noise = torch.zeros_like(mean) if log_std is None else (2 * log_std).exp().expand_as(mean)
    return ValuePrediction(
        num_samples=len(draws),
        samples=draws,
        mean=mean,
        std=(noise + epistemic).sqrt(),
        aleatoric=noise,
        epistemic=epistemic,
    )


def _widened(prediction: ValuePrediction, factor: float) -> ValuePrediction:
    """The same mean with all of the spread around it times the factor."""
    return replace(
        prediction,
        samples=spread_out(prediction.samples, factor),
        std=prediction.std * factor,
        aleatoric=prediction.aleatoric * factor**2,
        epistemic=prediction.epistemic * factor**2,
    )


def _joined(parts: list[Prediction], single: bool) -> Prediction:
    """One prediction from those of the batches; for a single example, without batch dimension."""
    kind, joined = type(parts[0]), dict[str, Any]()
    for name in kind.__dataclass_fields__:
        values = [getattr(part, name) for part in parts]
        if isinstance(values[0], Tensor):
            dim = 1 if name == "samples" else 0
            value = torch.cat(values, dim)
            joined[name] = value.squeeze(dim) if single else value
        else:
            joined[name] = values[0]
    if single and kind is ClassPrediction:
        joined["class_dim"] = 0
    return kind(**joined)
