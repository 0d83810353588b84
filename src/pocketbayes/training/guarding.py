"""Errors of a run whose numbers are not finite any more."""

from pathlib import Path

from torch import nn

from pocketbayes.errors import DataError, TrainingError
from pocketbayes.likelihoods import Objective
from pocketbayes.training.checkpoints import NAME
from pocketbayes.training.diagnosis import LossWatch, fault_in_batch, where_not_finite


def last_good(directory: Path | None, has_checkpoint: bool) -> str:
    """Where to go on from, in a sentence."""
    if directory is None or not has_checkpoint:
        return "No checkpoint was written."
    return f"The last good checkpoint is {directory / NAME}."


def require_finite_losses(
    watch: LossWatch, objective: Objective, epoch: int, good: str, everything: bool, whole: bool
) -> None:
    """Stops if a loss was not finite: of those known by now, or of every step so far.

    Only a network that is whole on this process can be asked which layer it was.
    """
    bad = watch.first_bad(everything)
    if bad is None:
        return
    when = f"step {bad.step} (epoch {epoch + 1})"
    fault = fault_in_batch(objective, bad.x, bad.y)
    if fault is not None:
        raise DataError(f"in the batch of {when}, {fault}. {good}")
    place = f": {where_not_finite(objective, bad.x)}" if whole else ""
    raise TrainingError(
        f"the loss is not finite at {when}{place}. {good} The data is finite: lower the learning "
        "rate or set clip_norm"
    )


def require_finite_parameters(model: nn.Module, step: int, good: str) -> None:
    """A gradient may break the parameters in a step whose loss was still finite."""
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and not parameter.isfinite().all():
            raise TrainingError(
                f"parameter {name} is not finite after step {step}, though the loss "
                f"was: its gradient overflowed. {good} Lower the learning rate or "
                "set clip_norm"
            )
