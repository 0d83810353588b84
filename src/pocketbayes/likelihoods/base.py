"""What a likelihood is: how targets are spread around what the network says."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar

import torch
from torch import Tensor

from pocketbayes.errors import DataError
from pocketbayes.likelihoods.distributions import TargetDistribution

Learned = Mapping[str, Tensor]
_ROUNDING = 1e-12  # of a variance in float64, beside the mean square
_STEPS = 200  # of L-BFGS, which ends by itself before that


class Likelihood(ABC):
    """p(target | output of the network, learned parameters).

    Attributes:
        name: as users write it.
        kind: "classes", "labels" (several at once) or "values" (counts, too).
        score: what training shows beside the loss, "accuracy" or "rmse".
        learned: names of the parameters that are learned beside the weights, one number per target,
            each on a log scale.
        outputs_per_target: how many numbers the network gives for each target.
        is_standardised: whether targets may be shifted and scaled to mean 0 and std 1.
    """

    name: ClassVar[str]
    kind: ClassVar[str] = "values"
    score: ClassVar[str] = "rmse"
    learned: ClassVar[tuple[str, ...]] = ()
    outputs_per_target: ClassVar[int] = 1
    is_standardised: ClassVar[bool] = False

    @abstractmethod
    def nll(self, output: Tensor, target: Tensor, learned: Learned) -> tuple[Tensor, Tensor]:
        """Mean over examples of -log p(target), and the score: accuracy or squared error.

        An example's targets add up. A target that is impossible makes the result NaN, which needs
        no wait for the device; `complaint` then says what is wrong.
        """

    def complaint(self, output: Tensor, target: Tensor) -> str | None:
        """What is wrong with the values of these targets, and what to do; None: nothing."""
        return None

    def require_possible(self, output: Tensor, target: Tensor) -> None:
        """An error if a target's value is impossible; waits for the device."""
        wrong = self.complaint(output, target)
        if wrong is not None:
            raise DataError(wrong)

    def start(self, output: Tensor, target: Tensor) -> dict[str, Tensor]:
        """The learned parameters to begin with, from a first batch."""
        return {}

    @abstractmethod
    def constant(self, output: Tensor, target: Tensor) -> Tensor:
        """(1, ...) the best output that is the same for every example, or nearly the best."""

    @abstractmethod
    def sums(self, target: Tensor) -> Tensor:
        """Sums over a batch's examples that tell the best constant; over batches they add up."""

    @abstractmethod
    def constant_nll(self, sums: Tensor, best_for: Tensor) -> Tensor:
        """-log p of all targets with these sums, by the best constant for those of `best_for`.

        Where that would take more than sums, by a simpler constant, which is a bit worse.
        """

    def num_targets(self, target: Tensor) -> int:
        """How many of them count."""
        return target.numel()

    def unlearned(self, output: Tensor) -> dict[str, Tensor]:
        """The parameters of a model that has learned none: next to no noise."""
        return {}

    def fitted(self, batches: Iterable[tuple[Tensor, Tensor]], begin: Learned) -> dict[str, Tensor]:
        """The learned parameters that maximise the mean log-likelihood over draws and examples.

        Args:
            batches: (S, N, ...) outputs of S draws for N examples, with their targets.
            begin: where to begin from.
        """
        return {}


class ValueLikelihood(Likelihood):
    """A likelihood of numbers, by their distribution given an output."""

    is_standardised = True

    @abstractmethod
    def distribution(self, output: Tensor, learned: Learned, dim: int = 1) -> TargetDistribution:
        """The distribution of the targets; `dim` is the one of outputs, 2 for (S, N, ...)."""

    def nll(self, output: Tensor, target: Tensor, learned: Learned) -> tuple[Tensor, Tensor]:
        """Mean over examples of -log p(target), and the mean squared error."""
        found = self.distribution(at_least_float32(output), learned)
        y = self.matched(output, target).to(found.location.dtype)
        score = (y - found.location.detach()).square().mean()
        return -found.log_prob(y).sum() / len(output), score

    def constant(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean of each target."""
        return self.matched(output, target).float().mean(0, keepdim=True)

    def sums(self, target: Tensor) -> Tensor:
        """(3, ...) of 1, y and y^2."""
        y = target.double()
        return torch.stack([torch.ones_like(y), y, y.square()]).sum(1)

    def constant_nll(self, sums: Tensor, best_for: Tensor) -> Tensor:
        """As of a Gaussian with their mean and std."""
        (count, total, squares), (mean, std) = sums, moments(best_for)
        errors = (squares - 2 * mean * total + count * mean.square()) / std.square()
        each: Tensor = count * (std.log() + math.log(2 * math.pi) / 2) + errors / 2
        return each.sum()

    def matched(self, output: Tensor, target: Tensor) -> Tensor:
        """The target in the shape of the means."""
        return matched_target(output, target)

    def fitted(self, batches: Iterable[tuple[Tensor, Tensor]], begin: Learned) -> dict[str, Tensor]:
        """By L-BFGS in float64, on all batches at once."""
        pairs = list(batches)
        if not self.learned:
            return {}
        outputs = torch.cat([draws for draws, _ in pairs], 1).double()
        targets = torch.cat([self.matched(draws[0], y) for draws, y in pairs]).double()
        found = {n: p.detach().double().clone().requires_grad_() for n, p in begin.items()}
        search = torch.optim.LBFGS(
            found.values(), max_iter=_STEPS, line_search_fn="strong_wolfe", tolerance_change=1e-12
        )

        def loss() -> Tensor:
            search.zero_grad()
            nll = -self.distribution(outputs, found, dim=2).log_prob(targets).mean()
            nll.backward()  # type: ignore[no-untyped-call]
            return nll

        with torch.enable_grad():
            search.step(loss)  # type: ignore[no-untyped-call]
        return {name: value.detach() for name, value in found.items()}


class CountLikelihood(ValueLikelihood):
    """A likelihood of 0, 1, 2, ..."""

    is_standardised = False

    def constant(self, output: Tensor, target: Tensor) -> Tensor:
        """The log of the mean count; where all are 0, as of one half."""
        total = self.matched(output, target).float().sum(0, keepdim=True)
        return (total.clamp_min(0.5) / len(target)).log()

    def sums(self, target: Tensor) -> Tensor:
        """(3, ...) of 1, y and log y!."""
        y = target.double()
        return torch.stack([torch.ones_like(y), y, (y + 1).lgamma()]).sum(1)

    def constant_nll(self, sums: Tensor, best_for: Tensor) -> Tensor:
        """As of a Poisson with their mean."""
        rate = mean_count(best_for)
        return (sums[0] * rate - sums[1] * rate.log() + sums[2]).sum()

    def nll(self, output: Tensor, target: Tensor, learned: Learned) -> tuple[Tensor, Tensor]:
        """As of values; NaN if a target is no count."""
        nll, score = super().nll(output, target, learned)
        return torch.where(_no_counts(target).any(), torch.nan, nll), score

    def complaint(self, output: Tensor, target: Tensor) -> str | None:
        """The first target that is no count."""
        wrong = target[_no_counts(target)]
        if not len(wrong):
            return None
        return (
            f"target {float(wrong[0]):g} is no count: {self.name} needs whole numbers from 0 on, "
            'not standardised; for other numbers use likelihood="gaussian" or "student-t"'
        )


def _no_counts(target: Tensor) -> Tensor:
    if not target.is_floating_point():
        return target < 0
    return (target < 0) | (target != target.floor()) | target.isinf()


def matched_target(output: Tensor, target: Tensor) -> Tensor:
    """The target in the output's shape: (batch,) goes with (batch, 1), and nothing broadcasts."""
    if output.shape == (*target.shape, 1):
        return target.unsqueeze(-1)
    if output.shape != target.shape:
        raise DataError(
            f"the model's output is {tuple(output.shape)}, the target is {tuple(target.shape)}; "
            "this likelihood needs them equal, or (batch, 1) and (batch,)"
        )
    return target


def moments(sums: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and std of each value, from sums of 1, y and y^2; a std of 1 where there is none."""
    mean, square = sums[1] / sums[0], sums[2] / sums[0]
    variance = square - mean.square()
    return mean, variance.where(variance > _ROUNDING * square, 1.0).sqrt()


def mean_count(sums: Tensor) -> Tensor:
    """Of each count, from sums of 1 and y; where all are 0, as of one half."""
    return sums[1].clamp_min(0.5) / sums[0]


def at_least_float32(output: Tensor) -> Tensor:
    """Half precision as float32, all else as it is."""
    return output.to(torch.promote_types(output.dtype, torch.float32))


def spread_of(target: Tensor) -> Tensor:
    """The std of each target over a batch; 1 where there is none."""
    spread = target.std(0, correction=0)
    return torch.where(spread.isfinite() & (spread > 0), spread, 1.0)
