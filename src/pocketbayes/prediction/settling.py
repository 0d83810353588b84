"""As many draws as an answer needs: an example is drawn again until what is told of it is settled.

After S draws each example has a mean over draws of every number that is told of it, and a standard
error s / sqrt(S), s being the std over draws. It is settled when

- classes: every mean probability has an error of at most 0.01, the entropy one of at most 0.02
  nats, and the most probable class is ahead of the second by 3 errors of their difference;
- labels: the same for each label, of which the probability is 3 errors away from 1/2;
- values: the mean has an error of at most 5% of the predictive std, and so has the std.

It is looked at after 30, 60, 120, 240, 480 and 960 draws, where it ends. Where means over draws are
nearly Gaussian, a class that is not the most probable one of infinitely many draws is taken for it
at one look with a chance of at most 1 in 700, at one of them all of at most 1 in 120. What happens
in fewer than a tenth of all draws may happen in none of 30, and is then not seen.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pocketbayes.errors import PocketBayesError, require_count
from pocketbayes.layers import Inputs, mapped, num_examples
from pocketbayes.likelihoods import Likelihood, TargetDistribution, ValueLikelihood

AUTO = "auto"
LEAST_DRAWS, MOST_DRAWS = 30, 960
_PROBABILITY, _ENTROPY, _SHARE_OF_STD = 0.01, 0.02, 0.05
_APART = 3.0


def require_draws(num_samples: object) -> int:
    """The number of draws, or of the first ones, or an error."""
    if num_samples == AUTO:
        return LEAST_DRAWS
    if isinstance(num_samples, str):
        raise PocketBayesError(f'num_samples must be a number or "auto"; got {num_samples!r}')
    return require_count(num_samples, "num_samples")


def require_fixed_draws(num_samples: object, name: str) -> int:
    """The number of draws for something that needs the same of every example, or an error."""
    if num_samples == AUTO:
        raise PocketBayesError(
            f'{name} needs the same number of draws of every example, so num_samples="auto" is for '
            "predict and evaluate only; pass a number, such as num_samples=100"
        )
    return require_count(num_samples, "num_samples")


def until_settled(
    x: Inputs,
    drawn: Callable[[Inputs, int], Tensor],
    is_settled: Callable[[Tensor], Tensor],
) -> list[tuple[Tensor, Tensor]]:
    """(rows, their draws), a pair for each number of draws; settled rows are not run again.

    The number doubles each time.
    """
    draws, found = drawn(x, LEAST_DRAWS), list[tuple[Tensor, Tensor]]()
    rows = torch.arange(num_examples(x), device=draws.device)
    while True:
        is_last = 2 * len(draws) > MOST_DRAWS
        done = torch.ones_like(rows, dtype=torch.bool) if is_last else is_settled(draws)
        found.append((rows[done], draws[:, done]))
        if done.all():
            return [(some, of_them) for some, of_them in found if len(some)]
        left = ~done
        rows, draws = rows[left], draws[:, left]
        x = mapped(lambda tensor, left=left: tensor[left.to(tensor.device)], x)  # type: ignore[misc]
        draws = torch.cat([draws, drawn(x, len(draws))])


def settled(
    likelihood: Likelihood, draws: Tensor, learned: dict[str, Tensor], temperature: float | None
) -> Tensor:
    """(N,) whether what (S, N, ...) outputs say of an example is."""
    if isinstance(likelihood, ValueLikelihood):
        parts = likelihood.distribution(draws, learned, dim=2)
        found = settled_values(parts if temperature is None else parts.widened(temperature))
    else:
        logits = draws if temperature is None else draws / temperature
        if likelihood.kind == "labels":
            found = settled_labels(logits.sigmoid())
        else:
            found = settled_classes(logits.softmax(2))
    return found.flatten(1).all(1) if found.dim() > 1 else found


def settled_classes(probs: Tensor) -> Tensor:
    """(N, ...) of probabilities (S, N, classes, ...)."""
    mean = probs.mean(0)
    told = (_error(probs) <= _PROBABILITY).all(1)
    told &= _error(-(probs * _log(mean)).sum(2)) <= _ENTROPY
    if probs.shape[2] > 1:
        best = mean.topk(2, 1).indices
        first, second = probs.gather(2, best.expand(len(probs), *best.shape)).unbind(2)
        ahead = first - second
        told &= ahead.mean(0) >= _APART * _error(ahead)
    return told


def settled_labels(probs: Tensor) -> Tensor:
    """(N, labels, ...) of probabilities that a label is 1."""
    mean, error = probs.mean(0), _error(probs)
    entropies = -(probs * _log(mean) + (1 - probs) * _log(1 - mean))
    told = (error <= _PROBABILITY) & (_error(entropies) <= _ENTROPY)
    return told & ((mean - 0.5).abs() >= _APART * error)


def settled_values(parts: TargetDistribution) -> Tensor:
    """(N, ...) of distributions: q = Var[y | s] + (E[y | s] - mean)^2 has the variance as mean."""
    means = parts.location
    squares = parts.variance + (means - means.mean(0)).square()
    variance = squares.mean(0)
    of_mean = _error(means) <= _SHARE_OF_STD * variance.sqrt()
    return of_mean & (_error(squares) <= 2 * _SHARE_OF_STD * variance)


def _error(samples: Tensor) -> Tensor:
    """The standard error of the mean over the first dimension."""
    return samples.std(0) / math.sqrt(len(samples))


def _log(x: Tensor) -> Tensor:
    return x.clamp_min(torch.finfo(x.dtype).tiny).log()
