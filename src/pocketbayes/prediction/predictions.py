"""What a prediction holds: probabilities or values, and how much of the doubt is of which kind."""

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from pocketbayes.errors import PocketBayesError
from pocketbayes.prediction.calibration import Conformal


@dataclass(frozen=True)
class Prediction:
    """What a prediction of either kind has; N examples, S samples."""

    num_samples: int
    samples: Tensor | None

    def _promise(self, found: Conformal) -> Conformal:
        """What `conformal` found, with a warning if this prediction has other draws."""
        if found.num_samples != self.num_samples:
            warnings.warn(
                f"calibrated with {found.num_samples} draws, predicted with {self.num_samples}: "
                "the promised coverage is that of equal numbers",
                stacklevel=3,
            )
        return found


@dataclass(frozen=True)
class ClassPrediction(Prediction):
    """A categorical prediction. Entropies are in nats: entropy = aleatoric + epistemic.

    Attributes:
        probs: (N, classes) mean of the samples' probabilities.
        entropy: (N,) entropy of `probs`: all of the uncertainty.
        aleatoric: (N,) mean entropy of the samples: what no more data would remove.
        epistemic: (N,) mutual information of label and weights: what the model does not know.
        variance: (N, classes) variance of the samples' probabilities.
        samples: (S, N, classes) probabilities of each sample, with `keep_samples=True`.
    """

    probs: Tensor
    entropy: Tensor
    aleatoric: Tensor
    epistemic: Tensor
    variance: Tensor
    class_dim: int = 1
    conformal: Conformal | None = None

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


@dataclass(frozen=True)
class ValuePrediction(Prediction):
    """A real-valued prediction: the mixture of N(m_s, noise^2) over samples s.

    Attributes:
        mean: (N, outputs) mean of the mixture.
        std: (N, outputs) its standard deviation: std^2 = aleatoric + epistemic.
        aleatoric: (N, outputs) variance of the observation noise.
        epistemic: (N, outputs) variance of the samples' means.
        samples: (S, N, outputs) the means m_s.
    """

    mean: Tensor
    std: Tensor
    aleatoric: Tensor
    epistemic: Tensor
    samples: Tensor
    conformal: Conformal | None = None

    @property
    def variance(self) -> Tensor:
        """(N, outputs) variance of the mixture."""
        return self.std.square()

    def cdf(self, value: Tensor) -> Tensor:
        """P(y <= value) under the mixture; without noise, the share of samples below."""
        noise = self.aleatoric.sqrt()
        standard = (value - self.samples) / noise.clamp_min(torch.finfo(noise.dtype).tiny)
        below: Tensor = torch.special.ndtr(standard).mean(0)
        return below

    def interval(self, coverage: float | None = None) -> tuple[Tensor, Tensor]:
        """The central interval that holds this share of the probability, as (low, high).

        None: the interval that `conformal` promised, mean +- threshold * std; else 0.9.
        """
        if coverage is None and self.conformal is not None:
            threshold = self._promise(self.conformal).threshold
            reach = threshold.to(self.std) * self.std
            return self.mean - reach, self.mean + reach
        coverage = 0.9 if coverage is None else coverage
        if not isinstance(coverage, float) or not 0 < coverage < 1:
            raise PocketBayesError(f"coverage must be a number between 0 and 1; got {coverage!r}")
        tail = (1 - coverage) / 2
        return self._quantile(tail), self._quantile(1 - tail)

    def _quantile(self, share: float) -> Tensor:
        """Bisection on the mixture's CDF, between the extreme quantiles of its parts."""
        noise = self.aleatoric.sqrt()
        reach = noise * float(torch.special.ndtri(torch.tensor(share, dtype=torch.float64)))
        low, high = self.samples.amin(0) + reach, self.samples.amax(0) + reach
        for _ in range(60):
            middle = (low + high) / 2
            below = self.cdf(middle) < share
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return (low + high) / 2


def why_unsure(aleatoric: float, epistemic: float, pred: Prediction) -> str:
    """The larger part of the doubt and its share; one draw alone cannot tell the parts apart."""
    if pred.num_samples == 1:
        return "not known: a single network cannot tell"
    share = epistemic / max(aleatoric + epistemic, 1e-30)
    if share > 0.5:
        return f"{share:.0%} epistemic: its draws disagree"
    return f"{1 - share:.0%} aleatoric: its draws agree that it is ambiguous"
