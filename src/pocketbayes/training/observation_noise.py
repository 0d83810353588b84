"""The observation noise of a regression, for a network whose weights changed without training."""

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

import torch
from torch import Tensor, nn

from pocketbayes.errors import DataError
from pocketbayes.layers import (
    describe,
    forget_calibration,
    moved,
    noise_parameters,
    update_description,
)
from pocketbayes.likelihoods import (
    Likelihood,
    learned_for,
    learned_of,
    likelihood_of,
    set_learned_,
)
from pocketbayes.methods import averaged
from pocketbayes.prediction import (
    drawing,
    draws_of,
    fetched,
    float_dtype,
    networks_to_run,
    unpack,
)
from pocketbayes.training.batch_norm import require_refreshable

_DRAWS = 8  # for each batch: those of whole weights are the same for all its examples


def refresh_noise_(
    model: nn.Module,
    loader: Iterable[Any],
    batches: int = 200,
    *,
    generator: torch.Generator | None = None,
    estimator: str | None = None,
    likelihood: str | None = None,
) -> nn.Module:
    """Estimates the noise of a regression anew, in place.

    Sharing, pruning and rounding move a network away from its targets, and the noise that was
    learned is then too small: intervals are too narrow. It becomes what maximises the expected
    log-likelihood, as in training,

        std_k^2 = E (y_k - f_k(x))^2,

    over the examples and 8 of the draws that `predict` would make, so that it grows with what the
    weights are unsure of. It may also shrink, to the error on these data. Scale and freedom of a
    Student's t and the dispersion of a negative binomial are found by L-BFGS instead. Nothing else
    changes (members of an ensemble keep noises of their own, which it does not use); after an
    error, nothing at all. A model whose likelihood learns nothing is left as it is, and its loader
    is not read. `predict(model, x).aleatoric` is the variance of the noise.

    Args:
        model: a Bayesian model, or an ensemble.
        loader: training data, in batches as `fit` takes them; other data of the same kind if the
            network knows these by heart.
        batches: how many to read at most.
        generator: makes the draws repeat; global generators are then left as they were.
        estimator: as in `predict`; None: as trained.
        likelihood: of a model that was trained in a loop of your own and does not say; it is then
            remembered, and a noise is made if there is none.

    Raises:
        DataError: the loader is empty or yields no pairs, or the noise came out as NaN or infinite.

    Example:
        >>> refresh_noise_(prune_(model, 0.1), train_loader)
    """
    require_refreshable(model, loader, batches, estimator)
    found = _likelihood_with_noise(model, likelihood)
    if found is None:
        return model
    with drawing(model, estimator, generator):
        networks = networks_to_run(model, _DRAWS, estimator)
        read = islice(fetched(loader, next(model.parameters()).device), batches)
        pairs = _outputs_and_targets(networks, read, model, found)
        first = next(pairs, None)
        if first is None:
            raise DataError("the loader is empty: it yielded no batch to estimate the noise from")
        begin = learned_of(model, found) or found.start(first[0][0], first[1])
        values = found.fitted(chain([first], pairs), begin)
        if not all(value.isfinite().all() for value in values.values()):
            raise DataError(
                "the noise came out as NaN or infinite: look for NaN in the data or the weights; "
                "the old one was kept"
            )
        forget_calibration(model)
        set_learned_(model, values)
        if describe(model).likelihood is None:
            update_description(model, likelihood=found.name)
    return model


def _likelihood_with_noise(model: nn.Module, chosen: str | None) -> Likelihood | None:
    """The model's likelihood if it learns something, None if there is nothing to estimate."""
    known = chosen or describe(model).likelihood
    if known is None and noise_parameters(model):
        known = "gaussian"
    found = likelihood_of(model, known)
    return found if found.learned else None


def learns_noise(model: nn.Module) -> bool:
    """Whether the model's likelihood has parameters of its own that are trained."""
    found = _likelihood_with_noise(model, None)
    learned = None if found is None else learned_of(model, found)
    return bool(learned) and all(value.requires_grad for value in (learned or {}).values())


@torch.no_grad()
def average_noise_(model: nn.Module) -> None:
    """Gives every process the root mean square of what all of them have estimated."""
    found = _likelihood_with_noise(model, None)
    for noise in ((found and learned_of(model, found)) or {}).values():
        wide = noise.to(torch.promote_types(noise.dtype, torch.float32))
        noise.copy_(averaged((2 * wide).exp()).log() / 2)


def _outputs_and_targets(
    networks: list[nn.Module], batches: Iterable[Any], model: nn.Module, likelihood: Likelihood
) -> Iterator[tuple[Tensor, Tensor]]:
    """(S, N, ...) outputs of all networks, and the targets, batch by batch."""
    device = next(model.parameters()).device
    for batch in batches:
        x, y = unpack(batch, "the loader", float_dtype(model))
        draws, target = draws_of(networks, moved(x, device)), y.to(device)
        if learned_of(model, likelihood) is not None:
            learned_for(model, likelihood, draws)
        likelihood.require_possible(draws[0], target)
        yield draws, target
