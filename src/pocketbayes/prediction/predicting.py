"""Predictions that know how sure they are: averages over draws of the network."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from pocketbayes.errors import DataError, PocketBayesError, require_choice, require_count
from pocketbayes.layers import (
    ESTIMATORS,
    Inputs,
    bayesian_modules,
    describe,
    mapped,
    moved,
    named_tensors,
    noise_log_std,
    num_examples,
    require_module,
)
from pocketbayes.likelihoods import LIKELIHOODS
from pocketbayes.prediction.draws import drawing, draws_of, networks_to_run
from pocketbayes.prediction.faults import require_finite
from pocketbayes.prediction.inputs import (
    examples_at_once,
    float_dtype,
    input_batches,
    lacks_batch,
    whole_inputs,
)
from pocketbayes.prediction.predictions import ClassPrediction, Prediction, ValuePrediction

AVERAGES = ("probs", "logits")


def predict(
    model: nn.Module,
    x: Any,
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
            iterable of batches, for instance a DataLoader, whose targets are passed over. A batch
            is a tensor or NumPy array, a tuple of those (the inputs of `forward` in their order)
            or a dict (by name); what a loader yields is as in `fit`, so there the last of a tuple
            is its target.
        num_samples: draws to average over.
        generator: makes the draws reproducible: equal models, inputs and batch sizes give equal
            predictions. It is advanced by one number.
        estimator: "lrt", "weight" (the textbook predictive: whole weight draws), "flipout" or
            "mean" (the mean network alone); None: the one the model was trained with. On
            convolutions "lrt" and "weight" are different predictives.
        average: "probs" averages probabilities; "logits" averages logits before the softmax,
            which is not the Bayesian predictive, for comparison with work that does so.
        batch_size: examples at a time, when `x` is no loader; None: 256, or 1,024 small ones: of
            at most 4,096 numbers on a CUDA device, elsewhere of at most 1,024 and in a network
            without convolutions; never with integers or layers wider than 4,096.
        keep_samples: also return every sample's probabilities.
        likelihood: "categorical" or "gaussian"; None: as trained, else "categorical".
        single: whether `x` is one example without batch dimension; None: told from the inputs
            seen in training or, untrained, from the first convolution or linear layer.

    Returns:
        A `ClassPrediction` (`.probs .entropy .aleatoric .epistemic .variance`) or, for a
        Gaussian likelihood, a `ValuePrediction` (`.mean .std .aleatoric .epistemic`,
        `.interval(0.9)`), on the model's device.

    Raises:
        DataError: an input is NaN or infinite, and in which row; or the model cannot run on it.

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
    device, dtype = next(model.parameters()).device, float_dtype(model)
    whole = x if isinstance(x, Tensor) else whole_inputs(x, dtype)
    single = whole is not None and (lacks_batch(model, whole) if single is None else single)
    batches = _batches(model, x, whole, batch_size, single)
    parts: list[Prediction] = []
    rows = 0
    with drawing(model, estimator, generator):
        passes = networks_to_run(model, num_samples, estimator)
        for batch in batches:
            require_finite(named_tensors(batch), "the data", rows)
            rows += num_examples(batch)
            draws = draws_of(passes, moved(batch, device))
            if likelihood == "gaussian":
                parts.append(_value_prediction(draws, noise_log_std(model)))
            else:
                parts.append(_class_prediction(draws, average, keep_samples))
    if not parts:
        raise DataError("there is nothing to predict: the input holds no batch")
    return _joined(parts, single)


def _batches(
    model: nn.Module, x: object, whole: Inputs | None, size: int | None, single: bool
) -> Iterable[Inputs]:
    """What is run at a time; a single example gets a batch dimension."""
    if single:
        assert whole is not None
        return [mapped(lambda tensor: tensor.unsqueeze(0), whole)]
    device = next(model.parameters()).device
    given = x if whole is None else whole
    return input_batches(given, size or examples_at_once(model, whole, device), float_dtype(model))


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
