"""Whether training came to anything: the network's NLL beside that of the best constant."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pocketbayes.errors import warn
from pocketbayes.layers import Inputs, drawing_by, named_tensors
from pocketbayes.likelihoods import CountLikelihood, Likelihood, Objective
from pocketbayes.training.batches import Batches

_EXAMPLES, _NUMBERS = 4096, 1 << 20  # of targets that are remembered in an epoch, about
_MARGIN = 0.25  # nats for each target, or half of the constant's NLL if that is less
_READ_AGAIN = 8  # batches
_LEAST_STEPS, _FEW_STEPS = 50, 200  # before these nothing is judged; nor the learning rate


class Targets:
    """Some of every batch of the last epoch."""

    def __init__(self, batches: int | None) -> None:
        self.share = -(-_EXAMPLES // max(1, batches or 64))
        self.epoch, self.found, self.numbers = -1, list[Tensor](), 0

    def add(self, epoch: int, target: Tensor) -> None:
        """Takes the first targets of a batch; of an earlier epoch none are kept."""
        if epoch != self.epoch:
            self.epoch, self.found, self.numbers = epoch, [], 0
        part = target[: self.share]
        self.numbers += part.numel()
        if self.numbers <= _NUMBERS:
            self.found.append(part.clone())

    def together(self) -> Tensor | None:
        """All of them; None if they would not fit or differ in shape."""
        alike = len({part.shape[1:] for part in self.found}) == 1
        return torch.cat(self.found) if alike and self.numbers <= _NUMBERS else None


class Compared(NamedTuple):
    """NLLs of an example: by draws, by the means of the weights, by the best constant."""

    drawn: float
    mean: float
    constant: float
    margin: float
    inputs_are_alike: bool


def warn_if_worthless(
    objective: Objective,
    batches: Batches,
    targets: Targets,
    rows: Sequence[Mapping[str, Any]],
) -> None:
    """Says so if the network predicts its training data worse than a constant does.

    Pure noise ends near the constant, from above or below, and is no fault: only what is worse by
    0.25 nats for each target (or half of the constant's NLL) counts, in training and once more by
    the finished model. The last of `rows` is of the epoch whose model it is.
    """
    y, likelihood = targets.together(), objective.likelihood
    if not rows or rows[-1]["step"] < _LEAST_STEPS or y is None:
        return
    with torch.no_grad():
        output, learned = best_constant(likelihood, y)
        limit = _nll(likelihood, output, y, learned) + margin_of(likelihood, output, y, learned)
        if rows[-1]["nll"] <= limit:
            return
        again = batches.epoch(rows[-1]["epoch"])
        found = _looked_at_again(objective, again, output, learned)
    if found is not None and found.drawn > found.constant + found.margin:
        what = "the class frequencies" if likelihood.kind == "classes" else "the best constant"
        warn(
            f"training came to nothing: the NLL of a training example is {found.drawn:.4g}, that "
            f"of {what} alone {found.constant:.4g}. {_cause(found, rows)}"
        )


def best_constant(likelihood: Likelihood, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """(1, ...) the output that is best for all of them, and the noise that suits it."""
    shape = list(target.shape)
    if likelihood.kind == "classes" and not target.is_floating_point():
        shape.insert(1, int(target.max().clamp_min(1)) + 1)
    elif likelihood.outputs_per_target == 2:
        shape = [*shape, 1][:2] + shape[2:]
        shape[1] *= 2
    like = torch.zeros(shape, device=target.device)
    constant = likelihood.constant(like, target)
    return constant, likelihood.start(constant.expand(like.shape), target)


def margin_of(
    likelihood: Likelihood, output: Tensor, target: Tensor, learned: Mapping[str, Tensor]
) -> float:
    """By how many nats an example may be worse before anything is said."""
    each = likelihood.num_targets(target) / len(target)
    if likelihood.kind == "values" and not isinstance(likelihood, CountLikelihood):
        return _MARGIN * each
    return min(_MARGIN * each, _nll(likelihood, output, target, learned) / 2)


def _nll(
    likelihood: Likelihood, constant: Tensor, target: Tensor, learned: Mapping[str, Tensor]
) -> float:
    is_label = likelihood.kind == "classes" and not target.is_floating_point()
    places = target.shape[1:] if is_label else target.shape[2:]
    whole = (len(target), *constant.shape[1:2], *(places if constant.dim() > 2 else ()))
    output = constant.expand(whole)
    return float(likelihood.nll(output, target, learned)[0])


def _looked_at_again(
    objective: Objective,
    batches: Iterator[tuple[int, Inputs, Tensor]],
    best: Tensor,
    learned: Mapping[str, Tensor],
) -> Compared | None:
    """The finished model beside the constant, on the first batches; None: there are no more."""
    likelihood, model = objective.likelihood, objective.model
    sums, alike = torch.zeros(5), True
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        for _, x, y in islice(batches, _READ_AGAIN):
            without_kl = torch.zeros((), device=y.device)
            by_draws = objective(x, y, without_kl)[0]
            with drawing_by(model, "mean"):
                by_means = objective(x, y, without_kl)[0]
            plain = _nll(likelihood, best, y, learned)
            most = margin_of(likelihood, best, y, learned)
            found = torch.tensor([float(by_draws), float(by_means), plain, most, 1.0])
            sums += len(y) * found
            alike = alike and _are_alike(x)
    except Exception:  # a stream that has ended, say: then nothing is known
        return None
    finally:
        for module, mode in modes.items():
            module.training = mode
    drawn, mean, constant, margin, _ = (sums / sums[4].clamp_min(1)).tolist()
    return Compared(drawn, mean, constant, margin, alike)


def _are_alike(x: Inputs) -> bool:
    tensors = [tensor for _, tensor in named_tensors(x)]
    return all(len(t) > 1 and bool((t == t[:1]).all()) for t in tensors)


def _cause(found: Compared, rows: Sequence[Mapping[str, Any]]) -> str:
    """What is the likely cause, and what to do."""
    least = min(rows, key=lambda row: float(row["nll"]))
    if found.inputs_are_alike:
        return "All inputs are the same: look at how they are read and scaled"
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
        "see that inputs are scaled and belong to their targets"
    )
