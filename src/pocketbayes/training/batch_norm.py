"""Batch-norm statistics, for a network whose weights have changed without training."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from pocketbayes.errors import DataError, require_choice, require_count
from pocketbayes.layers import (
    ESTIMATORS,
    Inputs,
    called,
    explained_failure,
    forget_calibration,
    forget_head,
    members_of,
    moved,
    num_examples,
    require_module,
)
from pocketbayes.methods import averaged
from pocketbayes.posteriors import codebooks_with_passes
from pocketbayes.prediction import drawn_alone, float_dtype, input_batches

BatchNorms = dict[str, _BatchNorm]
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def refresh_norms_(
    model: nn.Module,
    loader: Iterable[Any],
    batches: int = 200,
    *,
    generator: torch.Generator | None = None,
    estimator: str | None = None,
) -> nn.Module:
    """Estimates the running mean and variance of every batch norm anew, in place.

    Sharing, pruning and rounding move what reaches a batch norm, and its statistics are then those
    of another network. They become the plain average of the batches' means and of their variances,
    over the draws that `predict` would make (so without dropout, unless it was kept). Nothing else
    changes: no parameter, mode or momentum; after an error, nothing at all. A network without such
    norms is left as it is, and its loader is not read.

    Args:
        model: a Bayesian model, or an ensemble.
        loader: training data, in batches as `fit` takes them or without targets, not used here.
            A single example left over at the end of a pass is not used either.
        batches: how many to read at most.
        generator: makes the draws repeat; global generators are then left as they were.
        estimator: as in `predict`; None: as trained.

    Raises:
        DataError: the loader is empty, or a statistic came out as NaN or infinite.

    Example:
        >>> refresh_norms_(prune_(model, 0.1), train_loader)
    """
    require_refreshable(model, loader, batches, estimator)
    batch_norms = running_batch_norms(model)
    if not batch_norms:
        return model
    forget_calibration(model)
    forget_head(model)
    device = next(model.parameters()).device
    with drawn_alone(model, estimator, generator), _begun_anew(batch_norms):
        inputs = input_batches(loader, 256, float_dtype(model))
        _run(members_of(model), islice(inputs, batches), device)
        _require_finite(batch_norms)
    return model


def require_refreshable(model: object, loader: object, batches: int, estimator: str | None) -> None:
    """An error unless something of the model can be estimated anew with these."""
    require_module(model)
    require_count(batches, "batches")
    if estimator is not None:
        require_choice(estimator, "estimator", ESTIMATORS)
    if not isinstance(loader, Iterable):
        raise DataError(f"the loader is a {type(loader).__name__}; pass a DataLoader or a list")


def running_batch_norms(model: nn.Module) -> BatchNorms:
    """Every batch norm that keeps running statistics, by name."""
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm) and module.running_mean is not None
    }


@torch.no_grad()
def average_batch_norms_(model: nn.Module) -> None:
    """Gives every process the mean of what all of them have estimated."""
    for norm in running_batch_norms(model).values():
        for name in _STATISTICS[:2]:
            averaged(getattr(norm, name))


def _run(networks: list[nn.Module], inputs: Iterable[Inputs], device: torch.device) -> None:
    """Sends every batch through every network."""
    largest = 0
    for x in inputs:
        largest = max(largest, num_examples(x))
        if num_examples(x) == 1 < largest:  # what is left over has no variance
            continue
        for network in networks:
            for codebook in codebooks_with_passes(network):
                codebook.begin_pass()
            with explained_failure(x):
                called(network, moved(x, device))
    if largest == 0:
        raise DataError("the loader is empty: it yielded no batch to estimate the norms from")


def _require_finite(batch_norms: BatchNorms) -> None:
    for name, norm in batch_norms.items():
        if not all(bool(getattr(norm, key).isfinite().all()) for key in _STATISTICS[:2]):
            raise DataError(
                f"the statistics of {name} came out as NaN or infinite: look for NaN in the inputs "
                "or the weights; the old ones were kept"
            )


@contextmanager
def _begun_anew(batch_norms: BatchNorms) -> Iterator[None]:
    """They forget, and give every batch the same weight; one that never runs stays as it was."""
    momenta = {name: norm.momentum for name, norm in batch_norms.items()}
    before = {name: _statistics(norm) for name, norm in batch_norms.items()}
    for norm in batch_norms.values():
        norm.reset_running_stats()
        norm.momentum, norm.training = None, True
    finished = False
    try:
        yield
        finished = True
    finally:
        for name, norm in batch_norms.items():
            norm.momentum = momenta[name]
            if not finished or not norm.num_batches_tracked:
                _restore(norm, before[name])


def _statistics(norm: _BatchNorm) -> list[Tensor]:
    return [getattr(norm, name).clone() for name in _STATISTICS]


def _restore(norm: _BatchNorm, values: list[Tensor]) -> None:
    for name, value in zip(_STATISTICS, values, strict=True):
        getattr(norm, name).copy_(value)
