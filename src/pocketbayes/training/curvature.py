"""How sharply the data determine each weight: the diagonal of the generalised Gauss-Newton."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap

from pocketbayes.errors import DataError, PocketBayesError
from pocketbayes.layers import (
    Inputs,
    bayesian_modules,
    called,
    drawing_by,
    explained_failure,
    mapped,
    named_posteriors,
    noise_log_std,
    num_examples,
    parts_of,
    posteriors_of,
    require_tensor,
    restored_mode,
    without_onednn,
)
from pocketbayes.likelihoods import curvature_root, directions, require_curvature
from pocketbayes.methods import averaged
from pocketbayes.prediction import evaluate

_NUMBERS_AT_ONCE = 2**24  # of gradients of single examples
Batches = Iterable[tuple[Inputs, Tensor]]
Gradients = dict[str, Tensor]


def curvatures(
    model: nn.Module, likelihood: str, batches: Batches, only_last: bool, most: int
) -> Gradients:
    """Mean over examples of diag(J^T H J) at each weight of points, by name of the posterior.

    J is the derivative of the mean network's output in evaluation mode, H the likelihood's
    curvature there: with S S^T = H, the sum over directions v of (J^T S v)^2.

    Args:
        model: a Bayesian model whose posteriors are points.
        likelihood: its likelihood.
        batches: pairs of inputs and targets; targets are not needed.
        only_last: only at weights of the Bayesian layer that runs last.
        most: directions for each example; exact with as many as an example has outputs, else an
            unbiased estimate.
    """
    require_curvature(likelihood)
    batches = iter(batches)
    first = next(batches, None)
    if first is None:
        raise DataError("the training loader is empty: it yielded no batch")
    with restored_mode(model), drawing_by(model, "mean"), _differentiable_in_evaluation(model):
        model.eval()
        known = dict(named_posteriors(model))
        names = _of_last_layer(model, next(parts_of(first[0], 1))) if only_last else list(known)
        paths = {id(p): path for path, p in model.named_parameters()}
        points: dict[str, Any] = {name: known[name] for name in names}
        means = {paths[id(q.mean)]: q.mean.detach() for q in points.values()}
        log_std = noise_log_std(model)
        fixed = None if log_std is None else log_std.detach()

        def squares(x: Inputs) -> Gradients:
            return _squares_of_one(model, means, x, likelihood, fixed, most)

        totals = _mean_over_examples(squares, means, chain([first], batches))
    return {name: averaged(total) for name, total in zip(names, totals.values(), strict=True)}


def validation_nll(model: nn.Module, loader: Iterable[Any], seed: int) -> float:
    """Nats per target of the validation data, by the same draws at every call."""
    return evaluate(model, loader, generator=torch.Generator().manual_seed(seed)).nll


def _squares_of_one(
    model: nn.Module,
    means: Gradients,
    x: Inputs,
    likelihood: str,
    log_std: Tensor | None,
    most: int,
) -> Gradients:
    """Sum over v of (J^T S v)^2, for one example without batch dimension."""

    def output_of(means: Gradients) -> Tensor:
        # Tied layers share one posterior; to tie_weights it would be two, and only one put back.
        batch = mapped(lambda tensor: tensor.unsqueeze(0), x)
        args, by_name = ((), batch) if isinstance(batch, dict) else (batch, None)
        output = functional_call(model, means, args, by_name, tie_weights=False)
        return require_tensor(output).squeeze(0)

    output, pull = vjp(output_of, means)[:2]
    total = {path: torch.zeros_like(mean) for path, mean in means.items()}
    for direction in directions(output, most):
        (gradient,) = pull(curvature_root(likelihood, output, direction, log_std))
        total = {path: total[path] + gradient[path].square() for path in total}
    return total


def _mean_over_examples(
    squares: Callable[[Inputs], Gradients], like: Gradients, batches: Batches
) -> Gradients:
    totals = {path: torch.zeros_like(mean, dtype=torch.float64) for path, mean in like.items()}
    at_once = max(1, _NUMBERS_AT_ONCE // max(1, sum(mean.numel() for mean in like.values())))
    count = 0
    for x, _ in batches:
        for part in parts_of(x, at_once):
            with explained_failure(part):
                found = _summed(squares, part)
            for path, total in totals.items():
                total += found[path]
            count += num_examples(part)
    return {path: total / count for path, total in totals.items()}


def _summed(squares: Callable[[Inputs], Gradients], x: Inputs) -> Gradients:
    """The sum over examples: all at once, or one by one where a layer cannot be vectorised."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There is a performance drop")
            each: Gradients = vmap(squares, randomness="different")(x)
        return {path: square.sum(0) for path, square in each.items()}
    except RuntimeError:
        parts = [squares(_at(x, place)) for place in range(num_examples(x))]
        return {path: torch.stack([p[path] for p in parts]).sum(0) for path in parts[0]}


def _at(x: Inputs, place: int) -> Inputs:
    return mapped(lambda tensor: tensor[place], x)


@contextmanager
def _differentiable_in_evaluation(model: nn.Module) -> Iterator[None]:
    """Without the fused LSTM and GRU, which in evaluation mode have no backward pass."""
    if not any(isinstance(module, nn.RNNBase) for module in model.modules()):
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "TF32 acceleration")  # which nobody asked for
        with without_onednn(), torch.backends.cudnn.flags(enabled=False):
            yield


def _of_last_layer(model: nn.Module, x: Inputs) -> list[str]:
    """The names of the posteriors of the Bayesian layer whose forward pass ends last."""
    order: list[nn.Module] = []
    hooks = [
        layer.register_forward_hook(lambda module, *_: order.append(module))
        for _, layer in bayesian_modules(model)
    ]
    try:
        with torch.no_grad(), explained_failure(x):
            called(model, x)
    finally:
        for hook in hooks:
            hook.remove()
    if not order:
        raise PocketBayesError("no Bayesian layer of the model was run: is its output constant?")
    last: Any = order[-1]
    return [
        name
        for name, q in named_posteriors(model)
        if any(own is q for own in posteriors_of(last).by_name().values())
    ]
