"""What a prediction holds, as numpy arrays; N examples, S samples."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pocketbayes_lite.errors import LiteError

Array = NDArray[np.float32]
_TEMPERED = 0.3  # a posterior of a smaller beta promises more than it holds
_SURE = 0.9
_DRAWN = {"lrt", "flipout", "weight"}
_NOTHING_DRAWN = {"one_pass": "by one pass, draws would", "moments": "by moments, draws would"}


@dataclass(frozen=True, eq=False)
class Prediction:
    """What a prediction of any kind has. `estimator` "none": no weight is random.

    Attributes:
        aleatoric: what no more data would remove.
        epistemic: what the model does not know, corrected for S by S / (S - 1).
        outputs: mean over draws of the network's outputs.
        facts: what the file says of its model.
    """

    aleatoric: Array
    epistemic: Array
    outputs: Array
    estimator: str
    num_samples: int
    facts: Mapping[str, Any] = field(repr=False)

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of classes or labels, if the file has them."""
        names = self.facts.get("class_names")
        return None if names is None else tuple(names)

    def why_unsure(self) -> list[str]:
        """The larger part of each example's doubt, in words; none of what is sure.

        Classes and labels are sure from a probability of 0.9 on, values if what the model does not
        know is the smaller part of their spread.
        """
        rows = [np.atleast_1d(part) for part in (self.aleatoric, self.epistemic)]
        sums = (part.reshape(len(part), -1).sum(1).tolist() for part in rows)
        parts = zip(self._is_sure(), *sums, strict=True)
        return ["" if sure else self._words(*both) for sure, *both in parts]

    def _is_sure(self) -> NDArray[np.bool_]:
        """(N,) whether a row needs no words."""
        raise NotImplementedError

    def _words(self, aleatoric: float, epistemic: float) -> str:
        if self.num_samples == 1:
            return "not known: a single network cannot tell"
        share = epistemic / max(aleatoric + epistemic, 1e-30)
        draws = _NOTHING_DRAWN.get(self.estimator, "its draws")
        if share > 0.5:
            return f"{share:.0%} epistemic: {draws} disagree"
        return f"{1 - share:.0%} aleatoric: {draws} agree that it is ambiguous"

    def _promised(self) -> NDArray[np.float64] | None:
        """The threshold that `conformal` found; a warning if this prediction is made otherwise."""
        found = self.facts.get("conformal")
        if found is None:
            return None
        both = {found.get("estimator"), self.estimator}
        alike = self.facts.get("one_law") is True and both <= _DRAWN  # as `conformal` saw
        if None not in both and len(both) > 1 and not alike:
            _warn(
                f'calibrated by estimator="{found["estimator"]}", predicted by "{self.estimator}": '
                "the promised coverage is that of the same estimator"
            )
        if found["num_samples"] != self.num_samples:
            _warn(
                f"calibrated with {found['num_samples']} draws, predicted with {self.num_samples}: "
                "the promised coverage is that of equal numbers"
            )
        return np.array(found["threshold"], np.float64).reshape(found["shape"])


@dataclass(frozen=True, eq=False)
class ClassPrediction(Prediction):
    """Classes; entropies are in nats: entropy = aleatoric + (1 - 1/S) epistemic.

    Attributes:
        probs: (N, classes) mean of the samples' probabilities.
        entropy: (N,) entropy of these: all of the uncertainty.
        label: (N,) the most probable class.
    """

    probs: Array
    entropy: Array
    label: NDArray[np.int64]
    class_axis: int = 1

    def _is_sure(self) -> NDArray[np.bool_]:
        return _all_of_each(self.confidence >= _SURE)

    @property
    def confidence(self) -> Array:
        """(N,) the probability of `label`."""
        return np.asarray(np.minimum(self.probs.max(self.class_axis), 1))

    @property
    def prediction_set(self) -> NDArray[np.bool_]:
        """(N, classes) True for the classes that `conformal` promises to hold the true one."""
        threshold = self._promised()
        if threshold is None:
            raise LiteError(
                "there is no prediction set: call pb.conformal(model, calibration_loader) before "
                "pb.save"
            )
        inside = 1 - self.probs.astype(np.float64) <= threshold
        np.put_along_axis(
            inside, np.expand_dims(self.label, self.class_axis), True, self.class_axis
        )
        return np.asarray(inside)


@dataclass(frozen=True, eq=False)
class LabelPrediction(Prediction):
    """Several labels, each 0 or 1, with the parts of the doubt in each.

    Attributes:
        probs: (N, labels) mean probability that a label is 1.
        entropy: (N, labels) entropy of each, in nats.
        label: (N, labels) 1 where that is more probable.
    """

    probs: Array
    entropy: Array
    label: NDArray[np.int64]

    def _is_sure(self) -> NDArray[np.bool_]:
        return _all_of_each(self.confidence >= _SURE)

    @property
    def confidence(self) -> Array:
        """(N, labels) the probability of `label`."""
        return np.asarray(np.minimum(np.maximum(self.probs, 1 - self.probs), 1))


@dataclass(frozen=True, eq=False)
class ValuePrediction(Prediction):
    """Values or counts, a mixture over samples; std^2 = aleatoric + epistemic.

    Attributes:
        mean: (N, outputs) mean of the mixture.
        std: (N, outputs) its standard deviation.
    """

    mean: Array
    std: Array
    level: float
    interval_at: Callable[[float], tuple[Array, Array]] = field(repr=False)

    def _is_sure(self) -> NDArray[np.bool_]:
        return _all_of_each(self.epistemic <= self.aleatoric)

    def interval(self, level: float | None = None) -> tuple[Array, Array]:
        """The central interval that holds this share of the probability, as (low, high).

        None: what `conformal` promised, mean +- threshold std; else the level of `predict`.
        """
        threshold = self._promised() if level is None else None
        if threshold is not None:
            return self._promised_interval(threshold)
        beta = self.facts.get("beta")
        if beta is not None and 0 < beta < _TEMPERED and self.epistemic.any():
            _warn(
                f"this posterior was trained with beta {beta:g}: it is narrower than Bayes' and "
                "intervals may hold less than they say"
            )
        return self.interval_at(self.level if level is None else level)

    def _promised_interval(self, threshold: NDArray[np.float64]) -> tuple[Array, Array]:
        mean, reach = self.mean.astype(np.float64), threshold * self.std.astype(np.float64)
        low, high = mean - reach, mean + reach
        if self.facts.get("likelihood") in ("poisson", "negative-binomial"):
            more, nearest = 1e-9 * (1 + mean), np.rint(mean)  # bounds are often met
            low = np.minimum(np.maximum(np.ceil(low - more), 0), nearest)
            high = np.maximum(np.floor(high + more), nearest)
        return low.astype(np.float32), high.astype(np.float32)


def _all_of_each(good: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(N,) as `why_unsure` has its rows."""
    rows = np.atleast_1d(good)
    return np.asarray(rows.reshape(len(rows), -1).all(1))


def _warn(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=4)
