"""Teaches a head what many draws of the network say, so that one pass is enough."""

import math
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import torch
from torch import nn

from pocketbayes.distillation.comparing import compared, warn_if_far
from pocketbayes.distillation.lessons import Lesson, Teacher
from pocketbayes.distillation.losses import Loss, loss_for, value_loss
from pocketbayes.errors import (
    DataError,
    PocketBayesError,
    TrainingError,
    require_choice,
    require_count,
    require_number,
)
from pocketbayes.layers import (
    ESTIMATORS,
    Ensemble,
    Numbers,
    describe,
    folded,
    forget_calibration,
    head_knows_weights,
    head_of,
    home,
    named_posteriors,
    require_module,
    set_head,
    spread,
    stored,
    tensors_at,
    update_description,
)
from pocketbayes.likelihoods import likelihood_of
from pocketbayes.posteriors import isolated_randomness, mixed_seed, seed_everything
from pocketbayes.prediction import full_precision

Model = TypeVar("Model", bound=nn.Module)
_EPOCHS, _LEAST_STEPS, _TRIES = 5, 500, 3
_MOST_GRADIENT = 1.0
_SLACK = 0.1  # nats by which a few steps may make a head worse
_CAUTION = 1.02  # off the data a head is surer than draws: it divides logits by so much more


def distill_(
    model: Model,
    loader: Iterable[Any],
    epochs: int | None = None,
    *,
    num_samples: int = 8,
    estimator: str | None = None,
    likelihood: str | None = None,
    lr: float = 1e-2,
    seed: int = 0,
) -> Model:
    """Teaches the model to tell from one pass what many draws would say, in place.

    A small head reads the inputs of a few layers of the mean network, and its outputs. It gives a
    Gaussian over the outputs that is near to draws of the network: for classes and labels by the
    cross-entropy of the predictives and the aleatoric part, for values by the likelihood of draws.
    From then on `predict` and `evaluate` run the network once; `estimator="weight"` and the like
    still draw. The head is stored in the file: 6 kB, or 3% of a byte a weight. `fit`, `prune_` and
    others that change weights drop it; after steps of your own `predict` warns, and draws. What
    `temperature_` and `conformal` found for other predictions is dropped: calibrate afterwards.
    At its end one pass is compared with draws, on some of the loader's inputs: `audit(model)` and
    the file tell how near it came, and there is a warning if that is far, if the model was never
    trained, or if its draws tell the loader's targets no better than chance.

    Args:
        model: a trained Bayesian model, not an ensemble.
        loader: batches as `fit` takes them, best with the same augmentation; targets are
            not learned from, and only used to compare.
        epochs: passes over the loader; None: 5, and as many as make 500 steps.
        num_samples: draws of the network for each batch.
        estimator: how to draw, as in `predict`; None: as trained.
        likelihood: one of those of `fit`; None: as trained, else "categorical".
        lr: the rate that Adam begins with; it falls to 0 by a cosine.
        seed: determines draws, order and augmentation. Global generators are left as they were.

    Raises:
        DataError: the loader yields nothing, or no such batches.
        PocketBayesError: the model has no posterior, is an ensemble, or draws nothing at random.
        TrainingError: the network's draws are not finite.

    Example:
        >>> distill_(model, train_loader)
        >>> predict(model, x).estimator
        'one_pass'
    """
    _require_distillable(model, loader)
    if epochs is not None:
        require_count(epochs, "epochs")
    require_count(num_samples, "num_samples", least=2)
    require_count(seed, "seed", least=0)
    require_number(lr, "lr", above=0)
    if estimator is not None:
        require_choice(estimator, "estimator", [name for name in ESTIMATORS if name != "mean"])
    chosen = likelihood_of(model, likelihood)
    device = next(model.parameters()).device
    before = head_of(model), tensors_at(home(model))
    try:
        with isolated_randomness(device):
            seed_everything(mixed_seed(seed), device)
            teacher = Teacher(model, loader, num_samples, estimator, chosen.name)
            head, numbers = teacher.begun()
            epochs = epochs or _default_epochs(teacher)
            numbers = _learned(numbers, teacher, loss_for(chosen), epochs, lr)
            if chosen.kind != "values":
                numbers.outer_bias[0] -= math.log(_CAUTION)
            set_head(model, head, stored(numbers))
            head_knows_weights(model)
            found = compared(model, loader, chosen, estimator, num_samples)
            head.compared = found.facts
            update_description(model, one_pass=head.facts())
    except BaseException:
        set_head(model, *before)
        raise
    forget_calibration(
        model, ("temperature", "conformal"), "the model's predictions are now those of this head"
    )
    warn_if_far(model, found)
    return model


def _learned(begin: Numbers, teacher: Teacher, loss: Loss, epochs: int, lr: float) -> Numbers:
    """The numbers after learning, unless they are worse than at first; then anew, more slowly.

    If they never get better, those at first, with the same variances for all examples.

    Now and then Adam throws a head so far off that it never comes back.
    """
    numbers, at_first = begin, _mean_loss(begin, teacher, loss)
    rates = (lr / 4**tries for tries in range(_TRIES)) if math.isfinite(at_first) else ()
    for rate in rates:
        numbers = Numbers(*(tensor.clone() for tensor in begin))
        _learn_(numbers, teacher, loss, epochs, rate)
        if _mean_loss(numbers, teacher, loss) <= at_first + _SLACK:
            return numbers
    if not math.isfinite(_mean_loss(numbers, teacher, loss)):
        raise TrainingError(
            "the head is not finite: some draws of the network are NaN or infinite; look for such "
            "inputs or weights"
        )
    return begin


@torch.no_grad()
def _mean_loss(numbers: Numbers, teacher: Teacher, loss: Loss) -> float:
    """Of the first lessons."""
    head = folded(numbers, teacher.widths)
    with full_precision(numbers.outer.device.type):
        found = [
            loss(*spread(head, *lesson.given), lesson.draws) * lesson.draws.shape[1]
            for lesson in teacher.first
        ]
    return float(torch.stack(found).sum()) / sum(lesson.draws.shape[1] for lesson in teacher.first)


def _learn_(numbers: Numbers, teacher: Teacher, loss: Loss, epochs: int, lr: float) -> None:
    """Adam on a cosine; center and scale of the features stay.

    Logits are divided by a factor, values shifted. On inputs from elsewhere, shifts of logits
    took the predictive away from that of draws (digits: by four times as much as no head at all).
    """
    learned, widths = numbers.learned(), teacher.widths
    idle = slice(0, 1) if loss is value_loss else slice(1, 1 + widths[-1])
    adam = torch.optim.Adam([tensor.requires_grad_() for tensor in learned], lr)
    for progress, lesson in _in_epochs(teacher, epochs):
        for group in adam.param_groups:
            group["lr"] = lr * (1 + math.cos(math.pi * progress)) / 2
        off = full_precision(lesson.draws.device.type)
        with torch.inference_mode(False), torch.enable_grad(), off:
            adam.zero_grad()
            found = spread(folded(numbers, widths), *lesson.given)
            loss(*found, lesson.draws).backward()  # type: ignore[no-untyped-call]
            for tensor in (numbers.outer, numbers.outer_bias):
                tensor.grad[idle] = 0  # type: ignore[index]
            nn.utils.clip_grad_norm_(learned, _MOST_GRADIENT)
            adam.step()
    for tensor in learned:
        tensor.requires_grad_(False)


def _default_epochs(teacher: Teacher) -> int:
    return max(_EPOCHS, math.ceil(_LEAST_STEPS / (teacher.batches or _LEAST_STEPS)))


def _in_epochs(teacher: Teacher, epochs: int) -> Iterator[tuple[float, Lesson]]:
    """Lessons with the share of all that has passed."""
    for epoch in range(epochs):
        for step, lesson in enumerate(teacher.lessons()):
            yield (epoch + step / max(teacher.batches, step + 1)) / epochs, lesson


def _require_distillable(model: nn.Module, loader: object) -> None:
    require_module(model)
    if isinstance(model, Ensemble):
        raise PocketBayesError(
            "distill_ takes one network, not an ensemble: one pass of a member knows nothing of "
            "the others. predict runs each of them; or distil one that is trained by itself"
        )
    posteriors = [posterior for _, posterior in named_posteriors(model)]
    if not posteriors:
        raise PocketBayesError("this model has no posterior: call bayesianize_(net) first")
    if not any(q.is_random for q in posteriors) and not describe(model).keeps_dropout:
        raise PocketBayesError(
            "nothing in this model is random: all draws are its mean, which predict runs once"
        )
    if not isinstance(loader, Iterable):
        raise DataError(f"the loader is a {type(loader).__name__}; pass a DataLoader or a list")
    if isinstance(loader, Iterator):
        raise DataError("the loader is an iterator, spent after one pass: pass a DataLoader")
