"""The mathematics of calibration on held-out data: temperatures and conformal thresholds."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from pocketbayes.errors import DataError, PocketBayesError, require_number
from pocketbayes.likelihoods import TargetDistribution
from pocketbayes.prediction.scores import mixture_log_density

MOST_TEMPERATURE = 20.0
_STEPS = 80
DRAWN = frozenset(("lrt", "flipout", "weight"))


def temperatures() -> Tensor:
    """The candidates: from 1/20 to 20 in equal steps of the logarithm, 1 among them."""
    most = math.log(MOST_TEMPERATURE)
    return torch.linspace(-most, most, _STEPS + 1, dtype=torch.float64).exp()


def class_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """-sum_n log mean_s softmax(logits_sn / T)[label_n] at each candidate T; logits (S, N, C)."""
    logits = logits.double()
    chosen = labels.expand(len(logits), *labels.shape).unsqueeze(2)
    of_label = logits.gather(2, chosen).squeeze(2)
    losses = []
    for temperature in temperatures().tolist():
        log_probs = of_label / temperature - (logits / temperature).logsumexp(2)
        losses.append(-(log_probs.logsumexp(0) - math.log(len(logits))).sum())
    return torch.stack(losses).cpu()


def value_losses(parts: TargetDistribution, target: Tensor) -> Tensor:
    """-sum_n log density of the target, at each candidate factor on the predictive spread."""
    parts, target = parts.mapped(torch.Tensor.double), target.double()
    losses = []
    for factor in temperatures().tolist():
        losses.append(-mixture_log_density(parts.widened(factor).log_prob(target)).sum())
    return torch.stack(losses).cpu()


def best_temperature(losses: Tensor) -> float:
    """The minimiser of losses + log(T)^2 / 2, by a parabola in log T through the best candidate.

    The second term is that of a prior of a factor e around 1: it weighs as much as one example, and
    keeps a few examples that are all right from asking for certainty.
    """
    logs = temperatures().log()
    penalised = losses + logs.square() / 2
    if not penalised.isfinite().any():
        raise DataError("no temperature fits: look for NaN in the inputs, the targets or the model")
    best = int(torch.where(penalised.isfinite(), penalised, math.inf).argmin())
    if best in (0, len(logs) - 1):
        return float(logs[best].exp())
    left, middle, right = penalised[best - 1 : best + 2].tolist()
    bend = left - 2 * middle + right
    shift = (left - right) / (2 * bend) if math.isfinite(bend) and bend > 0 else 0.0
    return math.exp(float(logs[best]) + shift * float(logs[1] - logs[0]))


def conformal_rank(examples: int, level: float) -> int:
    """K = ceil((n + 1) level), with the level as it is written: 0.9 is 9/10."""
    return math.ceil((examples + 1) * Fraction(repr(float(level))))


def examples_needed(level: float) -> int:
    """The least n whose rank is at most n: ceil(level / (1 - level))."""
    share = Fraction(repr(float(level)))
    return math.ceil(share / (1 - share))


def conformal_threshold(scores: Tensor, level: float) -> Tensor:
    """The k-th smallest score of each column, k = ceil((n + 1) level).

    If a new score is exchangeable with these n, it is at most the threshold with a probability of
    at least `level` and, without ties, below level + 1 / (n + 1).
    """
    require_number(level, "level", above=0, most=1)
    if level == 1:
        raise PocketBayesError("level must be below 1: no finite data can promise certainty")
    if not scores.isfinite().all():
        raise DataError("a prediction or target is NaN or infinite: it cannot calibrate anything")
    rank = conformal_rank(len(scores), level)
    if rank > len(scores):
        raise DataError(
            f"{len(scores)} examples cannot promise a level of {level}: calibrate on at least "
            f"{examples_needed(level)}"
        )
    return scores.double().kthvalue(rank, dim=0).values


def class_scores(probs: Tensor, labels: Tensor) -> Tensor:
    """1 - p(label), the least ambiguous score (Sadinle et al. 2019); probs (N, classes)."""
    return 1 - probs.double().gather(1, labels.unsqueeze(1)).squeeze(1)


def value_scores(mean: Tensor, std: Tensor, target: Tensor) -> Tensor:
    """|target - mean| / std of each output."""
    return (target.double() - mean.double()).abs() / std.double()


@dataclass(frozen=True)
class Conformal:
    """What `conformal` found.

    Attributes:
        level: the promised probability of covering the truth.
        threshold: largest score that is covered; for values one of each output.
        examples: how many it was found on.
        num_samples: draws of the predictions then.
        estimator: how they were made; None: in a file from before that was kept.
        one_law: draws by "lrt", "flipout" and "weight" have the same law for each example.
    """

    level: float
    threshold: Tensor
    examples: int
    num_samples: int
    estimator: str | None = None
    one_law: bool = False

    def holds_for(self, estimator: str | None) -> bool:
        """Whether predictions by this one are as those were."""
        both = {self.estimator, estimator}
        alike = self.one_law and both <= DRAWN
        return None in both or len(both) == 1 or alike

    def to_facts(self) -> dict[str, Any]:
        """As JSON has it."""
        shape = list(self.threshold.shape)
        facts = {
            "level": self.level,
            "threshold": self.threshold.flatten().tolist(),
            "shape": shape,
            "examples": self.examples,
            "num_samples": self.num_samples,
        }
        return facts if self.estimator is None else facts | {"estimator": self.estimator}

    @classmethod
    def from_facts(cls, facts: dict[str, Any], one_law: bool | None = None) -> "Conformal":
        """From what `to_facts` gave, and what the description says beside it."""
        threshold = torch.tensor(facts["threshold"], dtype=torch.float64).reshape(facts["shape"])
        rest = {name: facts[name] for name in ("level", "examples", "num_samples")}
        by = facts.get("estimator")
        return cls(threshold=threshold, estimator=by, one_law=bool(one_law), **rest)
