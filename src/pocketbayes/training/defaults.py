"""What `fit` chooses where nothing is said: by likelihood, network and data, never by who calls.

The choices were made on validation parts of 15 regressions and 24 classifications.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import IterableDataset

from pocketbayes.errors import PocketBayesError, TrainingError
from pocketbayes.layers import describe, has_frozen_base, is_fully_connected, moved
from pocketbayes.likelihoods import LIKELIHOODS, CountLikelihood, Likelihood
from pocketbayes.methods import MeanField, Method, SpikeSlab, VariationalMethod, averaged
from pocketbayes.prediction import drawing, draws_of, float_dtype, unpack

_LR, _LR_OF_VALUES, _LR_WHERE_IT_FITS = 3e-3, 1e-2, 3e-4
_BETA_OF_LABELS = 0.1
_EPOCHS = 100
_LEAST_STEPS = {"values": 10000, "classes": 2000}
_LOOKED_AT = 4  # batches
_GAIN = 0.25  # nats for each target


def chosen_method(
    method: Method, model: nn.Module, loader: Iterable[Any], likelihood: str
) -> Method:
    """The method with nothing left open, for this model and data."""
    return with_defaults(method, model, likelihood, fits_already(model, loader, likelihood, method))


def as_stored(
    method: Method, epochs: int | None, stored: Mapping[str, Any]
) -> tuple[Method, int | None]:
    """What a call leaves open is as the run that it resumes had it."""
    left_open = {f.name for f in fields(method) if getattr(method, f.name) is None}
    left_open -= set() if "beta" in left_open else {"least_beta"}  # which comes with beta
    known = {name: stored[name] for name in left_open if stored.get(name) is not None}
    try:
        return replace(method, **known), stored.get("epochs") if epochs is None else epochs
    except PocketBayesError as error:
        raise TrainingError(f"settings of the checkpoint cannot be: {error}") from error


def chosen_epochs(
    epochs: int | None,
    method: Method,
    model: nn.Module,
    loader: Iterable[Any],
    likelihood: str,
    shared: int,
) -> int:
    """The passes over the data: as said, or by default; none for a method that does not train."""
    if not method.trains:
        return 0
    return default_epochs(model, loader, likelihood, shared) if epochs is None else epochs


def with_defaults(method: Method, model: nn.Module, likelihood: str, fits: bool) -> Method:
    """The method with nothing left open.

    Args:
        method: what was asked for.
        model: the network; whether it is fully connected decides most, and whether what learns are
            adapters on a frozen one.
        likelihood: of classes or of values.
        fits: whether the network fits the data already, before training.
    """
    of_values, adapts = LIKELIHOODS[likelihood].kind == "values", has_frozen_base(model)
    connected = is_fully_connected(model) and not adapts
    bold = of_values and connected and _is_plain_vi(method)
    lr = _LR_OF_VALUES if bold else _LR
    if fits and not adapts and isinstance(method, MeanField):
        lr = _LR_WHERE_IT_FITS
    method = replace(method, lr=lr if method.lr is None else method.lr)
    if not isinstance(method, VariationalMethod):
        return method
    # Adapters multiply each other and begin at zero: learned priors, and their KL, keep them there.
    learned = (connected or of_values or isinstance(method, SpikeSlab)) and not adapts
    prior = "learned" if learned and describe(model).prior != "fixed" else "fixed"
    if method.beta is None:
        beta, least = _betas(likelihood, connected, isinstance(method, SpikeSlab))
        chosen = least if method.least_beta is None else method.least_beta
        method = replace(method, beta=beta, least_beta=chosen)
    return replace(
        method,
        prior=prior if method.prior is None else method.prior,
        warmup=(0.9 if bold else 0.5) if method.warmup is None else method.warmup,
    )


def _betas(likelihood: str, connected: bool, selects: bool) -> tuple[float, float | None]:
    """Beta, and the least it may fall to, if it follows doubt.

    1 where the data allow it: values and inclusion variables in fully connected networks. Classes,
    and deep networks of other layers, lose accuracy and NLL at 1. Clean labels want a smaller beta
    than noisy ones, which a network would else learn by heart.
    """
    of_values = LIKELIHOODS[likelihood].kind == "values"
    if not connected:
        return (0.1 if of_values else 0.01), None
    if of_values or selects:
        return 1.0, None
    return (0.3, 0.05) if likelihood == "categorical" else (_BETA_OF_LABELS, None)


def with_constant_beta(method: VariationalMethod) -> VariationalMethod:
    """A beta that follows doubt, for which there must be epochs, becomes 0.1."""
    if method.least_beta is None:
        return method
    return replace(method, beta=_BETA_OF_LABELS, least_beta=None)


def _is_plain_vi(method: Method) -> bool:
    return isinstance(method, VariationalMethod) and not isinstance(method, SpikeSlab)


def default_epochs(
    model: nn.Module, loader: Iterable[Any], likelihood: str, shared: int = 1
) -> int:
    """100 passes; in fully connected networks at least 2,000 steps, or 10,000 for values.

    A step takes so many (`shared`) batches of the loader, of all processes together.
    """
    batches = _batches_of(loader)
    if not batches or not is_fully_connected(model):
        return _EPOCHS
    least = _LEAST_STEPS["values" if LIKELIHOODS[likelihood].kind == "values" else "classes"]
    return max(_EPOCHS, math.ceil(least * shared / batches))


def _batches_of(loader: Iterable[Any]) -> int | None:
    """How many there are in a pass; None: it does not tell, as a stream does not."""
    try:
        return len(loader)  # type: ignore[arg-type]
    except TypeError:
        return None


def fits_already(model: nn.Module, loader: Iterable[Any], likelihood: str, method: Method) -> bool:
    """Whether the mean network predicts the first batches, so that a small learning rate will do.

    Targets must be likelier by its outputs than by the best outputs that are the same for every
    example. Looked at only where the answer matters: not after variational training, which has
    found the stds already, and may have been pruned since; nor in a stream, which would lose them.
    """
    has_stds = describe(model).beta is not None
    if has_stds or not isinstance(method, MeanField) or method.lr is not None:
        return False
    is_stream = isinstance(getattr(loader, "dataset", None), IterableDataset)
    if is_stream or _batches_of(loader) is None:
        return False
    device, kind = next(model.parameters()).device, LIKELIHOODS[likelihood]
    outputs, targets = list[Tensor](), list[Tensor]()
    for batch in islice(loader, _LOOKED_AT):
        x, y = unpack(batch, "the training loader", float_dtype(model))
        with drawing(model, "mean", None):
            outputs.append(draws_of([model], moved(x, device))[0])
        targets.append(y.to(device))
    surplus = torch.tensor(-torch.inf, device=device)  # every process must come to the average
    if outputs and len({out.shape[1:] for out in outputs}) == 1:
        surplus = gain_of(kind, torch.cat(outputs), torch.cat(targets))
    return bool(averaged(surplus) > 0)


@torch.no_grad()
def gain_of(kind: Likelihood, output: Tensor, target: Tensor) -> Tensor:
    """Nats for each target by which outputs beat the best constant, less those that are wanted.

    Wanted are 0.25, or half of what the constant leaves if that is less; of real values, whose
    NLL has no zero, 0.125: 22% of the variance.
    """
    constant = kind.constant(output, target).expand(output.shape)
    own, other = (
        kind.nll(out, target, kind.start(out, target))[0].float() * len(target)
        / kind.num_targets(target)
        for out in (output, constant)
    )  # fmt: skip
    is_real = kind.kind == "values" and not isinstance(kind, CountLikelihood)
    wanted = torch.full_like(other, _GAIN / 2) if is_real else (other / 2).clamp(max=_GAIN)
    return other - own - wanted


def suitable_batch_size(examples: int) -> int:
    """128, or less where that would leave under 20 steps an epoch; a power of two, 16 at least."""
    return max(16, min(128, 1 << max(0, (examples // 20).bit_length() - 1)))
