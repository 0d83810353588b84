"""Gradients at weights: of a batch, also where none is there, or their mean size over the data."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from pocketbayes.layers import Inputs, drawing_by, named_posteriors
from pocketbayes.likelihoods import Objective
from pocketbayes.methods import averaged
from pocketbayes.posteriors import Packed, is_trainable


def dense_gradients(
    objective: Objective, x: Inputs, y: Tensor, estimator: str | None = None
) -> dict[str, Tensor]:
    """d nll / d w of each sparse posterior that learns, by name, as a dense tensor.

    It is the mean over all processes.

    Args:
        objective: the loss, not compiled; its KL, which knows the support only, is left out.
        x: inputs of one batch.
        y: its targets.
        estimator: how weights are drawn; None: as in training, "mean": at their means.

    Buffers (running statistics) are kept as they
    were, and no parameter receives a gradient.
    """
    packed = {
        name: q
        for name, q in named_posteriors(objective.model)
        if isinstance(q, Packed) and is_trainable(q)
    }
    with ExitStack() as stack:
        stack.enter_context(kept_buffers(objective.model))
        stack.enter_context(drawing_by(objective.model, estimator))
        read = {name: stack.enter_context(q.recorded()) for name, q in packed.items()}
        loss, _ = objective(x, y, torch.zeros((), device=y.device))
        tensors = [dense for tensors in read.values() for dense in tensors if dense.requires_grad]
        with torch.autocast(y.device.type, enabled=False):  # backward runs in forward's types
            found = torch.autograd.grad(loss, tensors, allow_unused=True) if tensors else ()
    by_tensor = dict(zip(map(id, tensors), found, strict=True))
    return {
        name: averaged(_total(packed[name], [by_tensor.get(id(t)) for t in tensors]))
        for name, tensors in read.items()
    }


def weighted_mean(found: Sequence[dict[str, Tensor]], shares: Sequence[float]) -> dict[str, Tensor]:
    """Of gradients of several batches, each with its share of the examples."""
    if len(found) == 1:
        return found[0]
    total = dict[str, Tensor]()
    for each, share in zip(found, shares, strict=True):
        for name, gradient in each.items():
            total[name] = share * gradient + total.get(name, 0)
    return total


def mean_sizes(objective: Objective, batches: Iterable[tuple[Inputs, Tensor]]) -> dict[str, Tensor]:
    """Mean over batches of |d nll / d mean| of each posterior that learns, by name.

    It is the mean over all processes; buffers and gradients stay as they were.
    """
    means = {
        name: mean
        for name, q in named_posteriors(objective.model)
        if isinstance(mean := getattr(q, "mean", None), nn.Parameter) and mean.requires_grad
    }
    totals = {name: torch.zeros_like(mean) for name, mean in means.items()}
    number = 0
    with kept_buffers(objective.model):
        for x, y in batches:
            loss, _ = objective(x, y, torch.zeros((), device=y.device))
            with torch.autocast(y.device.type, enabled=False):
                found = torch.autograd.grad(loss, list(means.values()), allow_unused=True)
            for name, gradient in zip(means, found, strict=True):
                totals[name] += 0 if gradient is None else gradient.abs()
            number += 1
    return {name: averaged(total / max(1, number)) for name, total in totals.items()}


def _total(posterior: Packed, gradients: list[Tensor | None]) -> Tensor:
    """The sum over all uses of a weight; zero if the loss did not read it."""
    total = posterior.mean.new_zeros(posterior.shape)
    for gradient in gradients:
        if gradient is not None:
            total += gradient
    return total


@contextmanager
def kept_buffers(model: nn.Module) -> Iterator[None]:
    """Whatever a pass inside does to buffers, afterwards they are as before."""
    kept = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        for buffer, value in kept:
            buffer.copy_(value)
