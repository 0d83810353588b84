"""From switches to a sparse network: what is off goes."""

import torch
from torch import Tensor, nn

from pocketbayes.convert import named_posteriors, replace_posterior
from pocketbayes.errors import PocketBayesError, require_number
from pocketbayes.posteriors import Gaussian, Posterior, Sparse, SpikeSlab


@torch.no_grad()
def prune_(model: nn.Module, density: float | None = None) -> nn.Module:
    """Drops the weights whose switches are off, in place, and returns the model.

    Args:
        model: one that `SpikeSlab` has trained.
        density: share of the switched weights to keep, those of the largest p in the whole
            network; None: all with p of at least 1/2, the median probability model. Every tensor
            keeps at least its likeliest switch.

    Example:
        >>> fit(model, loader, SpikeSlab(inclusion=0.05))
        >>> fit(prune_(model), loader, MeanField(), epochs=10)
    """
    found = {name: q for name, q in named_posteriors(model) if isinstance(q, SpikeSlab)}
    if not found:
        raise PocketBayesError("nothing to prune: train with method=SpikeSlab() first")
    least = 0.0
    if density is not None:
        require_number(density, "density", above=0, most=1)
        least = _threshold(list(found.values()), density)
    for name, q in found.items():
        replace_posterior(model, name, kept_weights(q, q.log_odds >= least))
    return model


def kept_weights(q: SpikeSlab, on: Tensor) -> Posterior:
    """The weights behind switches that are on; at least those of the likeliest."""
    on = on | (q.log_odds == q.log_odds.max())
    there = q.each(on).expand(q.shape).flatten()
    mean, log_std, prior = q.mean.detach(), q.log_std.detach(), q.prior_std.clone()
    learns = q.mean.requires_grad
    if bool(there.all()):
        return Gaussian(nn.Parameter(mean.clone(), learns), log_std.clone(), prior)
    index = there.nonzero().flatten()
    mean, log_std = mean.flatten()[index], log_std.flatten()[index]
    return Sparse(index, mean, log_std, q.shape, prior, trainable=learns)


def _threshold(posteriors: list[SpikeSlab], density: float) -> float:
    """The log-odds at and above which lie about this share of all switched weights."""
    values = torch.cat([q.each(q.log_odds).expand(q.shape).flatten() for q in posteriors])
    kept = max(1, round(density * len(values)))
    return float(values.topk(kept).values[-1])
