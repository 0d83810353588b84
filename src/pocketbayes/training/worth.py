"""Whether training came to anything: the network's NLL beside that of the best constant."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from pocketbayes.errors import warn
from pocketbayes.layers import Inputs, drawing_by, named_tensors
from pocketbayes.likelihoods import Likelihood, Objective, moments
from pocketbayes.training.batches import Batches

_AT_ONCE = 1 << 16  # numbers that wait to be added up: each time waits for the device
_MARGIN = 0.25  # nats for each target, or half of the constant's NLL if that is less
_LEAST_MARGIN = 0.02  # nats for each target
_READ_AGAIN = 8  # batches
_LEAST_STEPS, _FEW_STEPS = 50, 200  # before these nothing is judged; nor the learning rate
_FAR = 10.0  # from mean 0 and std 1


class Targets:
    """What the targets of the last epoch add up to, all of them."""

    def __init__(self, likelihood: Likelihood) -> None:
        self.likelihood = likelihood
        self._begin(-1)

    def _begin(self, epoch: int) -> None:
        self.epoch, self.examples, self.counted = epoch, 0, 0
        self.sums: Tensor | None = None
        self.waiting, self.numbers = list[Tensor](), 0

    def add(self, epoch: int, target: Tensor) -> None:
        """Takes those of a batch; of an earlier epoch none are kept."""
        if epoch != self.epoch:
            self._begin(epoch)
        self.waiting.append(target.detach().clone())
        self.numbers += target.numel()
        if self.numbers >= _AT_ONCE:
            self.total()

    def total(self) -> Tensor | None:
        """The likelihood's sums of them; None if there are none."""
        alike = len({target.shape[1:] for target in self.waiting}) == 1
        for target in [torch.cat(self.waiting)] if alike else self.waiting:
            self.examples += len(target)
            self.counted += self.likelihood.num_targets(target)
            self.sums = _added(self.sums, self.likelihood.sums(target))
        self.waiting, self.numbers = [], 0
        return self.sums

    def by_constant(self, best_for: Tensor) -> tuple[float, float]:
        """NLL of an example by the best constant for those sums, and how much worse is no fault."""
        sums = self.total()
        if sums is None:
            return torch.nan, torch.nan
        nll = float(self.likelihood.constant_nll(sums, best_for)) / self.examples
        each = self.counted / self.examples
        if self.likelihood.is_standardised:  # an NLL that has no zero
            return nll, _MARGIN * each
        return nll, min(_MARGIN * each, max(_LEAST_MARGIN * each, nll / 2))


def _added(one: Tensor | None, other: Tensor) -> Tensor:
    """NaN if places of values differ; of classes, some batches have more than others."""
    if one is None:
        return other
    if one.dim() == other.dim() == 1:
        most = max(len(one), len(other))
        one, other = (F.pad(part, (0, most - len(part))) for part in (one, other))
    return one + other if one.shape == other.shape else torch.full_like(one, torch.nan)


class Compared(NamedTuple):
    """NLLs of an example: by draws, by the means of the weights, by the best constant.

    And how large inputs are: the largest mean or std of one.
    """

    drawn: float
    mean: float
    constant: float
    margin: float
    inputs_are_alike: bool
    inputs_size: float


def warn_if_worthless(
    objective: Objective,
    batches: Batches,
    targets: Targets,
    rows: Sequence[Mapping[str, Any]],
) -> None:
    """Says so if the network predicts its training data worse than a constant does.

    Pure noise ends near the constant, from above or below, and is no fault: only what is worse by
    0.25 nats for each target (or half of the constant's NLL, but at least 0.02) counts, in training
    and once more by the finished model. The last of `rows` is of the epoch whose model it is.
    """
    sums, likelihood = targets.total(), objective.likelihood
    if not rows or rows[-1]["step"] < _LEAST_STEPS or sums is None:
        return
    with torch.no_grad():
        if rows[-1]["nll"] <= sum(targets.by_constant(sums)):
            return
        found = _looked_at_again(objective, batches.epoch(rows[-1]["epoch"]), sums)
    if found is not None and _is_worse(found.drawn, found.constant + found.margin):
        what = "the class frequencies" if likelihood.kind == "classes" else "a constant"
        cause = _cause_in_targets(likelihood, sums) or _cause(found, rows)
        warn(
            f"training came to nothing: the NLL of a training example is {found.drawn:.4g}, that "
            f"of {what} alone {found.constant:.4g}. {cause}"
        )


def _is_worse(nll: float, bound: float) -> bool:
    """An NLL that is no number is; where there is no bound, nothing is."""
    return not math.isnan(bound) and not nll <= bound


def _looked_at_again(
    objective: Objective, batches: Iterator[tuple[int, Inputs, Tensor]], sums: Tensor
) -> Compared | None:
    """The finished model beside the constant, on the first batches; None: there are no more."""
    model, seen = objective.model, Targets(objective.likelihood)
    drawn, mean, alike, size = 0.0, 0.0, True, 0.0
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        for _, x, y in islice(batches, _READ_AGAIN):
            without_kl = torch.zeros((), device=y.device)
            drawn += len(y) * float(objective(x, y, without_kl)[0])
            with drawing_by(model, "mean"):
                mean += len(y) * float(objective(x, y, without_kl)[0])
            seen.add(0, y)
            alike, size = alike and _are_alike(x), max(size, _size(x))
    except Exception:  # a stream that has ended, say: then nothing is known
        return None
    finally:
        for module, mode in modes.items():
            module.training = mode
    by_constant = seen.by_constant(sums)
    count = max(seen.examples, 1)
    return Compared(drawn / count, mean / count, *by_constant, alike, size)


def _are_alike(x: Inputs) -> bool:
    tensors = [tensor for _, tensor in named_tensors(x)]
    return all(len(t) > 1 and bool((t == t[:1]).all()) for t in tensors)


def _size(x: Inputs) -> float:
    """The largest mean or std of an input; whole numbers and masks are none."""
    real = [t.float() for _, t in named_tensors(x) if t.is_floating_point() and t.isfinite().all()]
    sizes = [part.abs().max() for t in real for part in torch.std_mean(t, 0, correction=0)]
    return max(map(float, sizes), default=0.0)


def _cause_in_targets(likelihood: Likelihood, sums: Tensor) -> str | None:
    """What to do if values are far from mean 0 and std 1; None: they are not."""
    if not likelihood.is_standardised:
        return None
    for mean, std in torch.stack(moments(sums)).flatten(1).T.tolist():
        if abs(mean) > _FAR or not 1 / _FAR < std < _FAR:
            return f"Targets have mean {mean:.3g} and std {std:.3g}: standardise the targets"
    return None


def _cause(found: Compared, rows: Sequence[Mapping[str, Any]]) -> str:
    """What else is the likely cause, and what to do."""
    least = min(rows, key=lambda row: float(row["nll"]))
    if found.inputs_are_alike:
        return "All inputs are the same: look at how they are read and scaled"
    if found.inputs_size > _FAR:
        return (
            f"Inputs have means or stds up to {found.inputs_size:.3g}: standardise the inputs, or "
            "lower the learning rate"
        )
    if found.mean <= found.constant + found.margin:
        return (
            "By the means of the weights alone it would do: their stds drown what they know. Lower "
            "beta or prior_std, or train for longer"
        )
    if least["nll"] + found.margin < rows[-1]["nll"] and rows[-1]["step"] > _FEW_STEPS:
        return (
            f"It was {least['nll']:.4g} after epoch {least['epoch']}: lower the learning rate, or "
            "set clip_norm"
        )
    return (
        f"It had {rows[-1]['step']} steps at learning rates up to "
        f"{max(row['lr'] for row in rows):.3g}: lower that, train for longer or lower beta, and "
        "see that inputs belong to their targets"
    )
