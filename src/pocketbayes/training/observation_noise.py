"""The observation noise of a regression, for a network whose weights changed without training."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from pocketbayes.errors import DataError
from pocketbayes.layers import describe, forget_calibration, noise_log_std
from pocketbayes.likelihoods import matched_target
from pocketbayes.methods import averaged
from pocketbayes.prediction import drawing, draws_of, networks_to_run, unpack
from pocketbayes.training.batch_norm import require_refreshable

_DRAWS = 8  # for each batch: those of whole weights are the same for all its examples
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

    Sharing, pruning and rounding move a network away from its targets, and the noise that was
    learned is then too small: intervals are too narrow. It becomes what maximises the expected
    log-likelihood, as in training,

        std_k^2 = E (y_k - f_k(x))^2,

    over the examples and 8 of the draws that `predict` would make, so that it grows with what the
    weights are unsure of. It may also shrink, to the error on these data. Nothing else changes
    (members of an ensemble keep noises of their own, which it does not use); after an error,
    nothing at all. A model without a Gaussian likelihood is left as it is, and its loader is not
    read. `predict(model, x).aleatoric` is the square of the noise's std.

    Args:
        model: a Bayesian model, or an ensemble.
        loader: training data, as pairs (input, target); other data of the same kind if the network
            knows these by heart.
        batches: how many to read at most.
        generator: makes the draws repeat; global generators are then left as they were.
        estimator: as in `predict`; None: as trained.

    Raises:
        DataError: the loader is empty or yields no pairs, or the noise came out as NaN or infinite.

    Example:
        >>> refresh_noise_(prune_(model, 0.1), train_loader)
    """
    require_refreshable(model, loader, batches, estimator)
    noise = noise_in_use(model)
    if noise is None:
        return model
    with drawing(model, estimator, generator):
        networks = networks_to_run(model, _DRAWS, estimator)
        variance = _mean_squared_error(networks, islice(loader, batches), noise)
        if not variance.isfinite().all():
            raise DataError(
                "the noise came out as NaN or infinite: look for NaN in the data or the weights; "
                "the old one was kept"
            )
        forget_calibration(model)
        noise.copy_(variance.clamp(min=_LEAST_VARIANCE).log() / 2)
    return model


def noise_in_use(model: nn.Module) -> Tensor | None:
    """The log-std of a regression's noise; None for a classifier, though it once was one."""
    return None if describe(model).likelihood == "categorical" else noise_log_std(model)


@torch.no_grad()
def average_noise_(model: nn.Module) -> None:
    """Gives every process the mean variance of what all of them have estimated."""
    noise = noise_in_use(model)
    if noise is not None:
        wide = noise.to(torch.promote_types(noise.dtype, torch.float32))
        noise.copy_(averaged((2 * wide).exp()).log() / 2)


def _mean_squared_error(networks: list[nn.Module], batches: Iterable[Any], like: Tensor) -> Tensor:
    """Of each output, over all examples and networks."""
    total, count = torch.zeros_like(like, dtype=torch.promote_types(like.dtype, torch.float32)), 0
    for batch in batches:
        x, y = unpack(batch, "the loader")
        draws = draws_of(networks, x.to(like.device))
        if draws.shape[2:] != like.shape:
            raise DataError(
                f"the model's output is {tuple(draws.shape[1:])}, its noise {tuple(like.shape)}: "
                "it was trained with other outputs"
            )
        target = matched_target(draws[0], y.to(like.device)).to(draws.dtype)
        total += (target - draws).square().sum((0, 1))
        count += len(draws) * len(x)
    if count == 0:
        raise DataError("the loader is empty: it yielded no batch to estimate the noise from")
    return total / count
