"""Predictions that know how sure they are: averages over draws of the network."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from pocketbayes.errors import DataError, PocketBayesError, require_choice, require_count
from pocketbayes.layers import (
    Inputs,
    describe,
    first_parameter,
    has_posteriors,
    mapped,
    moved,
    named_tensors,
    num_examples,
    require_module,
)
from pocketbayes.likelihoods import learned_for, likelihood_of, warn_of_probabilities
from pocketbayes.prediction.alone import fetched
from pocketbayes.prediction.calibration import Conformal
from pocketbayes.prediction.choosing import chosen_estimator
from pocketbayes.prediction.compilation import compiling
from pocketbayes.prediction.draws import drawing
from pocketbayes.prediction.engine import Draw, drawn_by
from pocketbayes.prediction.faults import require_finite, require_finite_answers
from pocketbayes.prediction.inputs import (
    examples_at_once,
    float_dtype,
    input_batches,
    lacks_batch,
    whole_inputs,
)
from pocketbayes.prediction.predictions import Prediction, ValuePrediction
from pocketbayes.prediction.predictives import (
    PREDICTIVES,
    has_gaussian_outputs,
    is_drawn,
    predictive_of,
)
from pocketbayes.prediction.settling import AUTO, require_draws, settled, until_settled
from pocketbayes.prediction.summaries import in_order, joined, summarised

AVERAGES = ("probs", "logits")


def predict(
    model: nn.Module,
    x: Any,
    num_samples: int | Literal["auto"] = 30,
    generator: torch.Generator | None = None,
    estimator: str | None = None,
    average: str = "probs",
    batch_size: int | None = None,
    keep_samples: bool = False,
    likelihood: str | None = None,
    single: bool | None = None,
    compile: bool | str = False,  # noqa: A002
    backend: str = "torch",
) -> Prediction:
    """Predicts with uncertainty by averaging `num_samples` draws of the network.

    A deterministic network, or the mean of a Bayesian one, is run once; an ensemble of such once
    per member.
    Many draws are made in one pass where that is faster. The model's mode and parameters are left
    as they were, also after an error; so are the global random generators if `generator` is given.
    Several threads may predict with one model at once: each gets what it would get alone. Models
    that keep dropout, have hooks or are compiled do so one at a time, one draw after another; so
    do those whose own code may draw numbers, or keeps something, as far as can be read in it.

    Args:
        model: a Bayesian model, trained or not.
        x: a batch, one example (an image without batch dimension, a 1-d feature vector), or an
            iterable of batches, for instance a DataLoader, whose targets are passed over. A batch
            is a tensor or NumPy array, a tuple of those (the inputs of `forward` in their order)
            or a dict (by name); what a loader yields is as in `fit`, so there the last of a tuple
            is its target.
        num_samples: draws to average over. "auto": 30, and twice as many, up to 960, for those
            examples of a batch whose class and entropy, or mean and std, are not settled by then
            (docs/metrics.md); `.samples_used` says how many. Each row must be predicted by itself.
        generator: makes the draws reproducible: equal models, inputs and batch sizes give equal
            predictions, also where a loader shuffles or augments by the global generators. It is
            advanced by one number.
        estimator: "lrt", "weight" (the textbook predictive: whole weight draws), "flipout" or
            "mean" (the mean network alone), or "one_pass" (what `distill_` taught: the network
            runs once); None: one pass if taught; moments for one value with Gaussian noise, if the
            network is a chain of linear layers, and `num_samples` is not 1; else the one the model
            was trained with. On convolutions "lrt" and "weight" are different predictives.
            "moments": mean and variance go through
            the network in one pass, and the draws are those of Gaussian outputs,
            always the same; `calibrate_moments_` brings them nearer to draws of the network.
        average: "probs" averages probabilities; "logits" averages logits before the softmax,
            which is not the Bayesian predictive, for comparison with work that does so.
        batch_size: examples at a time, when `x` is no loader; None: 256, or 1,024 small ones: of
            at most 4,096 numbers on a CUDA device, elsewhere of at most 1,024 and in a network
            without convolutions; never with integers or layers wider than 4,096.
        keep_samples: also return every sample's probabilities; draws are then made.
        likelihood: one of those of `fit`; None: as trained, else "categorical".
        single: whether `x` is one example without batch dimension; None: told from the inputs
            seen in training or, untrained, from the first convolution or linear layer.
        compile: for long jobs, run the network as machine code by `torch.compile`, which takes
            seconds to minutes to make; a name chooses its backend. The answers are the same.
            docs/one-pass.md says where it helps; where it cannot, a warning says why.
        backend: "torch", or "engine": the C engine of pocketbayes-lite on the CPU. docs/ship.md
            says where it is faster; what it does not know is an error.

    Returns:
        A `ClassPrediction` (`.probs .entropy .aleatoric .epistemic .variance`), for a Bernoulli
        likelihood a `LabelPrediction` (the same, per label), for values and counts a
        `ValuePrediction` (`.mean .std .aleatoric .epistemic`, `.cdf(y)`, `.interval(0.9)`), on the
        model's device. `.draw(n)` gives possible targets. What `temperature_` found is applied;
        after `conformal` there is `.prediction_set`, or `.interval()` at the promised level.

    Raises:
        DataError: an input or the answer to it is NaN or infinite, and in which row; or the model
            cannot run on it.

    Example:
        >>> pred = predict(model, x, generator=torch.Generator().manual_seed(0))
        >>> unsure = pred.epistemic > 0.1
    """
    require_module(model)
    first = require_draws(num_samples)
    if batch_size is not None:
        require_count(batch_size, "batch_size")
    require_choice(average, "average", AVERAGES)
    make = drawn_by(backend)
    if estimator is not None:
        require_choice(estimator, "estimator", PREDICTIVES)
    if not has_posteriors(model):
        raise PocketBayesError("this model has no posterior: call bayesianize_(net) first")
    device, dtype = first_parameter(model).device, float_dtype(model)
    whole = x if isinstance(x, Tensor) else whole_inputs(x, dtype)
    single = whole is not None and (lacks_batch(model, whole) if single is None else single)
    wants_draws = keep_samples or num_samples == 1
    estimator = chosen_estimator(model, estimator, likelihood_of(model, likelihood), wants_draws)
    tell = _Teller(model, likelihood, average, keep_samples, has_gaussian_outputs(model, estimator))
    known, parts, rows = tell.known, list[Prediction](), 0
    by = predictive_of(model, estimator)
    with compiling(compile, by), drawing(model, estimator, generator):
        settles = num_samples == AUTO and is_drawn(model, estimator)
        for batch in _batches(model, x, whole, batch_size, single):
            require_finite(named_tensors(batch), "the data", rows)
            rows += num_examples(batch)
            on_device = moved(batch, device)
            if settles:
                parts.append(_settled(model, on_device, estimator, tell, make))
            else:
                part = tell(make(model, on_device, first, estimator))
                parts.append(_counted(part, num_examples(batch)) if num_samples == AUTO else part)
    if not parts:
        raise DataError("there is nothing to predict: the input holds no batch")
    _require_finite(parts)
    promise = known.conformal
    conformal = None if promise is None else Conformal.from_facts(promise, known.one_law)
    return replace(joined(parts, single), conformal=conformal, beta=known.beta, estimator=by)


def _require_finite(parts: list[Prediction]) -> None:
    """Of classes the entropy is NaN where anything is."""
    before = 0
    for part in parts:
        names = ("mean", "std") if isinstance(part, ValuePrediction) else ("entropy",)
        told = [(name, getattr(part, name)) for name in names]
        require_finite_answers(told, before)
        before += len(told[0][1])


class _Teller:
    """Tells a prediction from draws of one model."""

    def __init__(
        self,
        model: nn.Module,
        likelihood: str | None,
        average: str,
        keep_samples: bool,
        of_gaussian: bool,
    ) -> None:
        self.known, self._model, self._of_gaussian = describe(model), model, of_gaussian
        self._chosen, self._average, self._keeps = (
            likelihood_of(model, likelihood),
            average,
            keep_samples,
        )
        self._is_said = likelihood is not None or self.known.likelihood is not None
        self._learned: dict[str, Tensor] | None = None

    def __call__(self, draws: Tensor) -> Prediction:
        """Of a batch."""
        learned = self._learned_for(draws)
        how = self.known.temperature, self._average, self._keeps, self._of_gaussian
        return summarised(self._chosen, draws, learned, *how)

    def is_settled(self, draws: Tensor) -> Tensor:
        """For which rows of the batch the draws are enough."""
        return settled(self._chosen, draws, self._learned_for(draws), self.known.temperature)

    def _learned_for(self, draws: Tensor) -> dict[str, Tensor]:
        if self._learned is None:
            if not self._is_said:
                _require_classes(draws)
            if self._chosen.kind == "classes":
                warn_of_probabilities(draws.flatten(0, 1))
            self._learned = learned_for(self._model, self._chosen, draws)
        return self._learned


def _settled(
    model: nn.Module, x: Inputs, estimator: str | None, tell: _Teller, make: Draw
) -> Prediction:
    """The prediction of a batch, by as many draws of each row as it needs."""
    by_number = until_settled(
        x, lambda some, number: make(model, some, number, estimator), tell.is_settled
    )
    return in_order([tell(draws) for _, draws in by_number], [rows for rows, _ in by_number])


def _counted(part: Prediction, rows: int) -> Prediction:
    """With the same number of draws for each row: more would tell no more."""
    return replace(part, samples_used=torch.full((rows,), part.num_samples))


def _require_classes(draws: Tensor) -> None:
    """An error for one output of a model that nobody told whether it is a class or a value."""
    if draws.dim() >= 3 and draws.shape[2] == 1:
        raise DataError(
            "the model has one output, and nothing says what it means: pass likelihood=, "
            '"gaussian" for a value, "poisson" for a count, "bernoulli" for yes or no'
        )


def _batches(
    model: nn.Module, x: object, whole: Inputs | None, size: int | None, single: bool
) -> Iterable[Inputs]:
    """What is run at a time; a single example gets a batch dimension."""
    if single:
        assert whole is not None
        return [mapped(lambda tensor: tensor.unsqueeze(0), whole)]
    if whole is None:
        return fetched(input_batches(x, 1, float_dtype(model)), first_parameter(model).device)
    if isinstance(whole, Tensor) and whole.dim() and 0 < len(whole) <= (size or 256):
        return [whole]
    if size is None and num_examples(whole) > 256:
        size = examples_at_once(model, whole, first_parameter(model).device)
    return input_batches(whole, size or 256, float_dtype(model))
