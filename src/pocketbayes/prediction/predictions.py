"""What a prediction holds: probabilities or values, and how much of the doubt is of which kind."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pocketbayes.errors import PocketBayesError, require_count, warn
from pocketbayes.likelihoods import TargetDistribution
from pocketbayes.prediction.alone import seeded
from pocketbayes.prediction.calibration import Conformal

_TEMPERED = 0.3  # a posterior of a smaller beta promises more than it holds


@dataclass(frozen=True)
class Prediction:
    """What a prediction of any kind has; N examples, S samples.

    The epistemic part is corrected for the number of samples: a variance or mutual information of
    S draws is low by the factor 1 - 1/S on average (the mutual information to second order), so it
    is multiplied by S / (S - 1). One sample alone tells nothing of it: it is 0.
    `estimator` says how the samples were made; "none": no weight is random.
    `samples_used` (N,) says how many each example took, with `num_samples="auto"`; S is then the
    most of them, and the samples of others are repeated.
    """

    num_samples: int
    samples: Tensor | None
    conformal: Conformal | None = field(default=None, kw_only=True)
    beta: float | None = field(default=None, kw_only=True)
    estimator: str | None = field(default=None, kw_only=True)
    samples_used: Tensor | None = field(default=None, kw_only=True)

    def draw(self, number: int = 1, generator: torch.Generator | None = None) -> Tensor:
        """(number, N, ...) possible targets: for each a network is drawn, then what it predicts.

        Args:
            number: draws per example.
            generator: makes them repeat; global generators are then left as they were.

        Example:
            >>> possible = pred.draw(100)
        """
        require_count(number, "number")
        with torch.no_grad(), seeded(generator, self._device()):
            return self._drawn(number)

    def _device(self) -> torch.device:
        raise NotImplementedError

    def _drawn(self, number: int) -> Tensor:
        raise NotImplementedError

    def _promise(self, found: Conformal) -> Conformal:
        """What `conformal` found, with a warning if this prediction was made otherwise."""
        if not found.holds_for(self.estimator):
            warn(
                f'calibrated by estimator="{found.estimator}", predicted by "{self.estimator}": '
                "the promised coverage is that of the same estimator",
            )
        if found.num_samples != self.num_samples:
            warn(
                f"calibrated with {found.num_samples} draws, predicted with {self.num_samples}: "
                "the promised coverage is that of equal numbers",
            )
        return found


@dataclass(frozen=True)
class ClassPrediction(Prediction):
    """A categorical prediction. Entropies are in nats: entropy = aleatoric + (1 - 1/S) epistemic.

    Attributes:
        probs: (N, classes) mean of the samples' probabilities.
        entropy: (N,) entropy of `probs`: all of the uncertainty.
        aleatoric: (N,) mean entropy of the samples: what no more data would remove.
        epistemic: (N,) mutual information of label and weights: what the model does not know;
            corrected for S, so that few samples may make it larger than is possible.
        variance: (N, classes) variance of the samples' probabilities, unbiased.
        samples: (S, N, classes) probabilities of each sample, with `keep_samples=True`.
    """

    probs: Tensor
    entropy: Tensor
    aleatoric: Tensor
    epistemic: Tensor
    variance: Tensor
    class_dim: int = 1

    @property
    def prediction_set(self) -> Tensor:
        """(N, classes) True for the classes that `conformal` promises to hold the true one."""
        if self.conformal is None:
            raise PocketBayesError(
                "there is no prediction set: call pb.conformal(model, calibration_loader) first"
            )
        threshold = self._promise(self.conformal).threshold.to(self.probs.device)
        inside = 1 - self.probs.double() <= threshold
        return inside.scatter(self.class_dim, self.label.unsqueeze(self.class_dim), True)

    @property
    def label(self) -> Tensor:
        """(N,) the most probable class."""
        return self.probs.argmax(self.class_dim)

    @property
    def confidence(self) -> Tensor:
        """(N,) the probability of that class."""
        return self.probs.amax(self.class_dim)

    def _device(self) -> torch.device:
        return self.probs.device

    def _drawn(self, number: int) -> Tensor:
        """Labels by `probs`."""
        probs = self.probs.movedim(self.class_dim, -1)
        rows = probs.reshape(-1, probs.shape[-1])
        return torch.multinomial(rows, number, True).T.reshape(number, *probs.shape[:-1])


@dataclass(frozen=True)
class LabelPrediction(Prediction):
    """A prediction of several labels, each 0 or 1. Entropies are per label, in nats, as of classes.

    Attributes:
        probs: (N, labels) mean of the samples' probabilities that a label is 1.
        entropy: (N, labels) entropy of each.
        aleatoric: (N, labels) mean entropy of the samples.
        epistemic: (N, labels) mutual information of label and weights; corrected for S.
        variance: (N, labels) variance of the samples' probabilities, unbiased.
        samples: (S, N, labels) probabilities of each sample, with `keep_samples=True`.
    """

    probs: Tensor
    entropy: Tensor
    aleatoric: Tensor
    epistemic: Tensor
    variance: Tensor
    is_single: bool = False

    @property
    def label(self) -> Tensor:
        """(N, labels) 1 where that is more probable than 0."""
        return (self.probs > 0.5).long()

    @property
    def confidence(self) -> Tensor:
        """(N, labels) the probability of `label`."""
        return torch.maximum(self.probs, 1 - self.probs)

    @property
    def mean(self) -> Tensor:
        """(N, labels) `probs`."""
        return self.probs

    @property
    def std(self) -> Tensor:
        """(N, labels) standard deviation of the 0 or 1, sqrt(p (1 - p))."""
        return (self.probs * (1 - self.probs)).sqrt()

    def _device(self) -> torch.device:
        return self.probs.device

    def _drawn(self, number: int) -> Tensor:
        """Labels of one network each if samples were kept, which ties them; else one by one."""
        if self.samples is None:
            return torch.bernoulli(self.probs.expand(number, *self.probs.shape)).long()
        pick = _pick(number, self.samples, self.is_single)
        return torch.bernoulli(pick(self.samples)).long()


@dataclass(frozen=True)
class ValuePrediction(Prediction):
    """A prediction of numbers: the mixture over samples s of what each network says.

    The parts are Gaussians, Student's t, Poisson or negative binomial, by the likelihood. By the
    law of total variance std^2 = aleatoric + epistemic = E_s Var[y | s] + Var_s E[y | s]. By one
    pass or moments, parts that are Gaussians hold both, around the mean.

    Attributes:
        mean: (N, outputs) mean of the mixture.
        std: (N, outputs) its standard deviation.
        aleatoric: (N, outputs) mean variance of a target given the network: the observation noise.
        epistemic: (N, outputs) variance of the samples' means, unbiased.
        samples: (S, N, outputs) these means, of one network each.
        parts: the S distributions of each target.
    """

    mean: Tensor
    std: Tensor
    aleatoric: Tensor
    epistemic: Tensor
    samples: Tensor
    parts: TargetDistribution
    is_single: bool = False

    @property
    def variance(self) -> Tensor:
        """(N, outputs) variance of the mixture."""
        return self.std.square()

    def cdf(self, value: Tensor) -> Tensor:
        """P(y <= value) under the mixture."""
        return self.parts.cdf(value).mean(0)

    def rank(self, value: Tensor) -> Tensor:
        """P(y < value) + P(y = value) / 2: the CDF; of counts, the middle of its step."""
        below = self.cdf(value)
        return (below + self.cdf(value - 1)) / 2 if self.parts.is_whole else below

    def interval(self, coverage: float | None = None) -> tuple[Tensor, Tensor]:
        """The central interval that holds this share of the probability, as (low, high).

        None: the interval that `conformal` promised, mean +- threshold * std; else 0.9. Counts have
        whole bounds, both inside, that hold at least this share.
        """
        if coverage is None and self.conformal is not None:
            return self._promised_interval(self._promise(self.conformal).threshold)
        self._warn_if_tempered()
        coverage = 0.9 if coverage is None else coverage
        if not isinstance(coverage, float) or not 0 < coverage < 1:
            raise PocketBayesError(f"coverage must be a number between 0 and 1; got {coverage!r}")
        return self.central_interval(coverage)

    def central_interval(self, coverage: float) -> tuple[Tensor, Tensor]:
        """The interval with as much probability below as above, whatever beta."""
        tail = (1 - coverage) / 2
        quantile = self._whole_quantile if self.parts.is_whole else self._quantile
        return quantile(tail), quantile(1 - tail)

    def _warn_if_tempered(self) -> None:
        if self.beta is not None and 0 < self.beta < _TEMPERED and self.epistemic.any():
            warn(
                f"this posterior was trained with beta {self.beta:g}: it is narrower than Bayes' "
                "and intervals may hold less than they say. Train with beta=1, or calibrate them "
                "by pb.conformal(model, held_out_loader)",
            )

    def _promised_interval(self, threshold: Tensor) -> tuple[Tensor, Tensor]:
        if not self.parts.is_whole:
            reach = threshold.to(self.std) * self.std
            return self.mean - reach, self.mean + reach
        mean = self.mean.double()
        reach = threshold.to(mean) * self.std.double() + 1e-9 * (1 + mean)  # bounds are often met
        nearest = mean.round()
        low = torch.minimum((mean - reach).ceil().clamp_min(0), nearest)
        high = torch.maximum((mean + reach).floor(), nearest)
        return low.to(self.mean), high.to(self.mean)

    def _bracket(self, share: float) -> tuple[Tensor, Tensor]:
        """Where the quantile must lie, by Cantelli's inequality."""
        odds = math.sqrt(share / (1 - share))
        return self.mean - self.std / odds, self.mean + self.std * odds

    def _quantile(self, share: float) -> Tensor:
        """Bisection on the mixture's CDF, to a ten-millionth of its std."""
        low, high = self._bracket(share)
        for _ in range(math.ceil(math.log2(1e7 / math.sqrt(share * (1 - share))))):
            middle = (low + high) / 2
            below = self.cdf(middle) < share
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return (low + high) / 2

    def _whole_quantile(self, share: float) -> Tensor:
        """The least count c with P(y <= c) >= share, by bisection."""
        high = self._bracket(share)[1].double().ceil() + 1
        low = torch.full_like(high, -1)
        for _ in range(64):  # beyond 2^53 the distance never comes down to 1
            if not (high - low > 1).any():
                break
            middle = ((low + high) / 2).floor()
            below = self.cdf(middle) < share
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return high.to(self.mean.dtype)

    def _device(self) -> torch.device:
        return self.mean.device

    def _drawn(self, number: int) -> Tensor:
        """Each from one of the parts; all outputs of an example are of the same one."""
        return self.parts.mapped(_pick(number, self.samples, self.is_single)).sample()


def _pick(number: int, samples: Tensor, is_single: bool) -> Callable[[Tensor], Tensor]:
    """Takes (S, N, ...) to (number, N, ...): for each example samples that are chosen here."""
    count, device = len(samples), samples.device
    if is_single:
        several = torch.randint(count, (number,), device=device)
        return lambda values: values[several]
    places = torch.arange(samples.shape[1], device=device)
    chosen = torch.randint(count, (number, len(places)), device=device)
    return lambda values: values[chosen, places]
