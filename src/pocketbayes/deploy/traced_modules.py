"""What is exported: the library's own way to predict, as modules that a tracer can follow."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from pocketbayes.deploy.counted_numbers import CountedNumbers
from pocketbayes.layers import Inputs, describe, dropout_modules, members_of, run, set_estimator
from pocketbayes.likelihoods import Likelihood, Normal
from pocketbayes.posteriors import Drawing
from pocketbayes.prediction import (
    ClassPrediction,
    Conformal,
    LabelPrediction,
    Prediction,
    ValuePrediction,
    has_gaussian_outputs,
    moment_draws,
    one_pass_draws,
    summarised,
)

_PARTS, _ROUNDS = 17, 5  # of an interval's search, to a 200,000th of a std


def _inputs(tensors: Sequence[Tensor], names: Sequence[str] | None) -> Inputs:
    """As the network is called."""
    if names is not None:
        return dict(zip(names, tensors, strict=True))
    return tensors[0] if len(tensors) == 1 else tuple(tensors)


class OutputDraws(nn.Module):
    """(S, N, ...) outputs by an estimator that draws nothing of the network."""

    def __init__(
        self, model: nn.Module, estimator: str, num_samples: int, names: Sequence[str] | None
    ) -> None:
        super().__init__()
        self.model, self._estimator, self._num_samples = model, estimator, num_samples
        self._names = names
        if estimator != "moments":
            set_estimator(model, "mean")
        elif describe(model).keeps_dropout:
            for module in dropout_modules(model):
                module.training = True

    def forward(self, *tensors: Tensor) -> Tensor:
        """Of a batch."""
        x = _inputs(tensors, self._names)
        if self._estimator == "one_pass":
            return one_pass_draws(self.model, x, self._num_samples)
        if self._estimator == "moments":
            return moment_draws(self.model, x, self._num_samples)
        return torch.stack([run(member, x).float() for member in members_of(self.model)])


class OneDraw(nn.Module):
    """(N, ...) outputs of one draw: a function of inputs, seed and the number of the draw."""

    def __init__(self, model: nn.Module, estimator: str, names: Sequence[str] | None) -> None:
        super().__init__()
        self.model, self._estimator, self._names = model, estimator, names

    def forward(self, *tensors: Tensor) -> Tensor:
        """The last two tensors are seed and number, whole numbers without axes."""
        *inputs, seed, number = tensors
        x = _inputs(inputs, self._names)
        drawing = Drawing(self._estimator, 0)
        drawing.maker = CountedNumbers(seed.reshape(1), number.reshape(1))
        with drawing.here():
            return run(self.model, x).float()


class Answers(nn.Module):
    """What `predict` tells of (S, N, ...) outputs, as a tuple of tensors with `names`."""

    def __init__(
        self,
        model: nn.Module,
        likelihood: Likelihood,
        learned: dict[str, Tensor],
        estimator: str,
        level: float | None,
    ) -> None:
        super().__init__()
        known = describe(model)
        self._likelihood, self._temperature = likelihood, known.temperature
        self._is_gaussian = has_gaussian_outputs(model, estimator)
        promised = None if known.conformal is None else Conformal.from_facts(known.conformal)
        self._conformal, self._level = promised if level is None else None, level or 0.9
        self._learned = tuple(learned)
        for name, value in learned.items():
            self.register_buffer(name, value)
        self.names = list[str]()  # known when it has run

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """All that there is to tell, of the one tensor with draws."""
        (draws,) = tensors
        learned = {name: getattr(self, name) for name in self._learned}
        found = summarised(
            self._likelihood, draws, learned, self._temperature, "probs", False, self._is_gaussian
        )
        told = self._told(replace(found, conformal=self._conformal))
        self.names = list(told)
        return tuple(told.values())

    def _told(self, found: Prediction) -> dict[str, Tensor]:
        if isinstance(found, ValuePrediction):
            return self._of_values(found)
        assert isinstance(found, ClassPrediction | LabelPrediction)
        names = ("probs", "entropy", "aleatoric", "epistemic", "label")
        told = {name: getattr(found, name) for name in names}
        if isinstance(found, ClassPrediction) and found.conformal is not None:
            told["prediction_set"] = found.prediction_set
        return told

    def _of_values(self, found: ValuePrediction) -> dict[str, Tensor]:
        told = {name: getattr(found, name) for name in ("mean", "std", "aleatoric", "epistemic")}
        if found.conformal is not None:
            told["lower"], told["upper"] = found.interval()
        elif isinstance(found.parts, Normal):
            told["lower"], told["upper"] = self._interval(found, found.parts)
        return told

    def _interval(self, found: ValuePrediction, parts: Normal) -> tuple[Tensor, Tensor]:
        """The central interval; of one Gaussian mean -+ z std, else by search on the CDF.

        Draws that stand for a Gaussian have one predictive if they also have one noise.
        """
        tail = (1 - self._level) / 2
        if len(parts.mean) == 1 or (self._is_gaussian and self._learned):
            reach = torch.special.ndtri(torch.tensor(1 - tail)).item() * parts.std[0]
            return found.mean - reach, found.mean + reach
        ones = (1,) * found.mean.dim()
        share = torch.tensor([tail, 1 - tail]).view(2, *ones)
        inside = torch.arange(1, _PARTS).view(-1, *ones) / _PARTS
        odds = math.sqrt(tail / (1 - tail))  # where quantiles must lie, by Cantelli's inequality
        low = torch.stack([found.mean - found.std / odds, found.mean - found.std * odds])
        width = found.std * ((1 / odds + odds) / _PARTS)
        for _ in range(_ROUNDS):
            points = low.unsqueeze(1) + width * _PARTS * inside
            below = parts.cdf(points.unsqueeze(2)).mean(2) < share.unsqueeze(1)
            low, width = low + below.sum(1) * width, width / _PARTS
        lower, upper = (low + width * _PARTS / 2).unbind()
        return lower, upper


class Together(nn.Module):
    """Inputs to answers in one graph."""

    def __init__(self, draws: OutputDraws, answers: Answers) -> None:
        super().__init__()
        self.draws, self.answers = draws, answers

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """All answers."""
        found: tuple[Tensor, ...] = self.answers(self.draws(*tensors))
        return found
