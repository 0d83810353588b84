"""The observation noise of a regression, for a network whose weights changed without training."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from pocketbayes.batches import unpack
from pocketbayes.description import noise_log_std
from pocketbayes.elbo import matched_target
from pocketbayes.ensembles import members_of
from pocketbayes.environment import averaged
from pocketbayes.errors import DataError
from pocketbayes.norms import require_refreshable
from pocketbayes.prediction import drawing, draws_of

_LEAST_VARIANCE = 1e-12  # of a network that repeats its targets


def refresh_noise_(
    model: nn.Module,
    loader: Iterable[Any],
    batches: int = 200,
    *,
    generator: torch.Generator | None = None,
    estimator: str | None = None,
) -> nn.Module:
    """Estimates the noise of a regression anew, in place.

    Sharing, pruning and rounding move a network's outputs, and the noise that was learned is then
    too small: intervals are too narrow. It becomes what maximises the expected log-likelihood,

        std_k^2 = E (y_k - f_k(x))^2,

    over the examples and the draws that `predict` would make, one for each. Nothing else changes;
    after an error, nothing at all. A model without a Gaussian likelihood is left as it is, and its
    loader is not read.

    Args:
        model: a Bayesian model, or an ensemble.
        loader: training data, as pairs (input, target).
        batches: how many to read at most.
        generator: makes the draws repeat; global generators are then left as they were.
        estimator: as in `predict`; None: as trained.

    Raises:
        DataError: the loader is empty or yields no pairs, or the noise came out as NaN or infinite.

    Example:
        >>> refresh_noise_(prune_(model, 0.1), train_loader)
    """
    require_refreshable(model, loader, batches, estimator)
    noise = noise_log_std(model)
    if noise is None:
        return model
    with drawing(model, estimator, generator):
        variance = _mean_squared_error(model, islice(loader, batches), noise)
        if not variance.isfinite().all():
            raise DataError(
                "the noise came out as NaN or infinite: look for NaN in the data or the weights; "
                "the old one was kept"
            )
        noise.copy_(variance.clamp(min=_LEAST_VARIANCE).log() / 2)
    return model


@torch.no_grad()
def average_noise_(model: nn.Module) -> None:
    """Gives every process the mean variance of what all of them have estimated."""
    noise = noise_log_std(model)
    if noise is not None:
        noise.copy_(averaged((2 * noise).exp()).log() / 2)


def _mean_squared_error(model: nn.Module, batches: Iterable[Any], like: Tensor) -> Tensor:
    """Of each output, over all examples and members."""
    members, count = members_of(model), 0
    total = torch.zeros_like(like)
    for batch in batches:
        x, y = unpack(batch, "the loader")
        draws = draws_of(members, x.to(like.device))
        target = matched_target(draws[0], y.to(like.device))
        total += (target - draws).square().sum((0, 1))
        count += len(members) * len(x)
    if count == 0:
        raise DataError("the loader is empty: it yielded no batch to estimate the noise from")
    return total / count
